"""Rows with a number: the similarity of two texts, or a number for one text, such as a price or a number of stars."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from components.core.errors import DataError
from components.data.scoring.numbers import Regression, Similarity
from components.data.tasks.data import Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import (
    all_records,
    are_thousands,
    is_blank,
    is_no_number,
    number_of,
)
from components.data.tasks.reading.splits import Row, Rows, examples_of, train_of, with_labels
from components.data.tasks.task_io import PAIR_EXAMPLES, TEXT_EXAMPLES, number_io
from components.settings.tasks import TaskSource


def read_numbers(name: str, source: TaskSource) -> Examples:
    """Rows of one or more texts with a number (`score`), which is the target.

    Raises:
        DataError: a text is empty, or a score is not a number (file and line); all scores of train are equal; or as
            `examples_of`.
    """
    rows: Rows = {}
    counts: Counter[str] = Counter()
    unlabelled: list[Row] = []
    records = all_records(source, [*source.texts, source.score], counts, texts=len(source.texts))

    def lacks(value: Any) -> bool:
        return is_blank(value) or is_no_number(value)

    for split, fields, value, origin in with_labels(records, source, source.texts, counts, unlabelled, lacks=lacks):
        if is_blank(value):
            raise DataError(
                f"the score ({source.score!r}) is missing",
                where=origin,
                key="no_label",
                do="fill it in, remove the row, or leave such rows out ({key}: drop)",
            )
        rows.setdefault(split, []).append(Row(fields, value, origin))
    thousands = are_thousands(row.target for of_split in rows.values() for row in of_split)
    for split, of_split in rows.items():
        rows[split] = [replace(row, target=_score(row, source.score, thousands)) for row in of_split]
    if not rows.get("train"):
        raise DataError("no row has a number", where=train_of(source), key=f"data.tasks.{name}.score", do="check {key}")
    if len({row.target for row in rows["train"]}) < 2:
        raise DataError(
            f"all scores are {rows['train'][0].target:g}",
            where=train_of(source),
            key=f"data.tasks.{name}.score",
            do="check {key}",
        )
    return examples_of(
        name, source, rows, labels=[], target=lambda row: (row.target,), counts=counts, unlabelled=unlabelled
    )


def _score(row: Row, column: str, thousands: bool) -> float:
    try:
        score = number_of(row.target, thousands=thousands)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"the score ({column!r}) is {row.target!r}, not a number; correct it", where=row.origin)
    return score


SIMILARITY = Kind(
    read=read_numbers,
    io=number_io(["first", "second"], PAIR_EXAMPLES),
    scoring=lambda _: Similarity(),
)

REGRESSION = Kind(
    read=read_numbers,
    io=number_io(["text"], TEXT_EXAMPLES),
    scoring=lambda _: Regression(),
)
