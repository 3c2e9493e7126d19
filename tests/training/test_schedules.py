"""Exact values of the learning-rate schedules."""

import pytest

from components.training.loop import SCHEDULES, slanted_triangular, stage_at, stages_of
from components.training.optim import discriminative
from tests.training.test_groups import layers


def rates(name: str, total: int, *, warmup: float, final: float = 0.0) -> list[float]:
    return [SCHEDULES[name](step, total, warmup=warmup, final=final) for step in range(total)]


@pytest.mark.parametrize(
    ("name", "total", "warmup", "final", "expected"),
    [
        ("constant", 5, 0.4, 0, [0.5, 1, 1, 1, 1]),
        ("linear", 6, 1 / 3, 0.25, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("cosine", 5, 0, 0.1, [1, 0.55 + 0.45 * 0.5**0.5, 0.55, 0.55 - 0.45 * 0.5**0.5, 0.1]),
    ],
)
def test_exact_rates(name, total, warmup, final, expected):
    assert rates(name, total, warmup=warmup, final=final) == pytest.approx(expected)


def test_the_schedule_starts_anew_with_each_unfrozen_group():
    groups = discriminative(layers(3), head=layers(1)[0], unfreeze_every=20)
    starts = stages_of(groups, 100)
    assert starts == [0, 20, 40, 60]
    assert [stage_at(step, starts, 100) for step in (0, 19, 20, 59, 60, 99)] == [
        (0, 20), (0, 20), (20, 40), (40, 60), (60, 100), (60, 100)
    ]  # fmt: skip
    # Groups that the training does not reach begin no stage.
    assert stages_of(groups, 40) == [0, 20]


def test_slanted_triangular_follows_the_formula():
    # T = 20, cut_frac = 0.1: cut = 2, then 18 steps of decay; ratio 32.
    def expected(step):
        p = step / 2 if step < 2 else 1 - (step - 2) / (2 * (1 / 0.1 - 1))
        return (1 + p * 31) / 32

    assert rates("slanted_triangular", 20, warmup=0.1) == pytest.approx([expected(step) for step in range(20)])
    assert slanted_triangular(0, 20, warmup=0.1, final=0) == pytest.approx(1 / 32)
    assert slanted_triangular(2, 20, warmup=0.1, final=0) == 1
