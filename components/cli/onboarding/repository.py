"""The git and DVC repository of a folder that `headstart retrain` works in, and what both ignore.

Every run imports this module, which reads no data.
"""

import os
from pathlib import Path
from typing import Final

from components.core.artifacts import write_atomic
from components.core.commits import git
from components.core.errors import ConfigError
from components.core.resources import PIPELINE
from components.settings.registry import find_repository

PARAMS: Final = "params.yaml"
_DVC: Final = """\
[core]
    analytics = false
    check_update = false
    autostage = false{no_scm}
[cache]
    type = "reflink,hardlink,copy"
"""
#: The author on a machine on which git is not set up.
_AUTHOR: Final = ("-c", "user.name=headstart", "-c", "user.email=headstart@localhost")
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
    no_scm = git(folder, "rev-parse") is None
    if no_scm and not (no_scm := git(folder, "init", "-q") is None):
        made.append("a git repository")
    (folder / ".dvc").mkdir()
    config = _DVC.format(no_scm="\n    no_scm = true" * no_scm)
    write_atomic(folder / ".dvc" / "config", config)
    write_atomic(folder / ".dvc" / ".gitignore", "/config.local\n/tmp\n/cache\n")
    for path, wanted in ((folder / ".gitignore", _GITIGNORE), (folder / ".dvcignore", _DVCIGNORE)):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if missing := [line for line in wanted if line not in before.splitlines()]:
            between = "" if not before or before.endswith("\n") else "\n"
            write_atomic(path, before + between + "\n".join(missing) + "\n")
    return made


def commit_project(folder: Path) -> None:
    """The first commit of a git repository that has none: settings, the stages, and what is ignored. So a model names
    the version of its settings. Without git, and in a repository with a history, nothing is done."""
    if git(folder, "rev-parse", "HEAD") is not None:
        return
    names = [name for name in (PARAMS, PIPELINE, ".gitignore", ".dvcignore", ".dvc") if (folder / name).exists()]
    author = _AUTHOR if git(folder, "var", "GIT_AUTHOR_IDENT") is None else ()
    # Without a commit the lineage of a model lacks the version of the settings, which is no reason to end.
    for arguments in (["add"], ["commit", "-q", "--no-verify", "-m", "headstart: settings"]):
        git(folder, *author, *arguments, "--", *names)
