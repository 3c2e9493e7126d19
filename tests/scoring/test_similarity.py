"""Correlations from sums, compared with hand-computed values and scipy."""

import numpy as np
import pytest
from scipy import stats

from components.data.scoring.intervals import left_out
from components.data.tasks.kinds.numbers import Similarity

SCORING = Similarity()


def column(values: list[float] | np.ndarray) -> list[np.ndarray]:
    return [np.asarray([value]) for value in values]


def score(targets: list[float] | np.ndarray, answers: list[float] | np.ndarray) -> dict[str, float]:
    return SCORING.score([("", "")] * len(targets), column(targets), column(answers))


def test_scores_agree_with_scipy_where_values_are_equal():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 300) + 1000.0
    y = np.round(x + rng.normal(0, 2, 300), 1)
    actual = score(x, y)
    assert actual["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    assert actual["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic)


def test_a_constant_answer_has_correlation_zero():
    targets = column([1.0, 2.0, 4.0])
    answers = SCORING.constant(targets)
    assert answers[0].tolist() == pytest.approx([7 / 3])
    assert SCORING.score([("", "")] * 3, targets, answers) == {"spearman": 0.0, "pearson": 0.0}


@pytest.mark.parametrize("clusters", [None, np.arange(60) // 3, np.arange(60) % 7])
def test_rows_that_are_left_are_ranked_among_themselves(clusters, monkeypatch):
    """Without a cluster, and as a part of the rows; ties included."""
    monkeypatch.setattr("components.data.scoring.intervals.IN_CACHE", 150)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 60) / 4
    y = np.round(x + rng.normal(size=60), 1)
    matrix = SCORING.statistics([("", "")] * 60, column(x), column(y))
    without = left_out(matrix, clusters, SCORING.scores)
    of_rows = np.arange(60) if clusters is None else clusters
    for number in range(of_rows.max() + 1):
        left = np.flatnonzero(of_rows != number)
        part = SCORING.scores(SCORING.of_part(matrix[left]).sum(0))
        for name, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            expected = correlation(x[left], y[left]).statistic
            assert without[name][number] == pytest.approx(expected) and part[name] == pytest.approx(expected)


def test_equal_answers_have_no_rank_correlation_without_any_row():
    matrix = SCORING.statistics([("", "")] * 4, column([1.0, 2.0, 3.0, 4.0]), column([5.0] * 4))
    assert left_out(matrix, None, SCORING.scores)["spearman"].tolist() == [0.0] * 4
