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
rows. Tests on the predictions of a black box: Lipton et al. 2018; comparison of tests: Rabanser et al. 2019. All tests
but the one of the content are those of `scipy.stats`; tests by permutation are exact.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score

from components.data.tasks.data import spaced
from components.data.tasks.kinds import scoring_for
from components.registry.drift.measurements import Measured

Floats = NDArray[np.float64]
#: Probability of any false alarm in a year of daily checks of one task, and of a false alarm in one check.
FALSE_ALARMS: Final = 0.05
ERROR: Final = FALSE_ALARMS / 365
#: Minimum effect of an alarm, between 0 and 1: a significant but smaller difference is reported without alarm.
LEAST_EFFECT: Final = 0.1
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
#: Permutations per chunk: few, because without a difference a hundred are enough.
CHUNK = 200
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
        rows: number of new rows; `reference_rows`: of the reference.
        too_few: why there is no comparison; empty if there is one.
    """

    source: str
    rows: int
    reference_rows: int
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
        small = [part.name for part in self.features if self.mark(part)]
        rest = f" (differences with an effect below {LEAST_EFFECT:g}: {', '.join(small)})" if small else ""
        return f"{self.source}: no drift in {self.rows:,} rows{rest}"

    def mark(self, feature: Feature) -> str:
        """What a table says of a feature: drift, a significant but small difference, or nothing."""
        return "drift" if feature.alarm else "small" if feature.adjusted <= ERROR else ""

    def as_dict(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return {**asdict(self), "drift": self.drift, "sentence": self.sentence}


def lacking(part: Measured, what: str) -> str:
    """Why so few rows are not compared; empty if there are enough."""
    return f"{len(part)} {what} of at least {LEAST_ROWS}" if len(part) < LEAST_ROWS else ""


def compare(reference: Measured, new: Measured, *, source: str) -> Comparison:
    """Compare rows with a reference."""
    new = new.spread(ROWS)
    base = Comparison(source, len(new), len(reference))
    for part, what in ((new, "rows"), (reference, "reference rows")):
        if few := lacking(part, what):
            return replace(base, too_few=few)
    assert reference.unseen is not None
    unseen = reference.take(np.flatnonzero(reference.unseen))
    # So many that a p-value far below the error of a test can be reached.
    most = math.ceil(2 * len(TESTS) / ERROR)
    tests = {name: test(reference if name == "length" else unseen, new, most) for name, test in TESTS.items()}
    results = [replace(result, name=name) for name, result in tests.items() if result is not None]
    adjusted = holm([result.p for result in results])
    features = tuple(
        replace(result, adjusted=p, alarm=p <= ERROR and result.effect >= LEAST_EFFECT)
        for result, p in zip(results, adjusted, strict=True)
    )
    compared = replace(base, features=features)
    return replace(compared, examples=_unusual(reference, new)) if compared.drift and new.texts else compared


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979): rejecting those up to alpha bounds the probability of any
    error."""
    order = np.argsort(values, kind="stable")
    adjusted = np.minimum(1.0, np.arange(len(values), 0, -1) * np.asarray(values)[order])
    return [float(p) for p in np.maximum.accumulate(adjusted)[np.argsort(order)]]


def _smirnov(samples: Sequence[NDArray[Any]], centres: Sequence[float], what: str, form: str) -> Feature:
    """Feature of two samples with these medians, shares or means. The p-value assumes continuous distributions, which
    is conservative if values are equal."""
    result = stats.ks_2samp(*samples, method="asymp")
    before, after = map(form.format, centres)
    if before == after:
        # The centres do not say what differs: where the distributions are farthest apart does.
        place = result.statistic_location
        before, after = (
            f"{before} ({(sample <= place).mean():.0%} of the rows up to {form.format(place)})" for sample in samples
        )
    words = f"the {what} is {after} instead of {before}"
    return Feature(float(result.pvalue), float(result.statistic), before, after, words)


def _length(old: Measured, new: Measured, _: int) -> Feature:
    samples = [part.rows["characters"].astype(np.float64) for part in (old, new)]
    return _smirnov(samples, [float(np.median(sample)) for sample in samples], "median length", "{:,.0f} characters")


def _unknown(old: Measured, new: Measured, _: int) -> Feature | None:
    sides = old.rows, new.rows
    if len(old) < LEAST_UNSEEN or not all(rows["pieces"].any() for rows in sides):
        return None  # too few rows of dev, or the classifier has no pieces
    before, after = shares = [float(rows["unknown"].sum()) / float(rows["pieces"].sum()) for rows in sides]
    samples = [rows["unknown"] / np.maximum(rows["pieces"], 1) for rows in sides]
    feature = _smirnov(samples, shares, "share of unknown pieces", "{:.1%}")
    # The shares of single rows also depend on their lengths, which have a test of their own.
    return replace(feature, effect=0.0) if 1 / FACTOR < (after + BASE) / (before + BASE) < FACTOR else feature


def _score(old: Measured, new: Measured, _: int) -> Feature | None:
    samples = _finite(old, new, "score")
    if min(map(len, samples)) < LEAST_UNSEEN:
        return None
    what = scoring_for(new.kind).score_name if new.kind else "score"
    return _smirnov(samples, [sample.mean() for sample in samples], f"mean {what}", "{:.2f}")


