"""The choice of one of several candidates by their predictions of rows that they have not learned from: dev, or each
fold of a cross-validation within the rows of a label budget (`data.tasks.<name>.selection`).

The best of several scores is often the best by chance. Therefore the simplest candidate is chosen whose score is within
one standard error of the best one (Breiman et al. 1984, "Classification and regression trees", section 3.4.3). The
standard error of the difference on the same rows comes from a jackknife over units (`Split.units`).

The score of the chosen candidate on the rows by which it was chosen is still too high. The score of the answers of
`choose` is honest: the rows of each fold are answered by the candidate that was chosen on the other folds.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from components.core.clock import check_time
from components.data.scoring import Scoring
from components.data.scoring.base import Vectors
from components.data.scoring.intervals import left_out
from components.data.tasks.calibration import calibrated
from components.data.tasks.data import Answer, Labels, Split
from components.learners.base import Fitted, Learner, Rows

Option = TypeVar("Option", bound=Hashable)
#: Training rows from which one fold alone chooses: it has enough rows to tell the candidates apart.
MANY_ROWS: Final = 2000
#: Maximum number of parts of a jackknife; of more units, several are left out together.
MOST_PARTS: Final = 500


def choose(
    scoring: Scoring,
    rows: Split,
    candidates: Mapping[Option, Vectors],
    *,
    folds: NDArray[np.int64] | None = None,
    errors: float = 1,
) -> tuple[dict[int | None, Option], list[Answer]]:
    """The first candidate that is not worse than the best one by more than `errors` standard errors; with 0 the best.

    Args:
        candidates: for each candidate N answers of models that have not learned from the rows; the simplest first.
        folds: (N,) fold of each row; None: one choice on all rows.

    Returns:
        Fold -> the candidate that is chosen without its rows; None -> the one that is chosen on all rows. And N
        answers, to the rows of each fold by its candidate; without folds by the chosen one.
    """
    options = list(candidates)
    statistics = [scoring.statistics(rows.fields, rows.targets, answers) for answers in candidates.values()]
    chosen: dict[int | None, Option] = {None: options[_first(scoring, statistics, rows.units, errors)]}
    for fold in [] if folds is None else np.unique(folds).tolist():
        others = np.flatnonzero(folds != fold)
        of_others = [scoring.of_part(matrix[others]) for matrix in statistics]
        chosen[fold] = options[_first(scoring, of_others, rows.units[others], errors)]
    of_rows = [None] * len(rows) if folds is None else folds.tolist()
    return chosen, [np.asarray(candidates[chosen[fold]][row]) for row, fold in enumerate(of_rows)]


def choose_of(
    rows: Rows, candidates: Mapping[Option, Vectors], *, errors: float = 1
) -> tuple[dict[int | None, Option], list[Answer]]:
    """The choice of one of several answers to the judged rows of a run."""
    return choose(rows.scoring, rows.judged[1], candidates, folds=rows.folds, errors=errors)


def select(
    rows: Rows,
    parts: Sequence[Mapping[Option, Sequence[Answer]]],
    *,
    calibrate: Callable[[list[Answer]], list[Answer]] = list,
    errors: float = 1,
) -> tuple[dict[Option, list[Answer]], dict[int | None, Option], list[Answer]]:
    """Choose one of several settings of a learner.

    Args:
        parts: for each fold, or for dev, setting -> answers to its rows by the learner without them; in the first one
            the preferred settings come first.
        calibrate: answers to the judged rows -> those with a parameter that is fitted to them.
        errors: as of `choose`.

    Returns:
        Setting -> answers to the judged rows, of all folds together and calibrated; and the result of `choose`.
    """
    pooled = {
        option: calibrate(
            list(parts[0][option]) if rows.folds is None else rows.joined([part[option] for part in parts])
        )
        for option in parts[0]
    }
    return pooled, *choose_of(rows, pooled, errors=errors)


def _first(scoring: Scoring, statistics: Sequence[Any], units: Labels, errors: float) -> int:
    """Index of the first candidate within so many standard errors of the best."""
    numbers = np.unique(units, return_inverse=True)[1] % MOST_PARTS
    scores = [float(scoring.scores(matrix.sum(0))[scoring.main]) for matrix in statistics]
    best = int(np.argmax(scores))
    if not errors:
        return best
    without = left_out(statistics[best], numbers, scoring.scores)[scoring.main] if best else np.zeros(0)
    for index, matrix in enumerate(statistics[:best]):
        differences = without - left_out(matrix, numbers, scoring.scores)[scoring.main]
        error = np.sqrt((len(without) - 1) * differences.var())
        if scores[best] - scores[index] <= errors * error:
            return index
    return best


@dataclass(frozen=True)
class Predictions:
    """Result of a system.

    Attributes:
        rows: that it has learned from.
        record: entries of the results.
        answers: split -> one answer per row: `test`, and `dev` or, with cross-validation, OUT_OF_FOLD; the latter by
            the candidates that were chosen without the row's fold.
        model: the chosen candidate, fitted on all training rows.
    """

    rows: Rows
    answers: dict[str, list[Answer]]
    scores: dict[str, float]
    record: dict[str, Any]
    model: Fitted

    @property
    def held_out(self) -> tuple[Vectors, Vectors]:
        """The targets of the judged rows, and the answers to them."""
        name, judged = self.rows.judged
        return judged.targets, self.answers[name]


def predict(learner: Learner, rows: Rows) -> Predictions:
    """Choose the hyper-parameter of a system, fit it on all training rows, and predict.

    It is chosen on dev or, with folds, by the pooled answers to the rows of each fold by models that were fitted
    without the fold. Of more than MANY_ROWS rows, the first fold alone chooses, and only the chosen candidate is fitted
    for the others. The same answers give the temperature of probabilities of labels.

    Raises:
        OutOfTimeError: the limit of time has passed (`components.core.clock`).
    """
    (name, judged), result, parts = rows.judged, learner(rows), list[dict[int, list[Answer]]]()
    left: Sequence[int] = range(len(result))
    for part in [rows] if rows.folds is None else map(rows.without, rows.fold_numbers):
        fitted, held, answers = result if part is rows else learner(part), part.held_out, {}
        for number in left:
            check_time()
            answers[number] = fitted[number].model.answers(held.fields)
        if not parts and len(left) > 1 and len(judged) > MANY_ROWS:
            left = [choose(rows.scoring, held, answers)[0][None]]
            answers = {left[0]: answers[left[0]]}
        parts.append(answers)
    _, by_fold, chosen = select(rows, parts)
    best = result[by_fold[None]]
    model, details = best.model, dict(best.details)
    # Of systems with probabilities.
    if rows.scoring.shares and (tempered := getattr(model, "tempered", None)):
        temperature, chosen = calibrated(rows.scoring, judged.targets, chosen, folds=rows.folds)
        model, details = tempered(temperature), details | {"temperature": temperature}
    predicted = {name: chosen, "test": model.answers(rows.test.fields)}
    return Predictions(rows, predicted, rows.score(chosen), details, model)
