"""Tests, effects, words and false alarms of the comparison with a reference."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from components.registry.drift import comparison
from components.registry.drift.comparison import chi_square, compare, holm, mean_discrepancy, told_apart
from components.registry.drift.measurements import ROW, SKETCH, Measured

LABELS = ("bug", "question", "praise")


def rows(count: int, *, seed: int, longer: float = 1.0, unknown: float = 0.02, moved: float = 0.0,
         shares: tuple[float, ...] = (0.5, 0.3, 0.2), confidence: float = 8.0) -> Measured:  # fmt: skip
    rng = np.random.default_rng(seed)
    actual = np.zeros(count, dtype=ROW)
    actual["characters"] = longer * rng.lognormal(4.5, 0.5, count)
    actual["pieces"] = actual["characters"] // 5 + 1
    actual["unknown"] = rng.binomial(actual["pieces"], unknown)
    actual["label"] = rng.choice(len(shares), count, p=shares)
    actual["score"] = rng.beta(confidence, 2, count)
    actual["sketch"] = rng.normal(moved, 1, (count, SKETCH))
    return Measured("classification", LABELS, actual)


def reference(*, seed: int = 99, count: int = 1000) -> Measured:
    return replace(rows(count, seed=seed), unseen=np.arange(count) % 2 == 0)


def check(new: Measured) -> list[str]:
    actual = compare(reference(), new, source="batch.csv")
    return [feature.name for feature in actual.features if feature.alarm]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, []),
        ({"longer": 2.3}, ["length"]),
        ({"unknown": 0.14}, ["unknown"]),
        ({"moved": 0.5}, ["content"]),
        ({"shares": (0.1, 0.3, 0.6)}, ["classes"]),
        ({"confidence": 2.0}, ["score"]),
    ],
)
def test_each_kind_of_drift_is_found_and_no_other(change, names):
    assert check(rows(800, seed=1, **change)) == names


def test_a_significant_but_small_difference_raises_no_alarm(monkeypatch):
    new = rows(2000, seed=1, shares=(0.57, 0.25, 0.18))
    monkeypatch.setattr(comparison, "ERROR", 0.9)
    actual = compare(reference(), new, source="batch.csv")
    assert not actual.drift and "with an effect below 0.1: classes" in actual.sentence
    monkeypatch.setattr(comparison, "LEAST_EFFECT", 0.05)
    assert check(new) == ["classes"]


def test_predictions_are_compared_with_rows_that_were_not_learned():
    """On rows of train the model is certain of itself; that is no drift."""
    learned, other = rows(1000, seed=2, confidence=200.0, shares=(0.8, 0.1, 0.1)), rows(1000, seed=3)
    mixed = replace(learned, rows=np.concatenate([learned.rows, other.rows]), unseen=np.repeat([False, True], 1000))
    actual = compare(mixed, rows(800, seed=4), source="s")
    assert not actual.drift, actual.sentence


def test_too_few_rows_are_not_compared():
    actual = compare(reference(), rows(199, seed=1, longer=9), source="batch.csv")
    assert not actual.drift and not actual.features
    assert actual.sentence == "batch.csv: not compared, 199 rows of at least 200"


def test_a_model_without_pieces_has_no_features_of_them():
    new, old = rows(500, seed=1), reference()
    for measured in (new, old):
        measured.rows["pieces"] = measured.rows["unknown"] = 0
        measured.rows["sketch"] = np.nan
    actual = compare(old, new, source="s")
    assert [feature.name for feature in actual.features] == ["length", "score", "classes"]


def test_the_rate_of_false_alarms_is_the_stated_one(monkeypatch):
    """150 checks without drift at an error of 10% each. A reference that is new each time makes them independent."""
    monkeypatch.setattr(comparison, "ERROR", 0.1)
    monkeypatch.setattr(comparison, "LEAST_EFFECT", 0.0)
    alarms = sum(
        compare(reference(seed=2 * number, count=400), rows(300, seed=2 * number + 1), source="").drift
        for number in range(150)
    )
    assert stats.binom.ppf(0.001, 150, 0.02) <= alarms <= stats.binom.ppf(0.999, 150, 0.1)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_chi_square_agrees_with_the_asymptotic_test():
    counts = np.array([[300, 200, 100, 0], [130, 110, 60, 0]])
    wanted = stats.chi2_contingency(counts[:, :3]).pvalue
    assert chi_square(counts, most=20_000) == pytest.approx(wanted, rel=0.1)
    assert chi_square(np.array([[300, 300], [10, 290]]), most=999) == 1 / 1000
    assert chi_square(np.array([[0, 300], [0, 290]]), most=999) == 1


def test_content_of_another_scale_is_told_apart():
    """Means and deviations of single columns are equal; the columns are dependent in one sample only."""
    rng = np.random.default_rng(0)
    old = rng.normal(size=(600, SKETCH))
    new = np.repeat(rng.normal(size=(600, SKETCH // 4)), 4, axis=1)
    assert mean_discrepancy(old, new, most=999) == 1 / 1000
    assert told_apart(old, new) > 0.7
    assert abs(told_apart(old, rng.normal(size=(600, SKETCH))) - 0.5) < 0.07
