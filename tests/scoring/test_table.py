"""Properties of the metrics of every kind."""

import numpy as np
import pytest

from components.data.tasks.kinds import KINDS, scoring_for

LABELS = ["B-X", "I-X", "O"]
FIELDS = {"questions": ("who", "a b c"), "choice": ("prompt", "one", "two", "three")}


def rows(kind: str, rng: np.random.Generator, count: int = 40) -> tuple[list, list, list]:
    """Random fields, targets and answers of a kind."""
    targets, answers = [], []
    for _ in range(count):
        target, answer = rng.integers(0, 3, 1).astype(float), rng.dirichlet(np.ones(3))
        if kind == "multilabel":
            target, answer = np.flatnonzero(rng.random(3) < 0.5).astype(float), rng.random(3)
        elif kind in ("similarity", "regression"):
            target, answer = rng.random(1), rng.random(1)
        elif kind == "tagging":
            target, answer = rng.integers(0, 3, (2, 5)).astype(float)
        elif kind == "questions":
            target = np.asarray([0.0, 1.0] if rng.random() < 0.5 else [])
            answer = np.asarray([0.0, rng.integers(0, 2), 1.0, 0.5])
        targets.append(target)
        answers.append(answer.astype(np.float32))
    return [FIELDS.get(kind, ("text",))] * count, targets, answers


@pytest.mark.parametrize("kind", KINDS)
def test_scores_lie_in_their_ranges_and_a_constant_can_be_scored(kind):
    scoring = scoring_for(kind, LABELS)
    fields, targets, answers = rows(kind, np.random.default_rng(0))
    matrix = scoring.statistics(fields, targets, answers)
    assert matrix.shape == (40, scoring.width)
    for sums in (matrix.sum(0), matrix.sum(0) - matrix.toarray()):
        actual = scoring.scores(sums)
        assert tuple(actual) == scoring.names and scoring.names[0] == scoring.main
        for name, values in actual.items():
            low, high = scoring.ranges[name]
            assert np.isfinite(values).all() and np.all(values >= low) and np.all(values <= high)
            assert np.shape(values) == np.shape(sums)[:-1]
    best = scoring.score(fields, targets, scoring.constant(targets))
    assert best.keys() == actual.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_correct_answers_have_the_maximum_score(kind):
    scoring = scoring_for(kind, LABELS)
    fields, targets, _ = rows(kind, np.random.default_rng(1))
    if kind in ("classification", "pair", "choice"):
        answers = [np.eye(3, dtype=np.float32)[int(target[0])] for target in targets]
    elif kind == "multilabel":
        answers = [np.eye(3, dtype=np.float32)[target.astype(int)].sum(0) for target in targets]
    elif kind == "questions":
        answers = [np.asarray([*(target if len(target) else (0, 0)), 1, 0], dtype=np.float32) for target in targets]
    else:
        answers = [target.astype(np.float32) for target in targets]
    assert scoring.score(fields, targets, answers)[scoring.main] == pytest.approx(1)
