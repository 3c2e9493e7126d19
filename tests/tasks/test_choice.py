"""The one-standard-error rule, and scores that no choice has raised."""

from collections.abc import Collection

import numpy as np

from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.select import choose

SCORING = scoring_for("classification", ["a", "b"])
COUNT = 40


def rows(units: list[int] | None = None) -> Split:
    targets = [np.asarray([row % 2], dtype=np.float64) for row in range(COUNT)]
    numbers = np.arange(COUNT) if units is None else np.asarray(units)
    return Split([(f"text {row}",) for row in range(COUNT)], targets, [None] * COUNT, known_units=numbers)


def with_errors(wrong: Collection[int] = ()) -> list[np.ndarray]:
    """Predictions that are right but for these rows."""
    predicted = [row % 2 ^ (row in wrong) for row in range(COUNT)]
    return [np.asarray([1.0 - label, label], dtype=np.float32) for label in predicted]


def chosen(candidates: list[list[np.ndarray]], units: list[int] | None = None) -> int:
    return choose(SCORING, rows(units), dict(enumerate(candidates)))[0][None]


def test_the_first_candidate_that_is_not_clearly_worse_is_chosen():
    far, near, best = with_errors(range(8)), with_errors([0]), with_errors()
    assert chosen([far, near, best]) == 1
    assert chosen([near, far, best]) == 0
    assert chosen([far, best, near]) == 1
    assert chosen([best, best]) == 0, "a tie"


def test_errors_in_one_unit_are_one_error():
    # Eight more errors: eight independent ones are clear, all in one group are not.
    candidates = [with_errors(range(8)), with_errors([20])]
    assert chosen(candidates) == 1
    assert chosen(candidates, [0] * 8 + list(range(1, 33))) == 0


def test_each_fold_is_answered_by_the_choice_of_the_others():
    folds = np.arange(COUNT) // 10
    # The first candidate is wrong on fold 0, the second on fold 1 and 2.
    first, second = with_errors(range(10)), with_errors(range(10, 30))
    by_fold, _ = choose(SCORING, rows(), {0: first, 1: second}, folds=folds)
    assert by_fold == {None: 0, 0: 0, 1: 0, 2: 0, 3: 0}
    second = with_errors(range(10, 14))
    by_fold, answers = choose(SCORING, rows(), {0: first, 1: second}, folds=folds)
    assert by_fold == {None: 1, 0: 0, 1: 1, 2: 1, 3: 1}
    np.testing.assert_array_equal(answers, [*first[:10], *second[10:]])


def test_the_score_of_the_best_of_many_chance_predictions_is_that_of_chance():
    scores: dict[str, list[float]] = {"best": [], "honest": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        candidates = [list(np.eye(2, dtype=np.float32)[rng.integers(2, size=COUNT)]) for _ in range(16)]
        given = rows()
        actual = [SCORING.score(given.fields, given.targets, answers)["accuracy"] for answers in candidates]
        _, answers = choose(SCORING, given, dict(enumerate(candidates)), folds=np.arange(COUNT) % 5)
        scores["best"].append(max(actual))
        scores["honest"].append(SCORING.score(given.fields, given.targets, answers)["accuracy"])
    assert np.mean(scores["best"]) > 0.6
    assert abs(np.mean(scores["honest"]) - 0.5) < 0.04
