"""Rows with a number: the similarity of two texts, or a number for one text."""

from __future__ import annotations

import math
from collections import Counter

from components.errors import DataError
from components.settings.tasks import TaskSource
from components.tasks.data import Examples
from components.tasks.reading.records import as_text, filled, read_records, split_files
from components.tasks.reading.splits import Row, Rows, examples_of, train_of


def read_numbers(name: str, source: TaskSource, columns: tuple[str, ...], what: tuple[str, ...]) -> Examples:
    """Rows of one or more texts with a number (`score`), which is the target.

    Args:
        name: of the task.
        source: of the task.
        columns: of the texts.
        what: names of the texts in messages.

    Raises:
        DataError: a text is empty, or a score is not a number (file and line); all scores of train are equal; or as
            `examples_of`.
    """
    rows: Rows = {}
    empty: Counter[str] = Counter()
    for split, path, member in split_files(source):
        wanted = [*columns, source.score]
        for record in read_records(path, member, source, wanted, texts=len(columns), empty=empty, split=split):
            *texts, value = record.values
            fields = tuple(
                filled(text, f"the {part}", column, record.position)
                for text, part, column in zip(texts, what, columns, strict=True)
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
