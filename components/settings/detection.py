"""Formats recognised by content, without importing pyarrow: exports of annotation tools, and data sets of Hugging Face.
If the content is ambiguous, the suffix decides."""

import json
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from components.settings.formats import by_name, is_table

#: Files of a split that `save_to_disk` has written, and of a repository of a data set.
STATE: Final = "state.json"
INFO: Final = "dataset_info.json"
SPLITS: Final = "dataset_dict.json"
INFOS: Final = "dataset_infos.json"
README: Final = "README.md"
#: Bytes of a file that are read; the first record of an export is shorter.
_HEAD: Final = 1 << 20
#: Members that only Prodigy writes.
_PRODIGY: Final = {"_input_hash", "_task_hash"}


def exists(path: Path) -> bool:
    """Whether there is a file or folder, or a file of a pattern such as `train_*.txt`."""
    return path.exists() or bool(matching(path))


def matching(path: Path) -> list[Path]:
    """The files of a pattern such as `train_*.txt`."""
    return sorted(path.parent.glob(re.sub(r"\*+", "*", path.name))) if "*" in path.name else []


def detected(path: Path, *, kind: str) -> str | None:
    """The format of a file or folder by its content; None if its suffix decides.

    Args:
        kind: of the task. A list of labels is a sign of doccano in classification, but not in multilabel.
    """
    if path.is_dir():
        return "datasets" if is_saved(path) or holds_tables(path) else None
    name = path.name.lower()
    if not path.exists():
        return "datasets" if not path.suffix and files_of_split(path.parent, path.name) else None
    if name.endswith((".jsonl", ".ndjson", ".json")):
        state = path.stat()
        return _of_json(str(path), kind, state.st_size, state.st_mtime_ns)
    if name.endswith((".csv", ".parquet")) and _in_repository(path):
        return "datasets"
    return None


@lru_cache
def _of_json(path: str, kind: str, size: int, changed: int) -> str | None:
    with open(path, encoding="utf-8-sig", errors="replace") as file:  # noqa: PTH123 -- the key of the cache is a str
        head = file.read(_HEAD).lstrip()
    whole = path.lower().endswith(".json")
    if whole and not head.startswith("["):
        return None
    try:
        record, _ = json.JSONDecoder().raw_decode(head.removeprefix("[").lstrip() if whole else head)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if whole:
        full = "data" in record and ("annotations" in record or "completions" in record)
        return "label-studio" if full or {"annotation_id", "annotator"} <= record.keys() else None
    if record.keys() & _PRODIGY:
        return "prodigy"
    return "doccano" if _is_doccano(record, kind) else None


def _is_doccano(record: dict[str, Any], kind: str) -> bool:
    if not ("text" in record or "data" in record):
        return False
    if isinstance(record.get("cats"), dict):
        return True
    labels = next((record[name] for name in ("label", "labels", "entities") if name in record), None)
    if not isinstance(labels, list):
        return False
    if kind == "tagging":
        return "words" not in record and "tags" not in record
    return kind == "classification" and all(isinstance(label, str) for label in labels)


def is_saved(folder: Path) -> bool:
    """Whether a folder is a split written by `save_to_disk`."""
    return (folder / STATE).is_file()


def files_of_split(folder: Path, split: str) -> list[Path]:
    """The files of a split that is named, such as `train`, in a repository of a data set; empty if there are none.
    README.md lists them (`configs`); otherwise the split is in the name of the file or of its folder:
    `data/train-00000-of-00002.parquet`, `train.csv`, `train/part.jsonl`."""
    if re.search(r"^$|[/*?\[]", split) or not folder.is_dir():
        return []
    for config in repository_header(folder).get("configs") or []:
        entries = config.get("data_files") if isinstance(config, dict) else None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("split") == split:
                patterns = named if isinstance(named := entry.get("path", []), list) else [named]
                if matched := sorted({file for pattern in patterns for file in folder.glob(str(pattern))}):
                    return matched
    name = re.compile(rf"{re.escape(split)}(?:[-._].*)?", re.IGNORECASE)
    places = (folder, folder / "data", folder / split, folder / "data" / split)
    return sorted(
        file
        for place in places
        if place.is_dir()
        for file in place.iterdir()
        if file.is_file()
        and _is_table(file)
        and file.name not in (INFO, INFOS, STATE, SPLITS)
        and (place.name == split or name.fullmatch(file.name))
    )


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds tables, and is not a split of `save_to_disk`; parallel files have no such suffix."""
    return not is_saved(folder) and any(_is_table(file) for file in folder.iterdir())


def _is_table(file: Path) -> bool:
    form = by_name(file.name)
    return (form == "datasets" or (is_table(form) and form != "workbook")) and not file.name.startswith(".")


def _in_repository(path: Path) -> bool:
    """Whether the folder of a file, or one above it, describes a data set of Hugging Face."""
    return any((folder / INFOS).is_file() or "dataset_info" in repository_header(folder) for folder in path.parents[:2])


def repository_header(folder: Path) -> dict[str, Any]:
    """The YAML header of README.md; empty without one."""
    # What YAML cannot read, by any of its errors, is no header.
    with suppress(Exception):
        text = (folder / README).read_text(encoding="utf-8", errors="replace")
        if matched := re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", text, re.DOTALL):
            return dict(yaml.safe_load(matched.group(1)))
    return {}
