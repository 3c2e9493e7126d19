"""The labelled and unlabelled files of a folder that `headstart retrain` works in."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from components.cli.onboarding.repository import PARAMS
from components.cli.onboarding.splits import split_files
from components.core.artifacts import changing_data, digest_tree
from components.core.errors import ConfigError
from components.core.outputs import named_output
from components.data.formats.lines import Reading, lines
from components.data.formats.plain import files_at
from components.settings.loading import load_params


def take_files(files: Mapping[str, Path], *, name: str, root: Path) -> str:
    """The folder of labelled files below the project.

    Files below `data/` stay where they are if they are in one folder; others are copied to data/tasks/NAME, where DVC
    versions them. A copy is renewed if the file has changed.

    Raises:
        ArtifactError: a copy has changed since it was made.
    """
    folders = {file.resolve().parent for file in files.values()}
    data = (root / "data").resolve()
    only = next(iter(folders))
    if len(folders) == 1 and data in only.parents:
        return only.relative_to(root.resolve()).as_posix()
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
    return target.relative_to(root).as_posix()


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

    Readers of txt files take a file as one document (`components.data.ingestion.readers.read_documents`).
    """
    target = root / "data" / "unlabelled" / f"{name}.jsonl"
    with named_output(target, overwrite=True) as draft, draft.path.open("w", encoding="utf-8") as output:
        for _, line in lines(file, Reading()):
            output.write(json.dumps({"text": line}, ensure_ascii=False) + "\n")
    return target


def renew(labelled: Path, *, root: Path) -> str:
    """Copy labelled files anew for the task that was made from them; returns its name.

    Raises:
        ConfigError: no task of params.yaml was made from files of these names, or its folder does not exist.
    """
    files = split_files(labelled)
    for name, source in load_params(root / PARAMS).data.tasks.items():
        if source.files("train") == [files["train"].name]:
            if not (root / source.path).is_dir():
                raise ConfigError(f"{root / PARAMS}: data.tasks.{name}.path: {source.path}: no such folder; correct it")
            for file in files.values():
                if (root / source.path).resolve() != file.resolve().parent:
                    take_files({"train": file}, name=Path(source.path).name, root=root)
            return name
    raise ConfigError(
        f"{root / PARAMS}: no task learns from a file {files['train'].name}; `headstart init --overwrite {labelled}` "
        "replaces the settings, or add the task to them"
    )
