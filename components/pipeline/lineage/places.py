"""All files below a repository that can hold a document, by how it is removed from them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from components.core.data_version import as_read, read_yaml
from components.core.errors import DataError
from components.data.matching import Texts, file_holds
from components.registry.drift.traffic import TEXT_SUFFIX, read_texts
from components.settings.params import Params

#: Folders without data of the project.
SKIPPED = {".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "node_modules"}
#: Output folders below the run's folder whose content is made from documents: they are removed as a whole and made
#: again by a retraining.
DERIVED = (
    "domain-texts",
    "corpus",
    "examples",
    "tokenizer",
    "tokens",
    "task-tokens",
    "encoder",
    "unlabelled",
    "distilled",
    "finetuned",
    "together",
)


def walk(root: Path, *, without: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All files below a folder outside of `SKIPPED` folders; links are not followed."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if name not in SKIPPED and here / name not in without)
        for name in sorted(files):
            path = here / name
            if path.is_file() and not path.is_symlink():
                yield path


def data_folders(params: Params, root: Path) -> list[Path]:
    """`data/` and the folders of raw data that the settings name outside of it, as far as they exist."""
    corpora = (params.data.general, params.data.domain, *params.data.unlabelled)
    named = [source.path for source in corpora if source is not None]
    named += [source.path for source in params.data.parallel.values()]
    named += [source.path for source in params.data.tasks.values()]
    places: list[Path] = []
    for path in [root / "data", *((root / name) for name in named)]:
        if path.exists() and not any(path.is_relative_to(other) for other in places):
            places.append(path)
    return places


def raw_holders(params: Params, texts: Texts, *, root: Path) -> list[Path]:
    """The raw files that hold one of the texts."""
    return [
        path
        for folder in data_folders(params, root)
        for path in ([folder] if folder.is_file() else walk(folder))
        if holds(path, texts)
    ]


def holds(path: Path, texts: Texts) -> bool:
    """Whether a file holds one of the texts.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        return file_holds(path, texts)
    except FileNotFoundError:
        return False  # removed meanwhile
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be searched ({error}); repair or remove the file") from error


def tracked_by_git(root: Path) -> set[Path]:
    """The files that git tracks; empty outside of a git repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return set()
    return {root / name for name in done.stdout.decode().split("\0") if name}


def derived_outputs(changed: list[Path], *, root: Path) -> list[Path]:
    """The outputs that DVC's stages, also of experiments, have made from changed files, directly or by way of
    other outputs, as far as they exist and hold data or weights (`DERIVED`).

    Args:
        changed: raw files or outputs.
        root: of the repository.
    """
    base = root.resolve()
    affected = [path.resolve() for path in changed]
    places: dict[Path, None] = {}
    stages = [
        as_read(name, stage, root)
        for lock in [root / "dvc.lock", *sorted(root.glob("experiments/*/dvc.lock"))]
        for name, stage in ((read_yaml(lock) or {}).get("stages") or {}).items()
    ]
    again = True
    while again:
        again = False
        for stage in stages:
            read = [(root / entry["path"]).resolve() for entry in stage.get("deps", [])]
            if not any(_overlap(other_path, other) for other_path in read for other in affected):
                continue
            for entry in stage.get("outs", []):
                out = (root / entry["path"]).resolve()
                if out in places or not out.is_relative_to(base) or not {*out.relative_to(base).parts} & {*DERIVED}:
                    continue
                places[out] = None
                affected.append(out)
                again = True
    return sorted(path for path in places if path.exists())


def output_of(path: Path, params: Params, *, root: Path) -> Path | None:
    """The output directory of a stage that contains a file of the run's folder: the highest one with a manifest."""
    out = (root / params.run.out).resolve()
    if not path.resolve().is_relative_to(out):
        return None
    for parent in reversed(path.resolve().relative_to(out).parents[:-1]):
        if (out / parent / "manifest.json").is_file():
            return out / parent
    return None


def served_texts(folder: Path, texts: Texts) -> list[Path]:
    """The files of texts in the traffic log that hold one of the texts, or the beginning of it that is logged. A line
    belongs to a row, so such a file is removed as a whole; the numbers of its rows stay."""
    return [path for path in sorted(folder.rglob(f"*{TEXT_SUFFIX}")) if any(map(texts.begun_by, read_texts(path)))]


def _overlap(other_path: Path, other: Path) -> bool:
    return other_path == other or other_path in other.parents or other in other_path.parents
