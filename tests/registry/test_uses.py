"""The count of comparisons on test rows that change, and the error that is left for them."""

import pytest

from components.registry.decide import SKETCH, Use, share_of_new, sketch_of, use_of
from components.settings.registry import PromotionRule


def rows(start: int, end: int) -> list[tuple[str, ...]]:
    return [(f"row {number}",) for number in range(start, end)]


def made(number: int, test: list[tuple[str, ...]], *, against: str = "c", **changes: object) -> dict:
    """The decision on the candidate of a night."""
    return {
        "gain": 0.1,
        "metric": "macro_f1",
        "mode": "superiority",
        "candidate": {"digest": f"m{number}"},
        "champion": {"digest": against},
        "test": {"digest": str(hash(tuple(test))), "sketch": sketch_of(test)},
        **changes,
    }


def use(earlier: list[dict], test: list[tuple[str, ...]], *, number: int = 999) -> Use:
    comparison = (f"m{number}", "c", "macro_f1", "superiority")
    return use_of(earlier, digest=str(hash(tuple(test))), sketch=sketch_of(test), comparison=comparison)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (rows(0, 10), rows(0, 10), 0),
        (rows(0, 10), rows(0, 12), 2 / 12),
        (rows(0, 10), rows(5, 10), 0),
        (rows(0, 10), rows(8, 13), 3 / 5),
        (rows(0, 10), rows(10, 30), 1),
        # More rows than a sketch holds: an estimate.
        (rows(0, 3000), rows(0, 3000), 0),
        (rows(0, 3000), rows(0, 5000), pytest.approx(0.4, abs=0.12)),
        (rows(0, 3000), rows(1500, 3100), pytest.approx(100 / 1600, abs=0.06)),
        (rows(0, 100), rows(0, 1000), pytest.approx(0.9, abs=0.06)),
        (rows(0, 1000), rows(0, 100), 0),
        (rows(0, 3000), rows(3000, 6000), 1),
    ],
)
def test_the_share_of_new_rows(before, after, share):
    assert share_of_new(sketch_of(before), sketch_of(after)) == share
    assert len(sketch_of(after)) <= 12 * SKETCH


def test_a_row_more_a_night_does_not_begin_the_count_anew():
    earlier: list[dict] = []
    for night in range(90):
        now = rows(0, 400 + night)
        assert use(earlier, now) == Use(night + 1)
        earlier.append(made(night, now))
    # A repeated comparison has the number of its first occurrence.
    assert use(earlier, rows(0, 490), number=4) == Use(5)
    # A decision without a comparison has used nothing.
    assert use([*earlier, made(90, rows(0, 490), gain=None)], rows(0, 491)) == Use(91)


def test_more_than_half_new_rows_begin_the_count_anew_with_what_is_left():
    earlier = [made(0, rows(0, 20)), made(1, rows(0, 30))]
    assert use(earlier, rows(0, 40)) == Use(3)
    assert use(earlier, rows(0, 42)) == Use(1, 1 / 3)
    grown = [*earlier, made(2, rows(0, 42)), made(3, rows(0, 42))]
    # New since the first comparison of the second count.
    assert use(grown, rows(0, 84)) == Use(3, 1 / 3)
    assert use(grown, rows(0, 86)) == Use(1, 1 / 9)
    # Rows that are all new have not been used.
    assert use(grown, rows(1000, 1100)) == Use(1)
    assert use(earlier, rows(19, 80)) == Use(1, 1 / 3)


@pytest.mark.slow
def test_the_errors_of_all_counts_sum_to_alpha():
    rule, total, earlier = PromotionRule(), 0.0, list[dict]()
    for night in range(200):
        now = rows(0, 20 + 7 * night)
        made_use = use(earlier, now)
        total += rule.error_of(made_use.number, made_use.budget)
        earlier.append(made(night, now))
    assert 0.045 < total <= 0.05


def test_an_entry_without_a_sketch_counts():
    """Decisions of an earlier version: of the same rows, and of rows of which nothing is known."""
    old = made(0, rows(0, 10))
    del old["test"]["sketch"]
    assert use([old], rows(0, 10)) == Use(2)
    assert use([old], rows(50, 60)) == Use(2)
