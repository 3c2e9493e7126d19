"""Choice between systems by predictions of the same rows."""

from __future__ import annotations

import numpy as np

from components.scoring.paired import choose, is_worse
from components.tasks.kinds import scoring_for

SCORING = scoring_for("classification", ["a", "b"])
TARGETS = [np.asarray([row % 2], dtype=np.float64) for row in range(40)]
INPUTS = [("",)] * len(TARGETS)


def with_errors(*wrong: int) -> list[np.ndarray]:
    """Predictions that are right but for these rows."""
    predicted = [int(target[0]) ^ (row in wrong) for row, target in enumerate(TARGETS)]
    return [np.asarray([1.0 - label, label], dtype=np.float32) for label in predicted]


def test_a_small_difference_is_not_worse() -> None:
    assert not is_worse(SCORING, INPUTS, TARGETS, with_errors(0), with_errors())
    assert not is_worse(SCORING, INPUTS, TARGETS, with_errors(), with_errors(*range(8)))
    assert is_worse(SCORING, INPUTS, TARGETS, with_errors(*range(8)), with_errors())


def test_the_best_system_is_chosen_and_the_first_of_equals() -> None:
    systems = [with_errors(*range(8)), with_errors(0, 1), with_errors(2, 3)]
    assert choose(SCORING, INPUTS, TARGETS, systems) == 1


def test_a_preferred_system_is_chosen_unless_it_is_worse() -> None:
    best, near, far = with_errors(), with_errors(0), with_errors(*range(8))
    assert choose(SCORING, INPUTS, TARGETS, [best, near], preferred=[1]) == 1
    assert choose(SCORING, INPUTS, TARGETS, [best, far], preferred=[1]) == 0
    assert choose(SCORING, INPUTS, TARGETS, [best, far, near], preferred=[1, 2]) == 2
