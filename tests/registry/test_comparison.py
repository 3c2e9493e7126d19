"""Bounds of a gain: jackknife, training noise, number of labels."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.metrics import f1_score

import components.registry.comparison as comparison
from components.registry.comparison import (
    DEFAULT_NOISE,
    TrainingNoise,
    Variance,
    compare,
    detectable,
    half_width,
    jackknife,
    power,
    quantile,
    training_variances,
    units_needed,
)
from components.registry.noise import noise_of, pooled
from components.scoring.classification import Classification
from components.settings.promote import PromotionRule
from components.tracking import Version

KNOWN = math.inf


def statistics_of(guesses: np.ndarray, labels: np.ndarray, scoring: Classification) -> sparse.csr_array:
    probabilities = np.eye(len(scoring.labels), dtype=np.float32)[guesses]
    return scoring.statistics([("text",)] * len(labels), labels[:, None], probabilities)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
@pytest.mark.parametrize("clustered", [True, False])
def test_the_jackknife_equals_scores_without_each_cluster(
    metric: str, clustered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    scoring = Classification(list("abc"), bins=1)
    labels = generator.integers(0, 3, 120)
    other = np.where(generator.random(120) < 0.6, labels, 0)
    candidate = np.where(generator.random(120) < 0.7, labels, 1)
    clusters = generator.permutation(np.arange(120) % 11) if clustered else np.arange(120)
    monkeypatch.setattr(comparison, "CHUNK", 40)  # several chunks

    def score(guesses: np.ndarray, kept: np.ndarray) -> float:
        if metric == "accuracy":
            return float((labels == guesses)[kept].mean())
        return float(f1_score(labels[kept], guesses[kept], average="macro", labels=np.unique(labels)))

    gain = compare(
        statistics_of(other, labels, scoring),
        statistics_of(candidate, labels, scoring),
        clusters if clustered else None,
        scoring=scoring,
        metric=metric,
    )

    everything = np.ones(120, dtype=bool)
    assert gain.candidate == pytest.approx(score(candidate, everything))
    assert gain.value == pytest.approx(score(candidate, everything) - score(other, everything))
    left_out = np.array(
        [score(candidate, clusters != name) - score(other, clusters != name) for name in np.unique(clusters)]
    )
    assert gain.units == len(left_out) == (11 if clustered else 120)
    assert gain.sampling.value == pytest.approx(
        (gain.units - 1) / gain.units * ((left_out - left_out.mean()) ** 2).sum()
    )


def test_the_jackknife_of_an_accuracy_is_the_variance_of_a_mean() -> None:
    differences = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], 500)
    left_out = (differences.sum() - differences) / 499
    variance, freedom = jackknife(left_out, np.ones(500))

    assert variance == pytest.approx(differences.var(ddof=1) / 500)
    assert freedom == 499


def test_degrees_of_freedom_follow_the_effective_number_of_clusters_and_of_different_rows() -> None:
    # Half of the rows in one of 21 clusters: (sum n)^2 / sum n^2 = 40^2 / (20^2 + 20) = 3.81.
    sizes = np.array([20.0, *[1.0] * 20])
    assert jackknife(np.random.default_rng(0).normal(size=21), sizes)[1] == pytest.approx(40**2 / 420 - 1)

    # Two systems that differ on 4 of 1000 rows: the variance is estimated from these, not from 1000 rows.
    differences = np.zeros(1000)
    differences[:4] = 1
    assert jackknife((differences.sum() - differences) / 999, np.ones(1000))[1] == pytest.approx(8, rel=0.02)

    variance, freedom = jackknife(np.zeros(30), np.ones(30))
    assert (variance, freedom > 0) == (0, True)


def test_quantiles_are_those_of_student() -> None:
    for freedom in (0.5, 2.0, 30.0):
        assert quantile(0.001, freedom) == pytest.approx(stats.t.isf(0.001, freedom))
    assert quantile(1e-7, KNOWN) == pytest.approx(stats.norm.isf(1e-7), rel=1e-6)


def test_bounds_with_few_seeds_have_at_most_the_nominal_error() -> None:
    """With Satterthwaite's degrees of freedom, the error would be 1.5 times the nominal one."""
    generator, repetitions, error = np.random.default_rng(0), 20_000, 0.025
    sampling = generator.chisquare(40, repetitions) / 40
    training = 4 * generator.chisquare(2, repetitions) / 2
    gains = generator.standard_normal(repetitions) * math.sqrt(1 + 4)
    halves = [
        half_width([Variance(first, 40), Variance(second, 2)], error)
        for first, second in zip(sampling, training, strict=True)
    ]
    total = sampling + training
    satterthwaite = quantile(error, total**2 / (sampling**2 / 40 + training**2 / 2)) * np.sqrt(total)

    assert 0.3 * error < (gains > halves).mean() < error
    assert (gains > satterthwaite).mean() > 1.3 * error
    assert half_width([Variance(0.04, KNOWN)], 0.05) == pytest.approx(0.2 * 1.6449, rel=1e-4)


