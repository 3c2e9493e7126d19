"""The commit of the code that measures something."""

import subprocess
from pathlib import Path


def commit_of(folder: Path) -> str | None:
    """The commit of the checkout that holds a folder, with the suffix `-dirty` if files outside of docs/ differ; None
    without git."""

    def ask(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        # Pages and results are no code: the first of two results of one command does not make the second one dirty.
        code = (":(top)", ":(top,exclude)docs")
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", *code)
        return ask("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
