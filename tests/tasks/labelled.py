"""Writing and reading of small labelled files."""

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


def targets(split: Split) -> list[list[float]]:
    return [target.tolist() for target in split.targets]
