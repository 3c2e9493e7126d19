"""Intervals against closed forms, scores without each cluster, and simulations."""

import math

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.metrics import f1_score

import components.data.scoring.intervals as intervals
from components.data.scoring.intervals import (
    NONE,
    TrainingNoise,
    Variance,
    clusters_within,
    half_width,
    interval,
    jackknife,
    left_out,
    quantile,
    sampling_variance,
    sizes_of,
    training_noise,
)
from components.data.tasks.kinds.classification import Classification

SCORING = Classification(list("abc"), bins=1)


def statistics_of(guesses: np.ndarray, labels: np.ndarray) -> sparse.csr_array:
    probabilities = np.eye(len(SCORING.labels), dtype=np.float32)[guesses]
    return SCORING.statistics([("text",)] * len(labels), labels[:, None], probabilities)


@pytest.mark.parametrize("clustered", [True, False])
def test_scores_without_each_cluster(*, clustered, monkeypatch):
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, 120)
    guesses = np.where(generator.random(120) < 0.6, labels, 0)
    clusters = generator.permutation(np.arange(120) % 11) if clustered else np.arange(120)
    monkeypatch.setattr(intervals, "CHUNK", 40)  # several chunks

    actual = left_out(statistics_of(guesses, labels), clusters if clustered else None, SCORING.scores)
    for number in range(clusters.max() + 1):
        kept = clusters != number
        expected = f1_score(labels[kept], guesses[kept], average="macro")
        assert actual["macro_f1"][number] == pytest.approx(expected)
        assert actual["accuracy"][number] == pytest.approx((labels == guesses)[kept].mean())


def test_the_jackknife_of_an_accuracy_is_the_variance_of_a_mean():
    differences = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], 500)
    actual = sampling_variance((differences.sum() - differences) / 499, np.ones(500))
    assert actual == Variance(pytest.approx(differences.var(ddof=1) / 500), 499)


def test_degrees_of_freedom_follow_the_effective_number_of_clusters_and_of_different_rows():
    # Half of the rows in one of 21 clusters: (sum n)^2 / sum n^2 = 40^2 / (20^2 + 20) = 3.81.
    sizes = np.array([20.0, *[1.0] * 20])
    assert jackknife(np.random.default_rng(0).normal(size=21), sizes)[1] == pytest.approx(40**2 / 420 - 1)

    # Two systems that differ on 4 of 1000 rows: the variance is estimated from these, not from 1000 rows.
    differences = np.zeros(1000)
    differences[:4] = 1
    assert jackknife((differences.sum() - differences) / 999, np.ones(1000))[1] == pytest.approx(8, rel=0.02)

    variance, freedom = jackknife(np.zeros(30), np.ones(30))
    assert (variance, freedom > 0) == (0, True)


def test_without_test_rows_it_is_the_t_interval():
    # Mean 0.5, s = 0.1: t(0.975; 2) = 4.3027; half width 4.3027 * 0.1 / sqrt(3).
    actual = interval(np.asarray([0.4, 0.5, 0.6]), confidence=0.95)
    assert actual.mean == pytest.approx(0.5)
    assert actual.high - actual.mean == pytest.approx(4.302653 * 0.1 / np.sqrt(3), rel=1e-6)
    assert actual.mean - actual.low == pytest.approx(actual.high - actual.mean)


def test_a_single_run_has_no_variance_of_training_and_several_share_one():
    sizes, training = np.ones(31), Variance(0.0012, 12)
    without = 0.5 + 0.001 * np.linspace(-1, 1, 31)[None]
    sampling = sampling_variance(without[0], sizes)
    alone = interval(np.array([0.5]), without, sizes, confidence=0.95, training=training)
    assert alone.high - 0.5 == pytest.approx(half_width([sampling], 0.025))
    several = interval(np.array([0.4, 0.5, 0.6]), np.repeat(without, 3, 0), sizes, confidence=0.95, training=training)
    assert several.high - 0.5 == pytest.approx(half_width([sampling, Variance(0.0004, 12)], 0.025))


def test_what_the_test_rows_explain_is_not_counted_as_training_again():
    generator = np.random.default_rng(0)
    right = (generator.random((2, 40)) < 0.7).astype(float)
    without, values = (right.sum(1, keepdims=True) - right) / 39, right.mean(1)
    apart = 2 * ((right[0] - right[1]) / 2).var(ddof=1) / 40  # two deviations of half a difference
    sampling = sampling_variance(without.mean(0), np.ones(40))
    actual = interval(values, without, np.ones(40), confidence=0.95, training=Variance(apart + 0.0006, 12))
    assert actual.high - actual.mean == pytest.approx(half_width([sampling, Variance(0.0003, 12)], 0.025))
    least = interval(values, without, np.ones(40), confidence=0.95, training=Variance(apart / 2, 12))
    assert least.high - least.mean == pytest.approx(half_width([sampling], 0.025))


def test_training_noise_is_pooled_over_systems_with_seeds_as_blocks():
    # Two systems: the variance of their difference is that of the paired differences.
    scores = np.array([[0.50, 0.54, 0.61], [0.40, 0.47, 0.50]])
    noise = training_noise(scores)
    assert noise is not None and noise.pair is not None
    assert noise.pair == Variance(pytest.approx(np.var(scores[0] - scores[1], ddof=1)), 2)
    assert noise.run.value == pytest.approx(scores.var(axis=1, ddof=1).mean())
    assert 2 < noise.run.freedom < 4, "between seeds - 1, if all of it were the labels, and systems (seeds - 1)"

    constant = np.vstack([scores, np.full(3, 0.1)])
    assert training_noise(constant) == noise, "a system whose runs are all equal is no evidence"
    assert noise.of(constant[2]) == NONE and noise.of(scores[0], constant[2]) == noise.run
    assert noise.of(*scores) == noise.pair

    alone = training_noise(scores[:1])
    assert alone == TrainingNoise(Variance(pytest.approx(np.var(scores[0], ddof=1)), pytest.approx(2)), None, 1, 3)
    assert training_noise(constant[2:]) is None and training_noise(np.zeros((3, 1))) is None

    many = training_noise(np.random.default_rng(0).normal(0.5, 0.02, (40, 3)))
    assert many is not None and many.pair is not None
    assert math.sqrt(many.run.value) == pytest.approx(0.02, rel=0.15) and many.run.freedom > 20
    assert many.pair.freedom == 78


