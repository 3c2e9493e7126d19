"""Similarity of two texts: a number, learned by regression."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from components.errors import DataError
from components.scoring.similarity import Similarity
from components.settings.tasks import TaskSource
from components.tasks.data import Answer, Examples, Fields
from components.tasks.kind import Kind
from components.tasks.reading.records import as_text, filled, read_records, split_files
from components.tasks.reading.splits import Row, Rows, examples_of, train_of
from components.tasks.task_io import PAIR_EXAMPLES, TaskIO, parse_texts

_SIDES = ("first text", "second text")


def read_similarities(name: str, source: TaskSource) -> Examples:
    """Columns `first`, `second` and `score`; a target is the score.

    Raises:
        DataError: a text of a pair is empty, or a score is not a number (file and line); all scores of train are equal;
            or as `examples_of`.
    """
    rows: Rows = {}
    empty: Counter[str] = Counter()
    for split, path, member in split_files(source):
        columns = [source.first, source.second, source.score]
        for record in read_records(path, member, source, columns, texts=2, empty=empty, split=split):
            *texts, value = record.values
            fields = tuple(
                filled(text, f"the {side}", column, record.position)
                for text, side, column in zip(texts, _SIDES, (source.first, source.second), strict=True)
            )
            try:
                score = float(as_text(value, record.position) or "")
            except ValueError:
                score = math.nan
            if not math.isfinite(score):
                raise DataError(
                    f"{record.position}: the score ({source.score!r}) is {value!r}, not a number; correct it"
                )
            rows.setdefault(split, []).append(
                Row(fields, score, record.slice, record.id, record.position, record.group)
            )
    if len({row.target for row in rows["train"]}) < 2:
        raise DataError(
            f"{train_of(source)}: all scores are {rows['train'][0].target:g}; check data.tasks.{name}.score"
        )
    return examples_of(name, source, rows, labels=[], target=lambda row: (row.target,), counts=empty)


def format_value(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """The number."""
    return {"prediction": float(answer[0]), "value": float(answer[0])}


KIND = Kind(
    read=read_similarities,
    io=TaskIO(
        inputs={"first": "text", "second": "text"},
        columns={"prediction": "number"},
        outputs={"value": "number"},
        parse=parse_texts("first", "second"),
        format=format_value,
        examples=PAIR_EXAMPLES,
    ),
    scoring=lambda *_: Similarity(),
)
