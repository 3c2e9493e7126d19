"""Batches for contrastive training."""

from collections import Counter

import numpy as np

from components.learners.task_models.base import Encoded
from components.learners.ways.contrastive import ContrastiveSampler


def sampler(targets: list[list[int]], *, rows: int, seed: int = 0) -> ContrastiveSampler:
    encoded = [Encoded.of_texts([np.arange(6, 9 + row % 3)]) for row in range(len(targets))]
    return ContrastiveSampler(
        encoded, [np.asarray(target, dtype=np.float64) for target in targets], rows=rows, seed=seed
    )


def test_classes_of_different_sizes_are_balanced():
    actual = sampler([[0]] * 3 + [[1]] * 30, rows=6)
    uses = Counter(int(row) for step in range(10) for row in actual.rows(step))
    assert {step: Counter(int(row) >= 3 for row in actual.rows(step)) for step in range(10)} == {
        step: Counter({False: 3, True: 3}) for step in range(10)
    }
    # Every row of a class is used before one is used again.
    assert all(uses[row] == 10 for row in range(3)) and all(uses[row] == 1 for row in range(3, 33))


def test_many_classes_take_turns_with_two_rows_each():
    actual = sampler([[label] for label in range(10) for _ in range(3)], rows=8)
    assert (actual.width, actual.depth) == (4, 2)
    seen: Counter[int] = Counter()
    for step in range(5):
        classes = Counter(int(row) // 3 for row in actual.rows(step))
        # A class that is the last of one round and the first of the next has up to four rows.
        assert set(classes.values()) <= {2, 3}
        seen.update(classes.keys())
    assert set(seen) == set(range(10))


def test_a_row_of_several_labels_is_once_in_a_step_and_rows_without_labels_are_a_class():
    actual = sampler([[0, 1], [0, 1], [0], [1], [], []], rows=12)
    assert len(actual.classes) == 3
    assert actual.rows(0).tolist() == [0, 1, 2, 3, 4, 5]