def test_clusters_of_rows_and_of_parts():
    clusters = np.array([0, 1, 0, 2, 3])
    assert sizes_of(clusters, 5).tolist() == [2, 1, 1, 1] and sizes_of(None, 3).tolist() == [1, 1, 1]
    inside = clusters_within(clusters, np.array([1, 4]))
    assert inside is not None and inside.tolist() == [0, 1]
    assert clusters_within(clusters, np.array([0, 2])) is None, "one cluster is a population of its own"


def test_copies_of_rows_within_their_cluster_do_not_narrow_the_interval():
    generator = np.random.default_rng(0)
    labels, clusters = generator.integers(0, 3, 90), np.arange(90) % 15
    guesses = np.where(generator.random(90) < 0.7, labels, 0)

    def width(copies, *, clustered=True):
        chosen = np.repeat(np.arange(90), copies)
        groups = clusters[chosen] if clustered else None
        without = left_out(statistics_of(guesses[chosen], labels[chosen]), groups, SCORING.scores)["macro_f1"]
        return half_width([sampling_variance(without, sizes_of(groups, len(chosen)))], 0.025)

    assert width(10) == pytest.approx(width(1))
    assert width(10, clustered=False) < 0.4 * width(1, clustered=False)


def _by_cluster(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, np.flatnonzero(np.diff(clusters, prepend=-1)), axis=-1)


def test_intervals_cover_the_truth_in_clusters():
    """Three runs of each of six systems on 20 clusters of unequal sizes: the score of a recipe, and a difference."""
    generator = np.random.default_rng(0)
    sizes = np.ceil(12 * generator.exponential(size=20)).astype(int)
    clusters = np.repeat(np.arange(20), sizes)
    hits = {"score": 0, "difference": 0, "rows": 0}
    repetitions = 400
    for _ in range(repetitions):
        shared = generator.normal(size=len(clusters)) + 0.5 * generator.normal(size=20)[clusters]
        ours = 0.4 * generator.normal(size=(6, 3, 20))[..., clusters] + generator.normal(size=(6, 3, len(clusters)))
        level = 0.1 * generator.normal(size=(6, 3, 1)) + 0.1 * generator.normal(size=(1, 3, 1))
        right = (shared + ours + level > 0).astype(float)  # accuracy 0.5
        noise = training_noise(right.mean(-1))
        without = (right.sum(-1, keepdims=True) - _by_cluster(right, clusters)) / (len(clusters) - sizes)
        for name, values, left, training in (
            ("score", right[0], without[0], noise.run),
            ("difference", right[0] - right[1], without[0] - without[1], noise.pair),
        ):
            result = interval(values.mean(-1), left, sizes.astype(float), confidence=0.95, training=training)
            hits[name] += result.low <= (0.5 if name == "score" else 0.0) <= result.high
        by_row = (right[0, :1].sum(-1, keepdims=True) - right[0, :1]) / (len(clusters) - 1)
        rows = interval(right[0, :1].mean(-1), by_row, np.ones(len(clusters)), confidence=0.95)
        hits["rows"] += rows.low <= 0.5 <= rows.high
    assert 0.93 <= hits["score"] / repetitions <= 0.98
    assert 0.93 <= hits["difference"] / repetitions <= 0.98
    assert hits["rows"] / repetitions < 0.85, "rows are not independent"


def test_quantiles_are_those_of_student():
    for freedom in (0.5, 2.0, 30.0):
        assert quantile(0.001, freedom) == pytest.approx(stats.t.isf(0.001, freedom))
    assert quantile(1e-7, math.inf) == pytest.approx(stats.norm.isf(1e-7), rel=1e-6)


def test_without_variance_the_bound_is_exact():
    """The units are clusters: copies add nothing. Differences, which have no range here, stay 0."""
    ones = np.ones((2, 20))
    perfect = interval(np.ones(2), ones, np.ones(20), confidence=0.95, within=(0, 1))
    assert (perfect.low, perfect.high) == (pytest.approx(0.025 ** (1 / 20)), 1)
    assert interval(np.ones(2), ones, 3 * np.ones(20), confidence=0.95, within=(0, 1)) == perfect
    assert interval(np.ones(2), ones, np.ones(20), confidence=0.95, within=(-1, 1)).low == pytest.approx(
        1 - 2 * (1 - 0.025 ** (1 / 20))
    )
    equal = interval(np.zeros(2), 0 * ones, np.ones(20), confidence=0.95)
    assert (equal.low, equal.high) == (0, 0)


def test_folds_share_training_rows():
    """Nadeau and Bengio: with 5 folds the variance is 1 + 5 / 4 times as large."""
    without = np.random.default_rng(0).normal(0.8, 0.01, (1, 30))
    plain, folds = (interval(np.array([0.8]), without, np.ones(30), confidence=0.95, folds=count) for count in (0, 5))
    assert (folds.high - folds.mean) / (plain.high - plain.mean) == pytest.approx(1.5)
