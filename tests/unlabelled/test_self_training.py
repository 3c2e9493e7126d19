"""Rounds of self-training and co-training."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from components.unlabelled.regression import fit
from components.unlabelled.self_training import Round, View, rounds

SETTINGS = {"count": 3, "confidence": 0.5, "weight": 1.0, "steps": 200, "seed": 0}


def clusters(count: int, *, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in 10 dimensions; their means differ in the first."""
    rng = np.random.default_rng(1)
    y = np.arange(count) % 2
    x = rng.normal(size=(count, 10)) * spread
    x[:, 0] += 4 * y - 2
    return x, y


def accuracy(found: Round, x: np.ndarray, y: np.ndarray, view: int = 0) -> float:
    return float((found.models[view].logits(x).argmax(1) == y).mean())


def test_clusters_are_found_from_few_labels() -> None:
    x, y = clusters(600, spread=1.5)
    targets, free = np.eye(2)[y[:6]], x[6:]
    alone = fit(x[:6], targets, np.ones(6), penalty=1.0, exclusive=True, steps=200)
    start, *found = rounds([View(x[:6], free, [1.0])], targets, exclusive=True, **SETTINGS)
    np.testing.assert_allclose(start.models[0].weight, alone.weight)
    assert len(found) == 3
    before = (alone.logits(free).argmax(1) == y[6:]).mean()
    assert accuracy(found[-1], free, y[6:]) > before + 0.02
    sizes = [one.pseudo_labels for one in found]
    assert sizes == sorted(sizes) and sizes[0] <= 200


@pytest.mark.parametrize("exclusive", [True, False])
def test_views_teach_each_other_and_the_same_rounds_come_again(exclusive: bool) -> None:
    x, y = clusters(400)
    other = np.stack([x[:, 0], np.ones(400)], axis=1)
    targets = np.eye(2)[y[:8]]
    views = [
        View(sparse.csr_matrix(x[:8, 1:]), sparse.csr_matrix(x[8:, 1:]), [1.0]),
        View(other[:8], other[8:], [0.1, 1.0]),
    ]
    first, second = (list(rounds(views, targets, exclusive=exclusive, **SETTINGS)) for _ in range(2))
    # The first view knows nothing of the classes, and the second keeps what it knows.
    assert accuracy(first[-1], other[8:], y[8:], view=1) > 0.9
    for one, two in zip(first, second, strict=True):
        for left, right in zip(one.models, two.models, strict=True):
            np.testing.assert_array_equal(left.weight, right.weight)


def test_without_pseudo_labels_a_round_is_the_fit_of_the_labelled_rows() -> None:
    x, y = clusters(40)
    targets = np.eye(2)[y[:10]]
    settings = SETTINGS | {"confidence": 1.0}
    _, found, *_ = rounds([View(x[:10], x[10:] * 0, [1.0])], targets, exclusive=True, **settings)
    alone = fit(x[:10], targets, np.ones(10), penalty=1.0, exclusive=True, steps=200)
    assert found.pseudo_labels == 0
    np.testing.assert_allclose(found.models[0].weight, alone.weight, atol=1e-3)
