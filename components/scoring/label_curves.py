"""How much more labels are expected to bring: a label curve extrapolated by a power law.

Scores of models follow s(n) = a - b n^-c in the number of labels n (Figueroa et al. 2012, "Predicting sample size
required for classification performance"; Hestness et al. 2017, "Deep learning scaling is predictable, empirically").
a, b and c are fitted by least squares to the means over seeds. The interval is a parametric bootstrap: the means are
drawn again from a multivariate Student's t distribution, whose covariance is estimated from the seeds. Budgets are
correlated, because larger ones contain the smaller ones. Each drawn gain also gets a relative error of the law itself
(`MODEL_ERROR`). Without it the intervals are too narrow.

Shapes: K budgets, S seeds, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Exponents that are tried.
EXPONENTS: Final = np.geomspace(0.1, 1.5, 25)
#: Number of budgets and of seeds that an answer needs.
BUDGETS, SEEDS = 3, 2
#: The curve is not extended beyond this multiple of its largest budget.
FURTHEST: Final = 4.0
#: Relative standard deviation of the error of the law itself, beside the noise of the means; chosen on curves of SST-2
#: and TREC (docs/labelling.md).
MODEL_ERROR: Final = 0.4
#: Share of the resamples that have to rise with the number of labels.
RISING: Final = 0.9
RESAMPLES: Final = 1000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """Expected gain of further labels.

    Attributes:
        labels: of the largest budget.
        more: further labels.
        gain, low, high: of the score, with the bounds of the interval; None: the curve does not support an answer.
        reason: why not; empty if it does.
    """

    labels: float
    more: float
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def expected_gain(
    labels: Sequence[float],
    scores: Sequence[Sequence[float]],
    *,
    more: float,
    top: float = 1.0,
    confidence: float = 0.95,
) -> Gain:
    """The gain of `more` labels over the largest budget.

    Args:
        labels: K numbers of labels, ascending.
        scores: K times S scores; the same seeds in the same order. Higher is better.
        more: further labels.
        top: largest possible score.
        confidence: level of the interval.
    """
    sizes = np.asarray(labels, dtype=np.float64)
    most = float(sizes[-1]) if len(sizes) else 0.0
    counts = {len(row) for row in scores}
    if len(set(labels)) < BUDGETS:
        return Gain(most, more, reason=f"label budgets measured: {len(set(labels))}, needed: {BUDGETS}")
    if len(counts) > 1 or min(counts) < SEEDS:
        return Gain(most, more, reason=f"every budget needs the same seeds, at least {SEEDS}")
    if most + more > FURTHEST * most:
        limit = f"{(FURTHEST - 1) * most:g}"
        return Gain(most, more, reason=f"the curve reaches {most:g} labels and is extended by {limit} at most")
    values = np.asarray(scores, dtype=np.float64)
    means, seeds = values.mean(axis=1), values.shape[1]
    rng = np.random.default_rng(0)
    freedom = len(sizes) * (seeds - 1)
    noise = rng.standard_normal((RESAMPLES, seeds)) @ (values - means[:, None]).T / np.sqrt(seeds * (seeds - 1))
    drawn = means + noise * np.sqrt(freedom / rng.chisquare(freedom, (RESAMPLES, 1)))
    _, slopes, exponents = fit_power(sizes, np.vstack([means, drawn]), top=top)
    gains = slopes * (most**-exponents - (most + more) ** -exponents)
    rising = float((slopes[1:] > 0).mean())
    if slopes[0] <= 0 or rising < RISING:
        return Gain(most, more, reason=f"the scores do not rise with the labels in {1 - rising:.0%} of the resamples")
    gains[1:] *= 1 + MODEL_ERROR * rng.standard_normal(RESAMPLES)
    low, high = np.quantile(gains[1:], [(1 - confidence) / 2, (1 + confidence) / 2])
    return Gain(most, more, float(gains[0]), float(low), float(high))


def fit_power(sizes: Floats, scores: Floats, *, top: float) -> tuple[Floats, Floats, Floats]:
    """a <= top, b and c of s(n) = a - b n^-c by least squares.

    Args:
        sizes: (K,) numbers of labels.
        scores: (R, K) curves.
        top: upper bound of a.

    Returns:
        (R,) each of a, b and c.
    """
    best: Any = np.full(len(scores), np.inf)
    fitted = np.zeros((3, len(scores)))
    for exponent in EXPONENTS:
        powers = sizes**-exponent
        centred = powers - powers.mean()
        b = -(scores - scores.mean(axis=1, keepdims=True)) @ centred / (centred @ centred)
        a = scores.mean(axis=1) + b * powers.mean()
        # With a at its bound, b alone is fitted.
        bound = a > top
        b = np.where(bound, (top - scores) @ powers / (powers @ powers), b)
        a = np.where(bound, top, a)
        errors = ((a[:, None] - b[:, None] * powers - scores) ** 2).sum(axis=1)
        better = errors < best
        best = np.where(better, errors, best)
        fitted[:, better] = a[better], b[better], np.full(int(better.sum()), exponent)
    return fitted[0], fitted[1], fitted[2]


def usual_step(most: float) -> float:
    """Further labels that are asked for by default: 100 if the curve supports it, otherwise as many as there are."""
    return 100.0 if (FURTHEST - 1) * most >= 100.0 else most


def in_words(gain: Gain, *, unit: str, title: str, system: str) -> str:
    """One sentence.

    Args:
        gain: the result.
        unit: of the labels, such as "labels a class".
        title: of the metric.
        system: name of the system.
    """
    if gain.gain is None:
        return f"{system}: what more labels would bring is unknown: {gain.reason}."
    return (
        f"{system}: {gain.more:g} more {unit} are expected to bring {gain.gain:+.3f} [{gain.low:+.3f}, "
        f"{gain.high:+.3f}] {title}."
    )


def of_system(evaluation: dict[str, Any], system: str, *, more: float = 0.0) -> Gain:
    """The gain of a system of evaluation.json.

    Args:
        evaluation: its content.
        system: one of its systems.
        more: further labels, in the unit of the budgets; 0: `usual_step`.
    """
    budgets = next(of["budgets"] for of in evaluation["systems"] if of["system"] == system)
    main = evaluation["main"]
    seeds = sorted(set.intersection(*(set(cell["seeds"]) for cell in budgets)))
    # The budget of all labels may be as large as the one before it.
    curve = {cell["labels"]: cell for cell in sorted(budgets, key=lambda cell: cell["labels"])}
    scores = [[cell["scores"][main]["seeds"][cell["seeds"].index(seed)] for seed in seeds] for cell in curve.values()]
    labels = list(curve)
    return expected_gain(labels, scores, more=more or usual_step(labels[-1]), confidence=evaluation["confidence"])


def best_system(evaluation: dict[str, Any]) -> str:
    """The system with the highest mean score at the largest label budget."""
    return str(evaluation["best"][str(evaluation["budgets"][-1])])
