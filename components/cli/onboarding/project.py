"""A folder that `headstart retrain` can work in: git, DVC, .gitignore, and the labelled files."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from components.cli.onboarding.splits import split_files
from components.core.artifacts import changing_data, digest_tree, write_atomic
from components.core.errors import ConfigError
from components.core.outputs import named_output
from components.core.resources import PIPELINE
from components.data.formats.lines import Reading, lines
from components.data.formats.plain import files_at
from components.settings.loading import load_params
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


def take_files(files: Mapping[str, Path], *, name: str, root: Path) -> tuple[str, dict[str, str]]:
    """The folder of labelled files below the project, and split -> name of the file in it.

    Files below `data/` stay where they are if they are in one folder; others are copied to data/tasks/NAME, where DVC
    versions them. A copy is renewed if the file has changed.

    Raises:
        ArtifactError: a copy has changed since it was made.
    """
    folders = {file.resolve().parent for file in files.values()}
    data = (root / "data").resolve()
    only = next(iter(folders))
    if len(folders) == 1 and data in only.parents:
        return only.relative_to(root.resolve()).as_posix(), {split: file.name for split, file in files.items()}
    target = root / "data" / "tasks" / name
    target.mkdir(parents=True, exist_ok=True)
    with changing_data(root, [target]):
        for file in files.values():
            # A member of a JSON document is in its file; folders and patterns name parallel files or classes.
            given = Path(str(file).partition("#")[0])
            for each in [given] if given.is_dir() else files_at(given):
                copy = target / each.name
                if not copy.exists() or digest_tree(copy) != digest_tree(each):
                    with named_output(copy, folder=each.is_dir(), overwrite=True) as draft:
                        if each.is_dir():
                            shutil.copytree(each, draft.path, copy_function=shutil.copyfile, dirs_exist_ok=True)
                        else:
                            shutil.copyfile(each, draft.path)
    return target.relative_to(root).as_posix(), {split: file.name for split, file in files.items()}


def holds_lines(path: Path) -> bool:
    """Whether a file is a list of texts, one a line: a txt file of several lines, none of them empty.

    A folder of txt files, and a file with paragraphs, hold documents.
    """
    if not path.is_file() or path.suffix.lower() != ".txt":
        return False
    count = 0
    for _, line in lines(path, Reading()):
        if not line.strip():
            return False
        count += 1
    return count > 1


def take_lines(file: Path, *, name: str, root: Path) -> Path:
    """Write each line of a file as a row of data/unlabelled/NAME.jsonl, where DVC versions it; returns its path.

    Readers of txt files take a file as one document (`components.data.ingestion.readers.read_text`).
    """
    target = root / "data" / "unlabelled" / f"{name}.jsonl"
    with named_output(target, overwrite=True) as draft, draft.path.open("w", encoding="utf-8") as output:
        for _, line in lines(file, Reading()):
            output.write(json.dumps({"text": line}, ensure_ascii=False) + "\n")
    return target


def renew(labelled: Path, *, root: Path) -> str:
    """Copy labelled files anew for the task that was made from them; returns its name.

    Raises:
        ConfigError: no task of params.yaml was made from files of these names.
    """
    files = split_files(labelled)
    for name, source in load_params(root / PARAMS).data.tasks.items():
        if source.files("train") == [files["train"].name] and (root / source.path).is_dir():
            for file in files.values():
                if (root / source.path).resolve() != file.resolve().parent:
                    take_files({"train": file}, name=Path(source.path).name, root=root)
            return name
    raise ConfigError(
        f"{root / PARAMS}: no task learns from a file {files['train'].name}; `headstart init --overwrite {labelled}` "
        "replaces the settings, or add the task to them"
    )
