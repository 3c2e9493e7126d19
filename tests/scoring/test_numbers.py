"""Errors and correlations of numbers, compared with hand-computed values, scipy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_absolute_error, r2_score

from components.data.scoring.intervals import left_out
from components.data.tasks.kinds.numbers import Regression, Similarity

Values = list[float] | np.ndarray
REGRESSION, SIMILARITY = Regression(), Similarity()


def column(values: Values) -> list[np.ndarray]:
    return [np.asarray([value]) for value in values]


def score(targets: Values, answers: Values, scoring: Regression | Similarity = REGRESSION) -> dict[str, float]:
    return scoring.score([("", "")] * len(targets), column(targets), column(answers))


def statistics(targets: Values, answers: Values, scoring: Regression | Similarity = REGRESSION):
    return scoring.statistics([("", "")] * len(targets), column(targets), column(answers))


def test_scores_by_hand():
    # Errors 0, 1, 1, 2; the targets deviate from their mean by -1.5, -0.5, 0.5 and 1.5.
    assert score([1, 2, 3, 4], [1, 3, 2, 6]) == {
        "r2": pytest.approx(1 - 6 / 5),
        "pearson": pytest.approx((1.5 * 2 - 0.5 * 0 - 0.5 * 1 + 1.5 * 3) / np.sqrt(5 * 14)),
        "spearman": pytest.approx(0.8),
        "mae": 1.0,
    }
    assert (REGRESSION.main, SIMILARITY.main) == ("r2", "spearman")


def test_a_wrong_mean_or_spread_lowers_the_primary_metric_alone():
    targets = np.asarray([1.0, 2.0, 3.0])
    for answers in (targets + 5, 2 * targets, 2 + 0.1 * (targets - 2)):
        actual = score(targets, answers)
        assert actual["pearson"] == pytest.approx(1) and actual["r2"] < 0.5


def test_targets_far_from_zero_with_equal_values_agree_with_scipy_and_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 200) + 1e6
    y = np.round(x + rng.normal(0, 2, 200), 1)
    expected = {"spearman": stats.spearmanr(x, y).statistic, "pearson": stats.pearsonr(x, y).statistic}
    assert score(x, y, SIMILARITY) == pytest.approx(expected)
    assert score(x, y) == pytest.approx(expected | {"r2": r2_score(x, y), "mae": mean_absolute_error(x, y)})
    without = [r2_score(np.delete(x, row), np.delete(y, row)) for row in range(200)]
    np.testing.assert_allclose(left_out(statistics(x, y), None, REGRESSION.scores)["r2"], without)


def test_a_constant_answer_and_equal_targets_have_score_zero():
    targets = [1.0, 2.0, 4.0]
    constant = [float(answer[0]) for answer in REGRESSION.constant(column(targets))]
    assert constant == pytest.approx([7 / 3] * 3)
    actual = score(targets, constant)
    assert actual["r2"] == pytest.approx(0, abs=1e-6) and actual["pearson"] == actual["spearman"] == 0
    assert actual["mae"] == pytest.approx((4 / 3 + 1 / 3 + 5 / 3) / 3)
    assert score([3, 3], [3, 4]) == {"r2": 0.0, "pearson": 0.0, "spearman": 0.0, "mae": 0.5}
    matrix = statistics(targets, [5.0] * 3, SIMILARITY)
    assert left_out(matrix, None, SIMILARITY.scores)["spearman"].tolist() == [0.0] * 3


@pytest.mark.parametrize("clusters", [None, np.arange(60) // 3, np.arange(60) % 7])
def test_rows_that_are_left_are_ranked_among_themselves(clusters, monkeypatch):
    """Without a cluster, and as a part of the rows; ties included."""
    monkeypatch.setattr("components.data.scoring.intervals.IN_CACHE", 150)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 60) / 4
    y = np.round(x + rng.normal(size=60), 1)
    matrix = statistics(x, y, SIMILARITY)
    without = left_out(matrix, clusters, SIMILARITY.scores)
    of_rows = np.arange(60) if clusters is None else clusters
    for number in range(of_rows.max() + 1):
        left = np.flatnonzero(of_rows != number)
        part = SIMILARITY.scores(SIMILARITY.of_part(matrix[left]).sum(0))
        for name, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            expected = correlation(x[left], y[left]).statistic
            assert without[name][number] == pytest.approx(expected) and part[name] == pytest.approx(expected)
