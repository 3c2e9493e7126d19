"""Which files of a task are its splits: by the names of files, of folders, or of the members of a JSON document."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from components.core.errors import DataError
from components.data.formats.jsontables import parse_json
from components.data.formats.kinds import form_of
from components.data.formats.layouts import lists_in
from components.data.formats.lines import NO_DATA, Reading
from components.data.formats.workbook import sheet_names
from components.data.understanding import SPLITS
from components.settings.formats import by_name


def split_files(path: Path) -> dict[str, Path]:
    """Split -> file, of a labelled file or a folder; FILE#MEMBER for a JSON document with lists of rows by split, a
    folder where the splits are folders or the folder has one for each class, and a pattern for parallel files.

    Raises:
        DataError: there is no such file, or a folder has several files of which none is called train.
    """
    if path.is_file():
        return _members(path) or {"train": path}
    if Path(str(path).partition("#")[0]).is_file():
        return {"train": path}
    if not path.is_dir():
        raise DataError(
            f"{path}: does not exist; name a labelled file (csv, tsv, jsonl, json, parquet, conll) or a folder"
        )
    entries = [entry for entry in sorted(path.iterdir()) if not NO_DATA.search(entry.name)]
    files = [entry for entry in entries if entry.is_file()]
    if folders := _named(entry for entry in entries if entry.is_dir()):
        return folders
    by_split: dict[str, list[Path]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", file.name.lower())
        words += [word for name in words for group in SPLITS.values() for word in group[:1] if name.endswith(word)]
        split = next((split for split, names in SPLITS.items() if {*names} & {*words}), None)
        if split is not None:
            by_split.setdefault(split, []).append(file)
    if "train" not in by_split and len(files) == 1:
        return _members(files[0]) or {"train": files[0]}
    if "train" not in by_split:
        tables = [file.name for file in files if by_name(file.name)]
        if tables:
            listed = ", ".join(tables[:5])
            raise DataError(
                f"{path}: no file is called train ({listed}); name the labelled file itself, or rename it; tables of "
                "one class each need a column of the class"
            )
        pattern = _pattern(files)
        return {"train": path if pattern is None or form_of(path) == "classes" else path / pattern}
    patterns = {split: _pattern(names) for split, names in by_split.items()}
    if all(patterns.values()):
        return {split: path / str(patterns[split]) for split in SPLITS if split in patterns}
    twice = {split: names for split, names in by_split.items() if len(names) > 1}
    for split, several in twice.items():
        listed = ", ".join(file.name for file in several)
        raise DataError(f"{path}: several files may be {split} ({listed}); name one file, or keep one of them")
    return {split: by_split[split][0] for split in SPLITS if split in by_split}


def _pattern(files: Sequence[Path]) -> str | None:
    """The pattern of the names of parallel files: `train_*.txt` of `train_text.txt` and `train_labels.txt`."""
    names = [file.name for file in files]
    before = re.sub(r"[a-zA-Z0-9]+$", "", _common_start(names))
    after = re.sub(r"^[a-zA-Z0-9]+", "", _common_start([name[::-1] for name in names])[::-1])
    tables = any(by_name(file.name) for file in files)
    return None if len(names) < 2 or tables or not before else f"{before}*{after}"


def _common_start(names: Sequence[str]) -> str:
    return "".join(letters[0] for letters in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False)))


def _members(path: Path) -> dict[str, Path]:
    """Split -> FILE#MEMBER; empty if the file has no member, or sheet, called train."""
    form = form_of(path) if by_name(path.name) in ("json", "workbook") else ""
    members = (
        dict(lists_in(parse_json(path, Reading())))
        if form == "json"
        else sheet_names(path)
        if form == "workbook"
        else ()
    )
    return _named(path.with_name(f"{path.name}#{member}") for member in members)


def _named(paths: Iterable[Path]) -> dict[str, Path]:
    """Split -> path whose name, or member, is one of the split's words; empty without train."""
    names = {path.name.rpartition("#")[2].lower(): path for path in paths}
    by_split = {split: next((names[word] for word in words if word in names), None) for split, words in SPLITS.items()}
    return {split: path for split, path in by_split.items() if path is not None} if by_split["train"] else {}