def test_the_errors_of_all_comparisons_sum_to_one_minus_confidence() -> None:
    rule = PromotionRule(confidence=0.95)
    assert [rule.error_of(use) for use in (1, 2, 3)] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    assert sum(rule.error_of(use) for use in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)


def test_the_detectable_effect_is_shown_with_80_percent_power() -> None:
    variances = [Variance(0.0003, 60.0), Variance(0.0001, 12.0)]
    effect = detectable(variances, 0.01)
    assert power(variances, 0.01, effect) == pytest.approx(0.8)
    assert power(variances, 0.01, half_width(variances, 0.01)) == pytest.approx(0.5)
    assert power([Variance(0.0, KNOWN)], 0.01, 0.1) == 1


def test_units_needed_is_the_sample_size_of_a_one_sided_z_test() -> None:
    # Std per row 0.5, effect 0.05: (2.48647 * 0.5 / 0.05) ** 2 = 618.26.
    sampling = Variance(0.05**2, KNOWN)
    assert units_needed(0.05, sampling, 100, error=0.05) == 619
    assert units_needed(0.5, sampling, 100, error=0.05) == 101
    assert units_needed(0.0, sampling, 100, error=0.05) is None
    assert units_needed(-0.03, sampling, 100, error=0.05) is None
    # With clusters, the quantile of Student's t falls with their number: more clusters than by the normal one.
    assert 618 < (units_needed(0.05, Variance(0.05**2, 9.0), 10, error=0.05) or 0) * 10 < 660
    # Training noise does not fall with the number of rows.
    noise = [Variance(0.01**2, KNOWN)]
    assert (units_needed(0.05, sampling, 100, further=noise, error=0.05) or 0) > 619
    assert units_needed(0.02, sampling, 100, further=noise, error=0.05) is None


def version(number: int, scores: list[float], *, recipe: str = "r", metric: str = "f1", test: str = "t") -> Version:
    tag = {"recipe": recipe, "metric": metric, "test": test, "scores": scores}
    return Version("m", str(number), "", "", {"seed_scores": json.dumps(tag)})


def test_noise_is_pooled_over_versions_of_one_recipe() -> None:
    versions = [
        version(1, [0.60, 0.62, 0.64]),
        version(2, [0.70, 0.70, 0.76]),
        version(3, [0.1, 0.9], recipe="other"),
        version(4, [0.1, 0.9], metric="accuracy"),
        Version("m", "5", "", "", {}),
    ]
    noise = noise_of("r", "f1", versions)

    assert noise is not None
    # Sums of squares 0.0008 and 0.0024 with two degrees of freedom each.
    assert noise.variance == Variance(pytest.approx(0.0032 / 4), 4)
    assert noise.source == "6 runs of 2 versions (r)"
    assert pooled([[0.0, 0.2]]) == Variance(pytest.approx(0.02), 1)


def test_noise_of_single_seeds_comes_from_retrainings_on_the_same_test_rows() -> None:
    assert noise_of("r", "f1", [version(1, [0.6])]) is None
    versions = [version(1, [0.60]), version(2, [0.62]), version(3, [0.64]), version(4, [0.1], test="other")]
    noise = noise_of("r", "f1", versions)

    assert noise is not None
    assert noise.variance == Variance(pytest.approx(0.0004), 2)


def test_variances_of_training_add_up() -> None:
    one = TrainingNoise(Variance(0.0004, 4), "6 runs", "one")
    two = TrainingNoise(Variance(0.0001, 2), "3 runs", "two")

    assert training_variances(one, one) == [Variance(0.0008, 4)]
    assert training_variances(one, two) == [one.variance, two.variance]
    assert training_variances(None, two) == [Variance(DEFAULT_NOISE**2, KNOWN), two.variance]
