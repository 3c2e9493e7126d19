"""The choice of one of several candidates by their predictions of rows that they have not learned from.

The best of several scores is often the best by chance. Therefore the simplest candidate is chosen whose score is within
one standard error of the best one (Breiman et al. 1984, "Classification and regression trees", section 3.4.3). The
standard error of the difference on the same rows comes from a jackknife over units (`Split.units`).

The score of the chosen candidate on the rows by which it was chosen is still too high. The score of `Choice.answers` is
honest: the rows of each fold are answered by the candidate that was chosen on the other folds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.data.scoring import Scoring
from components.data.scoring.base import Vectors
from components.data.scoring.intervals import left_out
from components.data.tasks.data import Answer, Labels, Split

#: Maximum number of parts of a jackknife; of more units, several are left out together.
MOST_PARTS: Final = 500


@dataclass(frozen=True)
class Choice:
    """A chosen candidate.

    Attributes:
        by_fold: fold -> index of the candidate that is chosen without its rows; empty without folds.
        answers: N answers, to the rows of each fold by the candidate of `by_fold`; without folds by the chosen one.
    """

    index: int
    by_fold: dict[int, int]
    answers: list[Answer]


def choose(
    scoring: Scoring,
    rows: Split,
    candidates: Sequence[Vectors],
    *,
    folds: NDArray[np.int64] | None = None,
) -> Choice:
    """The first candidate that is not worse than the best one by more than one standard error.

    Args:
        candidates: for each candidate N answers of models that have not learned from the rows; the simplest first.
        folds: (N,) fold of each row; None: one choice on all rows.
    """
    by_fold: dict[int, int] = {}
    if len(candidates) == 1:
        index, by_fold = 0, dict.fromkeys([] if folds is None else np.unique(folds).tolist(), 0)
    else:
        statistics = [scoring.statistics(rows.fields, rows.targets, answers) for answers in candidates]
        index = _first(scoring, statistics, rows.units)
        for fold in [] if folds is None else np.unique(folds).tolist():
            others = np.flatnonzero(folds != fold)
            by_fold[fold] = _first(
                scoring, [scoring.of_part(matrix[others]) for matrix in statistics], rows.units[others]
            )
    of_row = [index] * len(rows) if folds is None else [by_fold[fold] for fold in folds.tolist()]
    return Choice(index, by_fold, [np.asarray(candidates[number][row]) for row, number in enumerate(of_row)])


def _first(scoring: Scoring, statistics: Sequence[Any], units: Labels) -> int:
    """Index of the first candidate within one standard error of the best."""
    numbers = np.unique(units, return_inverse=True)[1] % MOST_PARTS
    scores = [float(scoring.scores(matrix.sum(0))[scoring.main]) for matrix in statistics]
    best = int(np.argmax(scores))
    without = left_out(statistics[best], numbers, scoring.scores)[scoring.main] if best else np.zeros(0)
    for index, matrix in enumerate(statistics[:best]):
        differences = without - left_out(matrix, numbers, scoring.scores)[scoring.main]
        error = np.sqrt((len(without) - 1) * differences.var())
        if scores[best] - scores[index] <= error:
            return index
    return best
