"""Rows with a number: the similarity of two texts, or a number for one text, such as a price or a number of stars.

Targets and answers are [value]. Spearman's rho is Pearson's r of the ranks (ties share their mean rank). It is not a
function of sums: rows that are scored by themselves are ranked among themselves (`Scoring.of_part`,
`components.data.scoring.intervals.spearman_without`).

The primary metric of a number for one text is the coefficient of determination, because it is a function of the squared
error, so that a model whose answers have the wrong mean or spread is not chosen; correlations ignore both.

    R^2 = 1 - sum (x - y)^2 / sum (x - mean x)^2

with the targets x and the answers y: 1 is exact, 0 is the error of the mean, and there is no lower bound.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.scoring.base import Fields, Floats, Inputs, Judged, Scoring, Vector, Vectors
from components.data.scoring.intervals import ranks_of
from components.data.tasks.data import Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import are_thousands, is_blank, is_no_number, number_of
from components.data.tasks.reading.splits import Row, Rows
from components.data.tasks.task_io import PAIR_EXAMPLES, TEXT_EXAMPLES, texts_io
from components.settings.tasks import TaskSource


def read_numbers(name: str, source: TaskSource) -> Examples:
    """Rows of one or more texts with a number (`score`), which is the target.

    Raises:
        DataError: a text is empty, or a score is not a number (file and line); all scores of train are equal; or as
            `Rows.examples`.
    """
    rows = Rows(name, source)

    def lacks(value: Any) -> bool:
        return is_blank(value) or is_no_number(value)

    for split, fields, value, origin in rows.labelled(source.score, lacks=lacks, nested=False):
        if is_blank(value):
            raise DataError(
                f"the score ({source.score!r}) is missing",
                where=origin,
                key="no_label",
                do="fill it in, remove the row, or leave such rows out ({key}: drop)",
            )
        rows.add(split, fields, value, origin)
    thousands = are_thousands(row.target for of_split in rows.values() for row in of_split)
    for split, of_split in rows.items():
        rows[split] = [replace(row, target=_score(row, source.score, thousands)) for row in of_split]
    if not rows.get("train"):
        raise rows.unusable("score", "no row has a number")
    if len({row.target for row in rows["train"]}) < 2:
        raise rows.unusable("score", f"all scores are {rows['train'][0].target:g}")
    return rows.examples(labels=[])


def _score(row: Row, column: str, thousands: bool) -> float:
    try:
        score = number_of(row.target, thousands=thousands)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"the score ({column!r}) is {row.target!r}, not a number; correct it", where=row.origin)
    return score


#: A variance below this share of the second moment counts as 0 (rounding).
NOTHING = 1e-12


class Correlations(Scoring):
    """K = 11 sums: rows; x, y, x^2, y^2, xy of the values, and the same of the ranks. Values and ranks are centred on
    all rows, which leaves correlations unchanged and keeps the sums small."""

    width = 11
    constant_name, score_name = "mean value", "predicted value"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return f"{target[0]:.4g}"

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        size = abs(float(answer[0]) - float(target[0]))
        return self.compared(fields, target, answer, size) if size > 0 else None

    def described(self, answer: Vector) -> tuple[int, float]:
        return -1, float(answer[0])

    def named(self, target: Vector) -> tuple[str, ...]:
        return (f"{target[0]:.1g}",)

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        count = len(targets)
        pair = np.array([[value[0] for value in values] for values in (targets, answers)], dtype=np.float64)
        return sparse.csr_array(np.column_stack([np.ones(count), _products(pair), _products(ranks_of(pair))]))

    def of_part(self, statistics: sparse.csr_array) -> sparse.csr_array:
        columns = statistics.toarray()
        columns[:, 6:11] = _products(ranks_of(columns[:, 1:3].T))
        return sparse.csr_array(columns)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        n = sums[..., 0]
        return {"spearman": _correlation(n, sums[..., 6:11]), "pearson": _correlation(n, sums[..., 1:6])}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        return [np.asarray([np.mean([target[0] for target in targets])], dtype=np.float32)] * len(targets)


@dataclass(frozen=True)
class Similarity(Correlations):
    """Similarity, scored by correlations alone."""

    names = ("spearman", "pearson")


@dataclass(frozen=True)
class Regression(Correlations):
    """K = 13 sums: the sums of `Correlations`, then |x - y| and (x - y)^2."""

    names = ("r2", "pearson", "spearman", "mae")
    width = Correlations.width + 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        x, y = (np.asarray([value[0] for value in values], dtype=np.float64) for values in (targets, answers))
        errors = np.stack([abs(x - y), (x - y) ** 2], axis=1)
        return sparse.csr_array(sparse.hstack([super().statistics(fields, targets, answers), errors]))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """R^2 and correlations, 0 if the targets are equal; mean absolute error."""
        n, x, xx = sums[..., 0], sums[..., 1], sums[..., 3]
        spread = xx - x * x / n
        varies = spread > NOTHING * xx
        explained = np.where(varies, 1 - sums[..., 12] / np.where(varies, spread, 1), 0)
        metrics = {**super().scores(sums), "r2": explained, "mae": sums[..., 11] / n}
        return {name: metrics[name] for name in self.names}


def _products(pair: Floats) -> Floats:
    """(2, N) -> (N, 5): a, b, a^2, b^2, ab of the centred values."""
    a, b = pair - pair.mean(1, keepdims=True)
    return np.stack([a, b, a * a, b * b, a * b], axis=1)


def _correlation(n: Floats, sums: Floats) -> Floats:
    """Pearson's r from n and sums (..., 5) of x, y, x^2, y^2, xy."""
    x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    varies = (spread_x > NOTHING * n * xx) & (spread_y > NOTHING * n * yy)
    below = np.sqrt(np.where(varies, spread_x * spread_y, 1))
    return np.clip(np.where(varies, (n * xy - x * y) / below, 0), -1, 1)


SIMILARITY, REGRESSION = (
    Kind(
        read=read_numbers,
        io=texts_io(
            examples,
            {"prediction": "number"},
            {"value": "number"},
            lambda fields, answer, labels: dict.fromkeys(("prediction", "value"), float(answer[0])),
        ),
        scoring=scoring,
    )
    for examples, scoring in ((PAIR_EXAMPLES, lambda _: Similarity()), (TEXT_EXAMPLES, lambda _: Regression()))
)
