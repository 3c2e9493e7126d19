"""A classifier of texts by their length, and files of rows that it predicts."""

import csv
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.tasks.data import Fields
from components.learners.prediction import Classifier, Predicted
from components.serving.parts import LoadableModel, PartOptions, predict_parts
from components.settings.cluster import ClusterSettings


class ByLength:
    """Predicts "short" with confidence 0.75 for texts of up to three characters, "long" with 1.0 for others; a batch
    takes `seconds`."""

    labels = ("short", "long")

    def __init__(self, kind: str = "classification", *, seconds: float = 0) -> None:
        self.kind, self.seconds = kind, seconds
        self.batches: list[list[str]] = []

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        self.batches.append([text for (text,) in rows])
        time.sleep(self.seconds)
        return [np.array([0.75, 0.25] if len(text) <= 3 else [0.0, 1.0], dtype=np.float32) for (text,) in rows]


def names(folder: Path) -> list[str]:
    """The files of a folder without the records of outputs."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".manifest.json"))


def predict_file(
    source: Path, *, output: Path, classifier: Classifier, progress: Callable[[int], None] | None = None, **more: Any
) -> Predicted:
    """`predict_parts` in this process; an earlier output is replaced."""
    options = PartOptions(
        ClusterSettings(),
        workers=1,
        overwrite=True,
        started=lambda rows, done, parts: progress or (lambda rows: None),
        **more,
    )
    return predict_parts(source, output, model=LoadableModel(lambda: classifier, classifier.kind, ""), options=options)


def refused(source: Path, output: Path, message: str, *, error: type[Exception] = DataError, **more: Any) -> None:
    """`predict_file` raises this error."""
    with pytest.raises(error, match=message):
        predict_file(source, output=output, **{"classifier": ByLength()} | more)


ROWS = [
    {"id": 1, "text": "abc"},
    {"id": 2, "text": "with, a comma\nand a line"},
    {"id": 3, "text": ""},
    {"id": 4, "text": "ไทย"},
    {"id": 5, "text": "  \t"},
]
#: In a tsv every line is a row, and quotes have no special meaning.
TSV_ROWS = [{**row, "text": {2: '"Good", he said', 5: "  "}.get(row["id"], row["text"])} for row in ROWS]
PREDICTIONS = ["short", "long", None, "short", None]
CONFIDENCES = [0.75, 1.0, None, 0.75, None]


def write(path: Path, rows: list[dict] = ROWS) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".tsv":
        path.write_text("id\ttext\n" + "".join(f"{row['id']}\t{row['text']}\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text"])
            writer.writeheader()
            writer.writerows(rows)
    return path


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".tsv":
        header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
        return [dict(zip(header, line, strict=True)) for line in lines]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
