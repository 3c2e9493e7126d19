"""Questions to git, and the commit of the code that measures something."""

import subprocess
from pathlib import Path

#: Time limit in seconds of a git command.
GIT_S = 60.0


def git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in a folder; None if it fails, or there is no git."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def commit_of(folder: Path) -> str | None:
    """The commit of the checkout that holds a folder, with the suffix `-dirty` if files outside of docs/ differ; None
    without git."""
    # Pages and results are no code: the first of two results of one command does not make the second one dirty.
    changed = git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(top,exclude)docs")
    commit = git(folder, "rev-parse", "HEAD")
    return None if changed is None or commit is None else commit.strip() + "-dirty" * bool(changed)
