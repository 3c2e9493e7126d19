"""The git and DVC repository of a folder that `headstart retrain` works in, and what both ignore.

Every run imports this module, which reads no data.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from components.core.artifacts import write_atomic
from components.core.errors import ConfigError
from components.core.resources import PIPELINE
from components.settings.registry import find_repository

PARAMS: Final = "params.yaml"
#: Time limit in seconds of a git command.
GIT_S: Final = 60.0
_DVC: Final = """\
[core]
    analytics = false
    check_update = false
    autostage = false{no_scm}
[cache]
    type = "reflink,hardlink,copy"
"""
_AUTHOR: Final = {"NAME": "headstart", "EMAIL": "headstart@localhost"}
_GITIGNORE: Final = (
    "/data",
    "/artifacts",
    "/.headstart/",
    "/mlflow.db",
    "/mlruns/",
    "/dvc_plots/",
    "/.*.manifest.json",
)
_DVCIGNORE: Final = (".headstart/", "__pycache__/", "*.pyc", "mlruns/", ".venv/", ".git/")


def make_project(folder: Path) -> list[str]:
    """Make what is missing: a git repository, DVC's folder .dvc, and what both ignore. Nothing is overwritten.

    Returns:
        What the user sees that was made.

    Raises:
        ConfigError: the folder cannot be written.
    """
    if find_repository(folder) is not None:
        return []
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder.resolve()}: cannot be written; copy the project to a folder of your own")
    made = []
    git = shutil.which("git") is not None
    if git and subprocess.run(["git", "-C", folder, "rev-parse"], capture_output=True, timeout=GIT_S).returncode:
        subprocess.run(["git", "init", "-q", folder], capture_output=True, check=True, timeout=GIT_S)
        made.append("a git repository")
    (folder / ".dvc").mkdir()
    config = _DVC.format(no_scm="" if git else "\n    no_scm = true")
    write_atomic(folder / ".dvc" / "config", config)
    write_atomic(folder / ".dvc" / ".gitignore", "/config.local\n/tmp\n/cache\n")
    for name, wanted in ((".gitignore", _GITIGNORE), (".dvcignore", _DVCIGNORE)):
        _append(folder / name, wanted)
    return made


def commit_project(folder: Path) -> None:
    """The first commit of a git repository that has none: settings, the stages, and what is ignored. So a model names
    the version of its settings. Without git, and in a repository with a history, nothing is done."""
    git = shutil.which("git")
    if (
        git is None
        or subprocess.run([git, "-C", folder, "rev-parse", "HEAD"], capture_output=True, timeout=GIT_S).returncode == 0
    ):
        return
    names = [name for name in (PARAMS, PIPELINE, ".gitignore", ".dvcignore", ".dvc") if (folder / name).exists()]
    # The author of a machine on which git is not set up.
    author = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _AUTHOR.items()}
    configured = subprocess.run([git, "-C", folder, "var", "GIT_AUTHOR_IDENT"], capture_output=True, timeout=GIT_S)
    environment = os.environ if configured.returncode == 0 else os.environ | author
    for arguments in (
        ["add", "--", *names],
        ["commit", "-q", "--no-verify", "-m", "headstart: settings", "--", *names],
    ):
        # Without a commit the lineage of a model lacks the version of the settings, which is no reason to end.
        subprocess.run([git, "-C", folder, *arguments], capture_output=True, timeout=GIT_S, env=environment)


def _append(path: Path, lines: tuple[str, ...]) -> None:
    """Add the lines that a file lacks."""
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    missing = [line for line in lines if line not in before.splitlines()]
    if missing:
        write_atomic(path, before + ("" if not before or before.endswith("\n") else "\n") + "\n".join(missing) + "\n")
