"""Intervals of a fit cover the score of the model that it returns, also with few labels."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from components.data.scoring.intervals import exact_bound
from components.data.tasks.data import Split
from components.data.tasks.kinds.classification import Classification
from components.learners.select import choose
from headstart.report import bounds_of

SCORING = Classification(["0", "1"])
FOLDS, FEATURES = 5, 20
#: The simplest first.
PENALTIES = (1000.0, 100.0, 10.0)
Floats = NDArray[Any]


def split_of(labels: Floats) -> Split:
    rows = [(str(row),) for row in range(len(labels))]
    return Split(rows, [np.array([label], dtype=np.float64) for label in labels], [None] * len(labels))


def ridge(x: Floats, labels: Floats, penalty: float, new: Floats) -> list[Floats]:
    """The answers of a ridge regression to new rows."""
    targets, centre = np.eye(2)[labels], x.mean(0)
    centred = x - centre
    solved = np.linalg.solve(centred @ centred.T + penalty * np.eye(len(x)), targets - targets.mean(0))
    return list(((new - centre) @ centred.T @ solved + targets.mean(0)).astype(np.float32))


def draw(count: int, distance: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    labels = np.arange(count) % 2
    return distance * (labels[:, None] - 0.5) / np.sqrt(FEATURES) + rng.normal(size=(count, FEATURES)), labels


@pytest.mark.parametrize(("count", "distance"), [(16, 4.0), (24, 2.5), (30, 4.0)])
def test_the_interval_covers_the_score_of_the_final_model(count, distance):
    """Of a model that is chosen and learned on all rows, on many new ones. As if the rows were test rows, the
    intervals cover 0.40 to 0.72 of the scores at the larger distance."""
    rng, repeats, covered = np.random.default_rng(count), 50, 0
    new, truth = draw(2000, distance, rng)
    for _ in range(repeats):
        x, labels = draw(count, distance, rng)
        folds = rng.permutation(count // 2).repeat(2) % FOLDS
        candidates = {}
        for penalty in PENALTIES:
            answers = np.zeros((count, 2), dtype=np.float32)
            for fold in range(FOLDS):
                held = folds == fold
                answers[held] = ridge(x[~held], labels[~held], penalty, x[held])
            candidates[penalty] = list(answers)
        rows = split_of(labels)
        chosen, selected = choose(SCORING, rows, candidates, folds=folds)
        score, low, high = bounds_of(SCORING, rows, selected, folds=FOLDS)
        assert low <= score <= high
        judged = split_of(truth)
        final = ridge(x, labels, chosen[None], new)
        covered += low <= SCORING.score(judged.fields, judged.targets, final)["macro_f1"] <= high
    assert covered / repeats >= 0.94


def test_a_perfect_score_has_the_exact_bound():
    rows = split_of(np.arange(30) % 2)
    answers = [np.eye(2, dtype=np.float32)[row % 2] for row in range(30)]
    bound = 0.025 ** (1 / 30)
    assert bounds_of(SCORING, rows, answers, folds=5) == (1.0, pytest.approx(bound), 1.0) and 0.88 < bound < 0.89
    assert exact_bound(30, 0.025) == pytest.approx(1 - bound)


def test_a_class_without_a_right_answer_raises_the_upper_bound_by_the_one_of_its_rows():
    """Three of 16 rows are of a class that is never predicted: its recall is up to 0.71."""
    labels = np.array([0] * 13 + [1] * 3)
    score, _, high = bounds_of(SCORING, split_of(labels), [np.array([1, 0], dtype=np.float32)] * 16, folds=5)
    assert score == pytest.approx(26 / 29 / 2) and high == pytest.approx(score + (1 - 0.025 ** (1 / 3)) / 2)
