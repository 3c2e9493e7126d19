"""Prediction in batches, and the head alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from components.config import Training
from components.finetuning.heads import ClassificationHead
from components.finetuning.model import batches_by_length, run_over
from components.finetuning.probe import fit_head, train_head
from components.finetuning.scores import dev_scores


def test_batches_hold_every_row_once_and_no_more_pieces_than_allowed() -> None:
    pieces = [np.zeros(length, dtype=np.int64) for length in (5, 1, 9, 3, 30, 2)]
    batches = [rows.tolist() for rows in batches_by_length(pieces, 10)]
    assert batches == [[1, 5, 3], [0], [2], [4]]


def test_results_come_in_the_order_of_the_texts() -> None:
    model = nn.Linear(1, 1)
    pieces = [np.full(length, length, dtype=np.int64) for length in (9, 2, 5)]
    found = run_over(lambda tokens, lengths: torch.stack([tokens[:, 0], lengths], 1), model, pieces)
    assert found.tolist() == [[9.0, 9.0], [2.0, 2.0], [5.0, 5.0]]


def two_blobs(classes: int = 3, rows: int = 12) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % classes
    return torch.from_numpy(rng.normal(size=(rows, 4)) + 2 * np.eye(4)[labels]).float(), labels


@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_head_is_the_logistic_regression_that_dev_likes_best(classes: int) -> None:
    x, labels = two_blobs(classes)
    head = ClassificationHead(4, classes)
    probe = fit_head(
        head,
        features=x,
        labels=labels,
        dev=x,
        score=lambda found: dev_scores(labels, found)["nll"] * -1,
        penalties=[1.0, 1000.0],
        steps=500,
    )
    assert probe.penalty == 1.0 and set(probe.scores) == {1.0, 1000.0}
    scaled = ((x - x.mean(0)) / x.std(0, correction=0)).double().numpy()
    expected = LogisticRegression(C=1.0, max_iter=500).fit(scaled, labels).predict_proba(scaled)
    found = head.eval()(x).softmax(1).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_of_equal_scores_the_stronger_penalty_wins() -> None:
    x, labels = two_blobs()
    probe = fit_head(
        ClassificationHead(4, 3),
        features=x,
        labels=labels,
        dev=x,
        score=lambda found: 1.0,
        penalties=[1.0, 1000.0],
        steps=50,
    )
    assert probe.penalty == 1000.0


def test_a_head_with_a_hidden_layer_is_trained_by_the_loop() -> None:
    x, labels = two_blobs()
    torch.manual_seed(0)
    head = ClassificationHead(4, 3, hidden=8, norm="batch")
    settings = Training(rate=0.03, batch_size=6, schedule="constant")
    train_head(head, features=x, labels=labels, settings=settings, steps=60, seed=0)
    assert dev_scores(labels, head.eval()(x).softmax(1).detach().numpy())["accuracy"] == 1.0


def test_dev_scores_by_hand() -> None:
    found = np.asarray([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32)
    scores = dev_scores(np.asarray([0, 1, 0, 0]), found)
    # Class 0: 2 of 3 found, no false one: F1 0.8; class 1: 1 found, 1 false: F1 2/3; class 2 does not occur.
    assert scores["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert scores["accuracy"] == 0.75
    assert scores["nll"] == pytest.approx(-(np.log(0.5) + np.log(0.75) + np.log(1.0) + np.log(1e-12)) / 4)
