"""Comparison of two systems on the same rows, as far as a choice within a label budget needs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from components.scoring.base import Inputs, Scoring, Vectors, resampled

#: Bootstrap resamples of a standard error.
RESAMPLES = 400


def is_worse(scoring: Scoring, inputs: Inputs, targets: Vectors, answers: Vectors, than: Vectors) -> bool:
    """Whether the primary metric of answers is lower than that of others by more than one standard error of the
    difference, from bootstrap resamples of the rows.

    Args:
        scoring: of the task.
        inputs: N rows.
        targets: of the rows.
        answers: of the one system.
        than: of the other.
    """
    statistics = [scoring.statistics(inputs, targets, found) for found in (answers, than)]
    ours, theirs = (scoring.scores(sums)[scoring.main] for sums in resampled(statistics, resamples=RESAMPLES))
    first, second = (scoring.score(inputs, targets, found)[scoring.main] for found in (answers, than))
    return bool(second - first > np.std(theirs - ours, ddof=1))


def choose(
    scoring: Scoring, inputs: Inputs, targets: Vectors, systems: Sequence[Vectors], *, preferred: Collection[int] = ()
) -> int:
    """Index of the system to use, by its predictions of rows that it has not learned from.

    With few rows the best of several scores is often the best by chance. Therefore a preferred system is used unless
    it is worse than the best one by more than one standard error; the best of the preferred ones, the first at a tie.

    Args:
        scoring: of the task.
        inputs: N rows.
        targets: of the rows.
        systems: predictions of each system, the cheapest first.
        preferred: indices of systems that are expected to be better than the others, as those of an imported encoder.
    """
    scores = [scoring.score(inputs, targets, answers)[scoring.main] for answers in systems]
    best = max(range(len(systems)), key=scores.__getitem__)
    ours = max(sorted(preferred), key=scores.__getitem__, default=best)
    return best if is_worse(scoring, inputs, targets, systems[ours], systems[best]) else ours
