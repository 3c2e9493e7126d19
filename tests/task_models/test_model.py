"""Prediction in batches, and training of the head on features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from components.learners.task_models.base import Encoded
from components.learners.task_models.features import FeatureTable
from components.learners.task_models.heads import ClassificationHead
from components.learners.task_models.model import batches_by_length, run_over, states_by_length
from components.learners.task_models.probe import HeadCandidate, HeadRows, solve_head
from components.learners.task_models.sampler import collate
from components.models.encoder import load_encoder


def text(*pieces: int) -> Encoded:
    return Encoded.of_texts([pieces])


def test_a_batch_of_a_quarter_of_the_budget_ends_before_padding():
    def batches(lengths, budget):
        ones = np.ones(len(lengths), dtype=np.int64)
        return [rows.tolist() for rows in batches_by_length(np.asarray(lengths), ones, budget)]

    # With the row of 11, 3 of 44 pieces would be padding: too many, once 3 x 11 exceed a quarter of the budget.
    assert batches([10, 10, 10, 11], 132) == [[0, 1, 2, 3]]
    assert batches([10, 10, 10, 11], 131) == [[0, 1, 2], [3]]
    # 6 of 182 padded pieces are allowed, 12 of 189 are not.
    assert batches([*[25] * 6, 26], 300) == [[*range(7)]]
    assert batches([*[25] * 6, 27], 300) == [[*range(6)], [6]]


@pytest.mark.parametrize("family", ["bert", "gpt", "xlnet"])
def test_sequences_are_encoded_in_groups_of_similar_length(family, make_encoder, monkeypatch):
    monkeypatch.setattr("components.learners.task_models.model.GROUP_PIECES", 32)
    encoder = load_encoder(make_encoder(family)).model.eval()
    batch = collate([Encoded.of_texts([[2, 5, 6, 7, 8, 9, 5, 3], [2, 6, 3]]), text(2, 7, 8, 3), text(2, 9, 3)])
    expected = encoder.hidden_states(batch["tokens"], batch["lengths"])
    read = encoder.hidden_states
    shapes: list[tuple[int, ...]] = []

    def watched(tokens, *others):
        shapes.append(tuple(tokens.shape))
        return read(tokens, *others)

    monkeypatch.setattr(encoder, "hidden_states", watched)
    actual = states_by_length(encoder, batch)
    assert shapes == [(3, 4), (1, 8)]
    inside = torch.arange(8) < batch["lengths"][:, None]
    for layer, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(layer[inside], right[inside], atol=1e-5, rtol=1e-4)


def two_blobs(classes: int = 3, rows: int = 12) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % classes
    return torch.from_numpy(rng.normal(size=(rows, 4)) + 2 * np.eye(4)[labels]).float(), labels


def fit_head(head, *, features, labels, penalty):
    table, targets = FeatureTable.of(features[:, None].numpy()), list(labels[:, None].astype(float))
    solve_head(head, rows=HeadRows(table, targets), candidate=HeadCandidate(None, penalty), steps=500)


@pytest.mark.parametrize(("seen", "classes"), [(2, 2), (3, 3), (2, 3)])
def test_the_penalty_of_a_fitted_head_is_that_of_its_loss_and_of_scikit_learn(seen, classes):
    x, labels = two_blobs(seen, rows=30)
    head = ClassificationHead(4, classes, norm="none", dropout=0.0)
    fit_head(head, features=x, labels=labels, penalty=3.0)
    expected = LogisticRegression(C=1 / 3, tol=1e-8, max_iter=500).fit(x.numpy(), labels)
    weights = head.output.weight.detach().numpy()
    actual = weights[1:2] - weights[:1] if seen == 2 else weights
    np.testing.assert_allclose(actual, expected.coef_, atol=1e-3)
    if seen < classes:  # a class without rows has a small probability, and a gradient
        assert head.penalty == pytest.approx(2 * 3 / 30)
        return
    head.loss(head(x), {"targets": torch.from_numpy(labels[:, None]).double()}).backward()
    assert head.output.weight.grad is not None
    assert head.output.weight.grad.abs().max() < 1e-3


def test_results_are_in_the_order_of_the_rows():
    model = nn.Linear(1, 1)
    actual = run_over(
        lambda batch: [tuple(pair) for pair in torch.stack([batch["tokens"][:, 0], batch["lengths"]], 1).tolist()],
        model,
        [text(*[length] * length) for length in (9, 2, 5)],
    )
    assert actual == [(9, 9), (2, 2), (5, 5)]
    assert run_over(list, model, []) == []
