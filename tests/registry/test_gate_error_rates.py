"""The simulation of error rates computes what the rule computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from components.registry.noise import pooled

from benchmarks.gate_error_rates import (
    NIGHTS,
    RULE,
    SCORING,
    World,
    cluster_sizes,
    comparisons,
    exponential_sizes,
    intervals,
    new_rule,
    one_year,
    pooled_noise,
    row_variances,
    simulate,
    slice_vetoes,
)
from components.registry.comparison import TrainingNoise, Variance, compare
from components.registry.promotion import decide
from components.registry.scored import Scored, TestRows

SIZES = exponential_sizes(30)


def test_verdicts_are_those_of_decide() -> None:
    world = World("any", SIZES, noise=0.005)
    year = simulate(world, 12, np.random.default_rng(0))
    right = year.latent + np.float32(world.level(0.06) - world.level()) > 0
    clusters = np.repeat(np.arange(len(SIZES)), SIZES)
    fields = [("text",)] * len(clusters)

    def statistics(correct: np.ndarray):  # type: ignore[no-untyped-def]
        return SCORING.statistics(fields, fields, correct[:, None])  # type: ignore[arg-type]

    champion = statistics(year.champion)
    rows = TestRows("t", SCORING, champion, groups=[f"g{number}" for number in clusters])
    expected, gains = [], []
    for night, correct in enumerate(right, start=1):
        samples = [scores.tolist() for scores in year.scores[: night + 1]]
        noise = TrainingNoise(pooled(samples), "runs", "recipe")
        gains.append(compare(champion, statistics(correct), clusters, scoring=SCORING, metric="accuracy"))
        systems = [
            Scored(name, name, "t", found, noise=noise)
            for name, found in (("candidate", statistics(correct)), ("champion", champion))
        ]
        rule = RULE.model_copy(update={"latency_ms": None})
        expected.append(decide(*systems, rule, rows=rows, test_uses=night).verdict == "promote")

    values, variances, freedoms = comparisons(year.champion, right, SIZES, clustered=True)
    assert values == pytest.approx([gain.value for gain in gains])
    assert variances == pytest.approx([gain.sampling.value for gain in gains])
    assert freedoms == pytest.approx([gain.sampling.freedom for gain in gains])
    assert row_variances(year.champion, right) == pytest.approx(
        comparisons(year.champion, right, SIZES, clustered=False)[1]
    )
    noises, known = pooled_noise(year.scores)
    assert [Variance(value, count) for value, count in zip(noises, known, strict=True)][-1] == Variance(
        pytest.approx(noise.variance.value), noise.variance.freedom
    )
    found = new_rule(values, variances, freedoms, year.scores, rule=RULE, uses=range(1, 13))
    assert found.tolist() == expected
    assert 0 < sum(expected) < 12


def test_noise_of_one_seed_is_that_between_nights() -> None:
    scores = np.array([[0.60], [0.62], [0.64]])
    variances, freedoms = pooled_noise(scores)
    assert variances == pytest.approx([0.0002, 0.0004])
    assert freedoms.tolist() == [1, 2]


def test_the_old_rule_promotes_equal_recipes_and_the_new_one_does_not() -> None:
    generator = np.random.default_rng(0)
    years = [one_year(World("noise", SIZES), (1, 30), generator) for _ in range(15)]
    shares = {name: np.mean([year[name] for year in years], axis=0) for name in years[0]}

    assert shares["old"][1] > 0.5
    assert shares["new"][1] <= 2 / 15
    assert shares["new +0.08"][0] >= shares["new +0.03"][0]


def test_slices_and_intervals_are_measured() -> None:
    vetoed = slice_vetoes(5, NIGHTS, np.random.default_rng(0))
    assert vetoed["better"].mean() <= vetoed["better, any loss"].mean()
    found = intervals(SIZES, 10, 20, np.random.default_rng(0))
    assert found.keys() == {"rows", "bootstrap", "jackknife, G - 1", "jackknife"}
    sizes, source = cluster_sizes(Path("nowhere"))
    assert (len(sizes), source) == (88, "88 clusters, exponential sizes with a mean of 30 rows")
