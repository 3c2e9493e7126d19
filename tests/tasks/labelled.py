"""Writing and reading of small labelled files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.data.tasks.data import Examples, Split
from components.data.tasks.kinds import KINDS
from components.settings.tasks import TaskSource


def read(kind: str, folder: Path, **source: Any) -> Examples:
    return KINDS[kind].read("things", TaskSource(path=str(folder), kind=kind, **source))


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def three(folder: Path, *rows: dict[str, Any]) -> None:
    """The same rows as train, dev and test, so that the data contain only the error of the test."""
    for split in ("train", "dev", "test"):
        jsonl(folder / f"{split}.jsonl", *rows)


def targets(split: Split) -> list[list[float]]:
    return [target.tolist() for target in split.targets]
