"""Compares rows with the reference of a model: one test per feature, Holm's correction, effects, words.

| feature | test                                                    | effect                                    | rows |
|---------|---------------------------------------------------------|-------------------------------------------|------|
| length  | Kolmogorov-Smirnov, characters                          | D, the largest difference of the two CDFs | all  |
| unknown | Kolmogorov-Smirnov, share of unknown pieces of a row    | D; 0 if the total share is similar        | dev  |
| content | maximum mean discrepancy of the sketches, permutations  | 2 AUC - 1 of a classifier of new and old  | dev  |
| score   | Kolmogorov-Smirnov, confidence                          | D                                         | dev  |
| classes | chi-square of the predicted classes, permutations       | total variation distance                  | dev  |

All but the lengths depend on what was learned: the vocabulary, the encoder and the head know the rows of train, and new
rows differ from these even without drift. They are compared with rows of dev.

An alarm needs a p-value that Holm's procedure rejects at the error of one check and an effect of at least
`LEAST_EFFECT`. Holm bounds the probability of any false alarm of a check by that error under any dependence of
the features; the errors of all checks of a year sum to `FALSE_ALARMS` (union bound, so repeated looks at
overlapping windows are covered). The bound holds if the rows of an undrifted batch are exchangeable with the reference
rows. Tests on the predictions of a black box: Lipton et al. 2018; comparison of tests: Rabanser et al. 2019. Tests by
permutation are exact, and are stopped early (Besag and Clifford 1991, sequential Monte Carlo p-values).
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from components.data.tasks.data import spaced
from components.registry.drift.measurements import SCORES, Measured, Reference, Rows

Floats = NDArray[np.float64]
#: Probability of any false alarm in a year of daily checks of one task, and of a false alarm in one check.
FALSE_ALARMS: Final = 0.05
ERROR: Final = FALSE_ALARMS / 365
#: Minimum effect of an alarm, between 0 and 1: a significant but smaller difference is reported without alarm.
LEAST_EFFECT: Final = 0.1
#: Features of a classifier's rows, and of documents, which have no predictions.
FEATURES = ("length", "unknown", "content", "score", "classes")
#: Maximum number of sketches on each side.
SKETCHES = 1000
#: Maximum number of rows that are compared, evenly spaced over the window or file, and minimum number.
ROWS, LEAST_ROWS = 2000, 200
#: Minimum number of rows of dev for a test on them.
LEAST_UNSEEN = 50
#: Maximum number of classes that are named, and minimum change of their share.
NAMED, LEAST_NAMED = 3, 0.03
#: A change of the share of unknown pieces by less than this factor has no effect; the base is added to both shares.
FACTOR, BASE = 1.5, 0.001
#: After so many permutations with a statistic at least as large as the observed one, no more are drawn.
ENOUGH = 10
#: Permutations per chunk: first few, because without a difference a hundred are enough.
CHUNKS = (200, 2000)
#: Frequencies of the random features, and the seed of everything that is random here.
FREQUENCIES, SEED = 64, 5


@dataclass(frozen=True)
class Feature:
    """The test of one feature.

    Attributes:
        old, new: summary of the reference and of the new rows, as text.
        words: the difference as a sentence.
    """

    p: float
    effect: float
    old: str
    new: str
    words: str
    name: str = ""
    adjusted: float = 1.0
    alarm: bool = False


@dataclass(frozen=True)
class Comparison:
    """The result of one check.

    Attributes:
        what: what was compared, such as `headstart-aws-type/3`.
        rows: number of new rows; `reference_rows`: of the reference.
        too_few: why there is no comparison; empty if there is one.
    """

    what: str
    source: str
    rows: int
    reference_rows: int
    error: float
    least_effect: float
    features: tuple[Feature, ...] = ()
    examples: tuple[str, ...] = ()
    too_few: str = ""

    @property
    def drift(self) -> bool:
        """Whether any feature raises an alarm."""
        return any(feature.alarm for feature in self.features)

    @property
    def sentence(self) -> str:
        """The result in one line."""
        if self.too_few:
            return f"{self.source}: not compared, {self.too_few}"
        if self.drift:
            return f"{self.source}: drift: " + "; ".join(part.words for part in self.features if part.alarm)
        small = [part.name for part in self.features if part.adjusted <= self.error]
        rest = f" (differences with an effect below {self.least_effect:g}: {', '.join(small)})" if small else ""
        return f"{self.source}: no drift in {self.rows:,} rows{rest}"

    def as_dict(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return {**asdict(self), "drift": self.drift, "sentence": self.sentence}


def compare(
    reference: Reference,
    new: Measured,
    *,
    what: str,
    source: str,
    error: float = ERROR,
    least_effect: float = LEAST_EFFECT,
) -> Comparison:
    """Compare rows with a reference; arguments as the attributes of `Comparison`."""
    new = new.spread(ROWS)
    old = reference.measured
    base = Comparison(what, source, len(new), len(old), error, least_effect)
    if min(len(new), len(old)) < LEAST_ROWS:
        few = f"{len(new)} rows of" if len(new) < LEAST_ROWS else f"{len(old)} reference rows of"
        return replace(base, too_few=f"{few} at least {LEAST_ROWS}")
    unseen = old.take(np.flatnonzero(reference.unseen))
    # One permutation more than needed, so that a small p-value can be reached.
    most = math.ceil(2 * len(FEATURES) / error)
    tests: dict[str, Callable[[], Feature | None]] = {
        "length": lambda: _length(old, new),
        "unknown": lambda: _unknown(unseen.rows, new.rows),
        "content": lambda: _content(unseen.rows, new.rows, most),
        "score": lambda: _score(unseen, new),
        "classes": lambda: _classes(unseen, new, most),
    }
    results = {name: result for name, test in tests.items() if (result := test()) is not None}
    adjusted = holm([result.p for result in results.values()])
    features = tuple(
        replace(result, name=name, adjusted=p, alarm=p <= error and result.effect >= least_effect)
        for (name, result), p in zip(results.items(), adjusted, strict=True)
    )
    drift = any(feature.alarm for feature in features)
    examples = _unusual(old, new) if drift and new.texts else ()
    return replace(base, features=features, examples=examples)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979): rejecting those up to alpha bounds the probability of any
    error."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, index in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def _smirnov(old: Floats, new: Floats) -> tuple[float, float]:
    """p-value and D. The p-value assumes continuous distributions, which is conservative if values are equal."""
    result = stats.ks_2samp(old, new, method="asymp")
    return float(result.pvalue), float(result.statistic)


def _length(old: Measured, new: Measured) -> Feature:
    before, after = (part.rows["characters"].astype(np.float64) for part in (old, new))
    p, effect = _smirnov(before, after)
    medians = float(np.median(before)), float(np.median(after))
    ratio = medians[1] / max(medians[0], 1.0)
    if ratio >= 1:
        how = f"{ratio:.1f} times longer" if ratio >= 1.05 else "as long, but differently distributed"
    else:
        how = f"{1 / max(ratio, 1e-9):.1f} times shorter" if ratio <= 0.95 else "as long, but differently distributed"
    words = f"texts are {how} (median {medians[1]:,.0f} characters instead of {medians[0]:,.0f})"
    return Feature(p, effect, f"{medians[0]:,.0f} characters", f"{medians[1]:,.0f} characters", words)


def _unknown(old: Rows, new: Rows) -> Feature | None:
    if len(old) < LEAST_UNSEEN or not old["pieces"].any() or not new["pieces"].any():
        return None  # too few rows of dev, or the classifier has no pieces
    shares = [rows["unknown"] / np.maximum(rows["pieces"], 1) for rows in (old, new)]
    p, effect = _smirnov(*shares)
    totals = [float(rows["unknown"].sum()) / float(rows["pieces"].sum()) for rows in (old, new)]
    # The shares of single rows also depend on their lengths, which have a test of their own.
    if 1 / FACTOR < (totals[1] + BASE) / (totals[0] + BASE) < FACTOR:
        effect = 0.0
    before, after = map(_percent, totals)
    return Feature(p, effect, before, after, f"{after} unknown pieces instead of {before}")


def _content(old: Rows, new: Rows, most: int) -> Feature | None:
    pair = []
    for rows in (old, new):
        sketch = rows["sketch"].astype(np.float64)
        sketch = sketch[np.isfinite(sketch).all(1)]
        pair.append(sketch[spaced(len(sketch), SKETCHES)])
    if min(map(len, pair)) < LEAST_UNSEEN:
        return None
    area = told_apart(*pair)
    words = f"their content differs: a classifier tells a new text from one of training in {area:.0%} of the cases"
    return Feature(mean_discrepancy(*pair, most=most), max(0.0, 2 * area - 1), "", f"told apart {area:.0%}", words)


def _score(unseen: Measured, new: Measured) -> Feature | None:
    before, after = (part.rows["score"].astype(np.float64) for part in (unseen, new))
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if min(len(before), len(after)) < LEAST_UNSEEN:
        return None
    p, effect = _smirnov(before, after)
    means = float(before.mean()), float(after.mean())
    name = SCORES.get(new.kind, "score")
    words = f"the mean {name} is {means[1]:.2f} instead of {means[0]:.2f}"
    return Feature(p, effect, f"{means[0]:.2f} {name}", f"{means[1]:.2f} {name}", words)


def _classes(unseen: Measured, new: Measured, most: int) -> Feature | None:
    labels = new.labels
    if len(labels) < 2 or unseen.labels != labels or len(unseen) < LEAST_UNSEEN:
        return None
    before, after = (np.bincount(part.rows["label"], minlength=len(labels)) for part in (unseen, new))
    shares = before / before.sum(), after / after.sum()
    effect = float(np.abs(shares[1] - shares[0]).sum() / 2)
    changed = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:NAMED]
    changed = changed[np.abs(shares[1] - shares[0])[changed] >= LEAST_NAMED]
    pairs = [(labels[index], _percent(shares[1][index]), _percent(shares[0][index])) for index in changed]
    parts = [f"{label} {now} instead of {then}" for label, now, then in pairs]
    largest = int(np.abs(shares[1] - shares[0]).argmax())
    return Feature(
        chi_square(before, after, most=most),
        effect,
        f"{labels[largest]} {_percent(shares[0][largest])}",
        f"{labels[largest]} {_percent(shares[1][largest])}",
        f"the predicted classes are shifted ({', '.join(parts)})",
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.095 else f"{share:.0%}"


def _unusual(old: Measured, new: Measured) -> tuple[str, ...]:
    sketch = old.rows["sketch"].astype(np.float64)
    far = np.square((new.rows["sketch"] - sketch.mean(0)) / np.maximum(sketch.std(0), 1e-6)).sum(1)
    return tuple(new.texts[index][:200] for index in np.argsort(-np.nan_to_num(far), kind="stable")[:3])


def sequential(observed: float, draw: Callable[[int], Floats], *, most: int) -> float:
    """The p-value of a statistic: valid for every number of permutations, P(p <= x) <= x without a difference.

    Args:
        draw: number of permutations -> their statistics.
        most: maximum number of permutations; the smallest possible p-value is 1 / (most + 1).
    """
    limit = observed - 1e-9 * abs(observed)  # equal values may differ in their last bits
    drawn = reached = 0
    while drawn < most:
        count = min(CHUNKS[0] if not drawn else CHUNKS[1], most - drawn)
        hits = np.flatnonzero(draw(count) >= limit)
        if reached + len(hits) >= ENOUGH:
            return ENOUGH / (drawn + int(hits[ENOUGH - reached - 1]) + 1)
        drawn, reached = drawn + count, reached + len(hits)
    return (reached + 1) / (most + 1)


def _generator(*samples: NDArray[Any]) -> np.random.Generator:
    # Depends on the samples: repeatable, and yet repeated checks do not share their permutations.
    return np.random.default_rng([SEED, *(zlib.crc32(np.ascontiguousarray(sample).tobytes()) for sample in samples)])


def chi_square(old: NDArray[np.int64], new: NDArray[np.int64], *, most: int) -> float:
    """p-value of Pearson's chi-square statistic of two rows of counts (C,), given both margins: permutations of the
    rows between the samples are draws from the multivariate hypergeometric distribution, so small counts are exact."""
    total = old + new
    kept = total > 0
    total, new, size = total[kept], new[kept], int(new.sum())
    expected = total * (size / total.sum())
    rng = _generator(old, new)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        # The chi-square of both rows is proportional to the chi-square of one.
        return np.asarray(((counts - expected) ** 2 / expected).sum(-1))

    return sequential(
        float(statistic(new)),
        lambda count: statistic(rng.multivariate_hypergeometric(total, size, size=count, method="marginals")),
        most=most,
    )


def random_features(vectors: Floats) -> Floats:
    """(N, K) -> (N, 2 FREQUENCIES), centred: inner products approximate a Gaussian kernel (Rahimi and Recht 2007) whose
    width is the expected distance of two rows. Deviations are of all N rows, so permutations of rows do not change
    them."""
    scaled = (vectors - vectors.mean(0)) / np.maximum(vectors.std(0), 1e-6)
    size = vectors.shape[1]
    frequencies = np.random.default_rng(SEED).standard_normal((size, FREQUENCIES)) / np.sqrt(2 * size)
    angles = scaled @ frequencies
    features = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(FREQUENCIES)
    return features - features.mean(0)


def mean_discrepancy(old: Floats, new: Floats, *, most: int) -> float:
    """p-value of the maximum mean discrepancy (Gretton et al. 2012) between (M, K) and (N, K) vectors."""
    features = random_features(np.concatenate([old, new])).astype(np.float32)
    size, total = len(new), len(features)
    rng = _generator(old, new)

    def draw(count: int) -> Floats:
        statistics = []
        for start in range(0, count, 200):
            part = min(200, count - start)
            chosen = np.argpartition(rng.random((part, total), dtype=np.float32), size, axis=1)[:, :size]
            inside = np.zeros((part, total), dtype=np.float32)
            np.put_along_axis(inside, chosen, 1.0, axis=1)
            statistics.append(np.square(inside @ features).sum(1))
        return np.concatenate(statistics).astype(np.float64)

    # The features are centred, so the difference of the means is proportional to the sum over one sample.
    return sequential(float(np.square(features[len(old) :].sum(0)).sum()), draw, most=most)


def told_apart(old: Floats, new: Floats) -> float:
    """AUC with which ridge regression on the random features tells new from old vectors: 0.5 if they are alike. Each
    half is scored by the regression on the other half."""
    features = random_features(np.concatenate([old, new]))
    isnew = np.repeat([0.0, 1.0], [len(old), len(new)])
    half = np.concatenate([np.arange(len(old)) % 2, np.arange(len(new)) % 2]).astype(bool)
    areas = []
    for fitted in (half, ~half):
        model = Ridge(0.01 * fitted.sum(), fit_intercept=False)
        model.fit(features[fitted], isnew[fitted] - isnew[fitted].mean())
        areas.append(roc_auc_score(isnew[~fitted], model.predict(features[~fitted])))
    return float(np.mean(areas))
