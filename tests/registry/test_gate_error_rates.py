"""The simulation of error rates computes what the rule computes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gate_error_rates import GATES, LEVELS, SHARES, TestSet, World, exponential_sizes
from components.data.scoring.classification import Classification
from components.data.scoring.intervals import sampling_variance
from components.registry.promotion import Scored, TestRows, decide
from components.settings.promote import PromotionRule


@pytest.mark.parametrize("clustered", [True, False])
def test_verdicts_are_those_of_decide(*, clustered: bool) -> None:
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
    groups = [f"g{number}" for number in test.clusters] if clustered else None
    assert champion.statistics is not None
    rows = TestRows("t", scoring, champion.statistics, groups=groups)
    verdicts = []
    for night, candidate in enumerate(candidates, start=1):
        decision = decide(candidate, champion, PromotionRule(), rows=rows, test_uses=night)
        assert decision.gain == pytest.approx(scores[night] - scores[0])
        sampling = sampling_variance(without[night] - without[0], test.sizes)
        gain = float(scores[night] - scores[0])
        verdicts.append(decision.verdict == "promote")
        assert GATES["gate"].promotes(gain, sampling, use=night) is verdicts[-1]
    assert 0 < sum(verdicts) < 12
