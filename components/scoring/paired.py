"""Comparison of two systems on the same rows, as far as a choice within a label budget needs it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from components.scoring.base import Inputs, Scoring, Vectors
from components.scoring.intervals import Ints, left_out, sampling_variance, sizes_of


def is_worse(
    scoring: Scoring,
    inputs: Inputs,
    targets: Vectors,
    answers: Vectors,
    than: Vectors,
    *,
    clusters: Ints | None = None,
) -> bool:
    """Whether the primary metric of answers is lower than that of others by more than one standard error of the
    difference (`components.scoring.intervals`).

    Args:
        scoring: of the task.
        inputs: N rows.
        targets: of the rows.
        answers: of the one system.
        than: of the other.
        clusters: (N,) number of each row's cluster, from 0; None: rows are independent.
    """
    main = scoring.main
    statistics = [scoring.statistics(inputs, targets, found) for found in (answers, than)]
    ours, theirs = (left_out(rows, clusters, scoring.scores)[main] for rows in statistics)
    first, second = (float(scoring.scores(rows.sum(0))[main]) for rows in statistics)
    return second - first > math.sqrt(sampling_variance(theirs - ours, sizes_of(clusters, len(targets))).value)


def choose(
    scoring: Scoring,
    inputs: Inputs,
    targets: Vectors,
    systems: Sequence[Vectors],
    *,
    preferred: Collection[int] = (),
    clusters: Ints | None = None,
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
        clusters: (N,) number of each row's cluster, from 0; None: rows are independent.
    """
    scores = [scoring.score(inputs, targets, answers)[scoring.main] for answers in systems]
    best = max(range(len(systems)), key=scores.__getitem__)
    ours = max(sorted(preferred), key=scores.__getitem__, default=best)
    worse = is_worse(scoring, inputs, targets, systems[ours], systems[best], clusters=clusters)
    return best if worse else ours
