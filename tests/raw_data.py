"""A few lines of raw data in the places that the shipped params.yaml names."""

import json
from pathlib import Path
from typing import Any


def write_raw_data(root: Path) -> None:
    """Write both corpora and the task aws-type, with different texts in every file, below `root`/data."""
    for corpus in ("general", "domain/aws"):
        rows = [{"text": f"the {corpus} text has the number {number}"} for number in range(300)]
        _write(root / "data" / corpus / "a.jsonl", rows)
    for split in ("train", "dev", "test"):
        labelled = [(number, label) for number in range(30) for label in ("one", "two")]
        rows = [
            {"text": f"{split} text {number} of {label}", "label": label, "service": "s"} for number, label in labelled
        ]
        _write(root / f"data/tasks/aws-type/{split}.jsonl", rows)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
