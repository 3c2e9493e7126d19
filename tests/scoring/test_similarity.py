"""Correlations from sums, compared with hand-computed values and scipy."""

import numpy as np
import pytest
from scipy import stats

from components.data.scoring.intervals import left_out
from components.data.scoring.numbers import Similarity

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


def test_parts_keep_the_ranks_of_all_rows():
    x, y = np.asarray([1.0, 2.0, 3.0, 4.0, 5.0]), np.asarray([2.0, 1.0, 4.0, 3.0, 9.0])
    without = left_out(SCORING.statistics([("", "")] * 5, column(x), column(y)), None, SCORING.scores)
    for name, values in (("pearson", (x, y)), ("spearman", (stats.rankdata(x), stats.rankdata(y)))):
        expected = [np.corrcoef(*(np.delete(side, row) for side in values))[0, 1] for row in range(5)]
        assert without[name] == pytest.approx(expected)
