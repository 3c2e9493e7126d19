"""Errors and correlations of numbers, compared with hand-computed values and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score

from components.data.scoring.intervals import left_out
from components.data.tasks.kinds.numbers import Regression

SCORING = Regression()


def column(values: list[float] | np.ndarray) -> list[np.ndarray]:
    return [np.asarray([value]) for value in values]


def score(targets: list[float] | np.ndarray, answers: list[float] | np.ndarray) -> dict[str, float]:
    return SCORING.score([("",)] * len(targets), column(targets), column(answers))


def test_scores_by_hand():
    # Errors 0, 1, 1, 2; the targets deviate from their mean by -1.5, -0.5, 0.5 and 1.5.
    assert score([1, 2, 3, 4], [1, 3, 2, 6]) == {
        "r2": pytest.approx(1 - 6 / 5),
        "pearson": pytest.approx((1.5 * 2 - 0.5 * 0 - 0.5 * 1 + 1.5 * 3) / np.sqrt(5 * 14)),
        "spearman": pytest.approx(0.8),
        "mae": 1.0,
    }
    assert list(score([1, 2], [1, 2])) == ["r2", "pearson", "spearman", "mae"]


def test_a_wrong_mean_or_spread_lowers_the_primary_metric_alone():
    targets = np.asarray([1.0, 2.0, 3.0])
    for answers in (targets + 5, 2 * targets, 2 + 0.1 * (targets - 2)):
        actual = score(targets, answers)
        assert actual["pearson"] == pytest.approx(1) and actual["r2"] < 0.5
    assert SCORING.main == "r2"


def test_targets_far_from_zero_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 200) + 1e6
    y = x + rng.normal(0, 2, 200)
    actual = score(x, y)
    assert actual["r2"] == pytest.approx(r2_score(x, y)) and actual["mae"] == pytest.approx(mean_absolute_error(x, y))
    matrix = SCORING.statistics([("",)] * 200, column(x), column(y))
    expected = [r2_score(np.delete(x, row), np.delete(y, row)) for row in range(200)]
    np.testing.assert_allclose(left_out(matrix, None, SCORING.scores)["r2"], expected)


def test_a_constant_answer_and_equal_targets_have_score_zero():
    targets = column([1.0, 2.0, 4.0])
    answers = SCORING.constant(targets)
    actual = SCORING.score([("",)] * 3, targets, answers)
    assert actual["r2"] == pytest.approx(0, abs=1e-6) and actual["pearson"] == actual["spearman"] == 0
    assert actual["mae"] == pytest.approx((4 / 3 + 1 / 3 + 5 / 3) / 3)
    assert score([3, 3], [3, 4]) == {"r2": 0.0, "pearson": 0.0, "spearman": 0.0, "mae": 0.5}