def _finite(old: Measured, new: Measured, column: str) -> list[Floats]:
    """The rows of a column without any number that is not finite."""
    values = [part.rows[column].astype(np.float64) for part in (old, new)]
    return [value[np.isfinite(value.reshape(len(value), -1)).all(1)] for value in values]


def _content(old: Measured, new: Measured, most: int) -> Feature | None:
    pair = [sketch[spaced(len(sketch), SKETCHES)] for sketch in _finite(old, new, "sketch")]
    if min(map(len, pair)) < LEAST_UNSEEN:
        return None
    area = told_apart(*pair)
    words = f"their content differs: a classifier tells a new text from one of training in {area:.0%} of the cases"
    return Feature(mean_discrepancy(*pair, most=most), max(0.0, 2 * area - 1), "", f"told apart {area:.0%}", words)


def _classes(old: Measured, new: Measured, most: int) -> Feature | None:
    labels = new.labels
    if len(labels) < 2 or old.labels != labels or len(old) < LEAST_UNSEEN:
        return None
    counts = np.stack([np.bincount(part.rows["label"], minlength=len(labels)) for part in (old, new)])
    shares = counts / counts.sum(1, keepdims=True)
    change = np.abs(shares[1] - shares[0])
    largest = [int(index) for index in np.argsort(-change, kind="stable")[:NAMED]]
    before, after = (
        ", ".join(
            f"{labels[index]} {side[index]:.1%}"
            for index in largest
            if change[index] >= LEAST_NAMED or index == largest[0]
        )
        for side in shares
    )
    words = f"the predicted classes are {after} instead of {before}"
    return Feature(chi_square(counts, most=most), float(change.sum() / 2), before, after, words)


#: Feature -> its test: reference rows, new rows, most permutations -> the result, or None if the rows lack the feature.
TESTS: Final[dict[str, Callable[[Measured, Measured, int], Feature | None]]] = {
    "length": _length,
    "unknown": _unknown,
    "content": _content,
    "score": _score,
    "classes": _classes,
}


def _unusual(old: Measured, new: Measured) -> tuple[str, ...]:
    sketch = old.rows["sketch"].astype(np.float64)
    far = np.square((new.rows["sketch"] - sketch.mean(0)) / np.maximum(sketch.std(0), 1e-6)).sum(1)
    return tuple(new.texts[index][:200] for index in np.argsort(-np.nan_to_num(far), kind="stable")[:3])


def _generator(*samples: NDArray[Any]) -> np.random.Generator:
    # Depends on the samples: repeatable, and yet repeated checks do not share their permutations.
    return np.random.default_rng([SEED, *(zlib.crc32(np.ascontiguousarray(sample).tobytes()) for sample in samples)])


def chi_square(counts: NDArray[np.int64], *, most: int) -> float:
    """p-value of Pearson's chi-square statistic of (2, C) counts, given both margins, so small counts are exact."""
    seen = counts[:, counts.sum(0) > 0]
    if seen.shape[1] < 2:
        return 1.0
    method = stats.MonteCarloMethod(n_resamples=most, rng=_generator(seen))
    return float(stats.chi2_contingency(seen, correction=False, method=method).pvalue)


def random_features(vectors: Floats) -> Floats:
    """(N, K) -> (N, 2 FREQUENCIES), centred: inner products approximate a Gaussian kernel (Rahimi and Recht 2007) whose
    width is the expected distance of two rows. Deviations are of all N rows, so permutations of rows do not change
    them."""
    scaled = (vectors - vectors.mean(0)) / np.maximum(vectors.std(0), 1e-6)
    size = vectors.shape[1]
    angles = scaled @ np.random.default_rng(SEED).standard_normal((size, FREQUENCIES)) / np.sqrt(2 * size)
    features = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(FREQUENCIES)
    return features - features.mean(0)


def mean_discrepancy(old: Floats, new: Floats, *, most: int) -> float:
    """p-value of the maximum mean discrepancy (Gretton et al. 2012) between (M, K) and (N, K) vectors: valid for every
    number of permutations, which end early without a difference (Besag and Clifford 1991)."""
    features = random_features(np.concatenate([old, new])).astype(np.float32)
    size, total = len(new), len(features)
    rng = _generator(old, new)
    # The features are centred, so the difference of the means is proportional to the sum over one sample. Equal values
    # may differ in their last bits.
    observed = (1 - 1e-6) * np.square(features[-size:].sum(0)).sum()
    drawn = reached = 0
    while drawn < most:
        order = rng.random((min(CHUNK, most - drawn), total))
        chosen = order <= np.partition(order, size - 1, axis=1)[:, size - 1 : size]
        hits = np.flatnonzero(np.square(chosen.astype(np.float32) @ features).sum(1) >= observed)
        if reached + len(hits) >= ENOUGH:
            return ENOUGH / (drawn + int(hits[ENOUGH - reached - 1]) + 1)
        drawn, reached = drawn + len(order), reached + len(hits)
    return (reached + 1) / (most + 1)


def told_apart(old: Floats, new: Floats) -> float:
    """AUC with which ridge regression on the random features tells new from old vectors: 0.5 if they are alike. Each
    half is scored by the regression on the other half."""
    features = random_features(np.concatenate([old, new]))
    halves = StratifiedKFold(2, shuffle=True, random_state=SEED)
    model = RidgeClassifier(0.005 * len(features))
    is_new = np.repeat([0, 1], [len(old), len(new)])
    return float(cross_val_score(model, features, is_new, cv=halves, scoring="roc_auc").mean())
