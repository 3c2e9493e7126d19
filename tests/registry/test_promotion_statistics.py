"""What is evidence for the promotion rule: clusters, power, repeated use of the test rows."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gate_error_rates import GATES, LEVELS, SHARES, TestSet, World, exponential_sizes
from components.data.scoring.intervals import Variance, half_width, sampling_variance
from components.data.tasks.kinds.classification import Classification
from components.registry.decide import REFRESH, Scored, TestRows, compare, decide, detectable, power, units_needed
from components.settings.registry import PromotionRule
from tests.registry.rule import LABELS, ROWS, SCORING, TEST, decided, run_of, scored, statistics_of


def clustered(seed: int, *, groups: int = 40, size: int = 10, spread: float = 0.3) -> tuple[TestRows, list[Scored]]:
    """Rows in clusters, and two systems of the same expected accuracy whose errors depend on the cluster."""
    generator = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(groups), size)
    labels = generator.integers(0, 4, groups * size)
    difficulty = generator.normal(size=groups * size)
    systems = []
    for name in ("candidate", "champion"):
        noise = spread * generator.normal(size=groups)[cluster] + 0.2 * generator.normal(size=groups * size)
        guesses = np.where(difficulty + noise > -0.5, labels, (labels + 1) % 4)
        systems.append(scored(name, None, statistics=statistics_of(guesses, labels)))
    usual = statistics_of(np.zeros(len(labels), dtype=int), labels)
    return TestRows("t1", SCORING, usual, clusters=cluster), systems


def test_rows_of_one_cluster_are_not_independent():
    verdicts = {"clusters": 0, "rows": 0}
    for seed in range(300):
        rows, systems = clustered(seed)
        for units, sample in (("clusters", rows), ("rows", replace(rows, clusters=None))):
            decision = decided(*systems, rows=sample)
            assert (decision.units, decision.count) == (units, 40 if units == "clusters" else 400)
            verdicts[units] += decision.verdict == "promote"

    # Nominal: 2.5% of 300 are 7.5; the bounds below are exceeded with probability under 0.001.
    assert verdicts["clusters"] <= 17
    assert verdicts["rows"] >= 25


def test_few_clusters_are_inconclusive():
    better, champion = scored("better", 400), scored("champion", 0)
    decision = decided(better, champion, rows=replace(TEST, clusters=np.arange(ROWS) % 4))
    assert decision.verdict == "inconclusive"
    assert decision.reasons[0].startswith("the test rows come from 4 cluster(s), and the variance between clusters")
    assert (decision.gain, decision.low, decision.high, decision.detectable) == (1.0, None, None, None)

    item = np.maximum(np.arange(ROWS) - 390, 0)  # 391 rows in one of ten clusters
    decision = decided(better, champion, rows=replace(TEST, clusters=item))
    assert decision.verdict == "inconclusive"
    assert decision.reasons[0].startswith("one cluster holds 391 of 400 test rows")
    six = np.append(np.arange(ROWS - 1) % 5, 5)
    assert decided(better, champion, rows=replace(TEST, clusters=six)).verdict == "promote"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_rows_are_inconclusive(count):
    """All rows agree that the candidate is better, so that the estimate of the variance is 0."""
    labels = LABELS[:count]
    right, wrong = statistics_of(labels, labels), statistics_of((labels + 1) % 4, labels)
    rows = replace(TEST, stand_in=wrong, slices=())
    pair = scored("better", None, statistics=right), scored("champion", None, statistics=wrong)
    decision = decided(*pair, rows=rows)
    assert (decision.verdict, decision.gain, decision.low) == ("inconclusive", 1.0, None)
    assert decision.reasons[0] == (
        f"there are {count} test row(s), and the variance between rows needs 6: label more rows"
    )


def test_an_inconclusive_verdict_names_the_detectable_effect_and_the_labels_needed():
    candidate = scored("candidate", None, statistics=run_of(284, first=40))
    decision = decided(candidate)

    # Correct on rows 40-323 against rows 0-279: 44 gained, 40 lost, gain 0.01; variance of one row 84/400 - 0.01 ** 2.
    assert decision.gain == pytest.approx(0.01)
    std = np.sqrt((84 / 400 - 0.0001) / 400)
    assert decision.detectable == pytest.approx((1.96 + 0.8416) * std, rel=0.02)
    assert decision.labels_needed == pytest.approx(((1.96 + 0.8416) / 0.01) ** 2 * (84 / 400 - 0.0001), rel=0.02)
    assert decision.reasons[0] == (
        f"the smallest gain that these test rows detect with 80% power is +{decision.detectable:.4f}; "
        f"{decision.labels_needed} test labels would decide it at this gain (now 400)"
    )

    # In clusters, the number is one of clusters.
    rows = replace(TEST, clusters=np.arange(ROWS) // 8)
    decision = decided(scored("candidate", 285), rows=rows)
    assert decision.verdict == "inconclusive"
    assert decision.labels_needed is not None
    assert (
        f"{decision.labels_needed} clusters with about {8 * decision.labels_needed} test labels" in decision.reasons[0]
    )

    # Of a negative gain no number of labels is named.
    decision = decided(scored("worse", 278))
    assert (decision.verdict, decision.labels_needed) == ("inconclusive", None)
    assert not any("labels" in reason for reason in decision.reasons)


def test_every_use_of_the_test_rows_costs_error():
    candidate = scored("candidate", 296)
    first, fifth, thirtieth = (decided(candidate, uses=use) for use in (1, 5, 30))

    assert (first.verdict, first.test_uses, first.alpha) == ("promote", 1, pytest.approx(0.025))
    assert (fifth.test_uses, fifth.alpha) == (5, pytest.approx(0.05 / 30))
    assert first.low > fifth.low > thirtieth.low
    assert thirtieth.verdict == "inconclusive"
    assert (first.refresh, fifth.refresh, thirtieth.refresh) == (False, False, True)
    assert thirtieth.detectable > REFRESH * first.detectable
    assert thirtieth.reasons[-1].startswith("comparison 30 on these test rows: the smallest gain that is detected grew")
    assert not any("comparison" in reason for reason in first.reasons)


KNOWN = math.inf


def test_a_gain_is_a_difference_of_scores_with_the_variance_between_clusters():
    scoring = Classification(["a", "b"], bins=1)
    labels, clusters = np.tile([0, 1], 30), np.arange(60) // 6
    wrong = np.random.default_rng(0).random(60) < 0.3
    before, after = (
        scoring.statistics([("text",)] * 60, labels[:, None], np.eye(2, dtype=np.float32)[guesses])
        for guesses in (np.where(wrong, 1 - labels, labels), labels)
    )
    gain = compare(before, after, clusters, scoring=scoring, metric="accuracy")
    assert (gain.candidate, gain.value, gain.units) == (1.0, pytest.approx(wrong.mean()), 10)
    assert gain.sampling.value == pytest.approx(wrong.reshape(10, 6).mean(1).var(ddof=1) / 10)
    assert compare(before, after, None, scoring=scoring, metric="accuracy").units == 60


def test_the_errors_of_all_comparisons_sum_to_one_minus_confidence():
    rule = PromotionRule(confidence=0.95)
    assert [rule.error_of(use) for use in (1, 2, 3)] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    assert sum(rule.error_of(use) for use in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)


def test_the_detectable_effect_is_shown_with_80_percent_power():
    sampling = Variance(0.0003, 60.0)
    effect = detectable(sampling, 0.01)
    assert power(sampling, 0.01, effect) == pytest.approx(0.8)
    assert power(sampling, 0.01, half_width([sampling], 0.01)) == pytest.approx(0.5)
    assert power(Variance(0.0, KNOWN), 0.01, 0.1) == 1


def test_units_needed_is_the_sample_size_of_a_one_sided_z_test():
    # Std per row 0.5, effect 0.05: (2.48647 * 0.5 / 0.05) ** 2 = 618.26.
    sampling = Variance(0.05**2, KNOWN)
    assert units_needed(0.05, sampling, 100, error=0.05) == 619
    assert units_needed(0.5, sampling, 100, error=0.05) == 101
    assert units_needed(0.0, sampling, 100, error=0.05) is None
    assert units_needed(-0.03, sampling, 100, error=0.05) is None
    # With clusters, the quantile of Student's t falls with their number: more clusters than by the normal one.
    assert 618 < (units_needed(0.05, Variance(0.05**2, 9.0), 10, error=0.05) or 0) * 10 < 660


# The simulation of error rates computes what the rule computes.


@pytest.mark.parametrize("clustered", [True, False])
def test_verdicts_are_those_of_decide(*, clustered):
    world = World(exponential_sizes(20), clustered=clustered, noise=True)
    test = TestSet(world, np.random.default_rng(1))
    better = world.shifted(LEVELS, float(world.truth(LEVELS)) + 0.08)
    predicted = test.predict(np.stack([LEVELS, *[better] * 12]))
    scores, without = test.scores(predicted)
    scoring = Classification([str(number) for number in range(len(SHARES))], bins=1)
    fields = [("text",)] * len(test.labels)
    one_hot = np.eye(len(SHARES), dtype=np.float32)
    champion, *candidates = (
        Scored(str(night), str(night), scoring.statistics(fields, test.labels[:, None], one_hot[row]))
        for night, row in enumerate(predicted)
    )
    assert champion.statistics is not None
    rows = TestRows("t", scoring, champion.statistics, clusters=test.clusters if clustered else None)
    verdicts = []
    for night, candidate in enumerate(candidates, start=1):
        decision = decide(candidate, champion, PromotionRule(), rows=rows, test_uses=night)
        assert decision.gain == pytest.approx(scores[night] - scores[0])
        sampling = sampling_variance(without[night] - without[0], test.sizes)
        gain = float(scores[night] - scores[0])
        verdicts.append(decision.verdict == "promote")
        assert GATES["gate"].promotes(gain, sampling, use=night) is verdicts[-1]
    assert 0 < sum(verdicts) < 12
