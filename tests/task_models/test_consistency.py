"""Consistency on texts without labels: batches, the loss by hand, and the teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.settings.unlabelled import UnlabelledSettings
from components.task_models.base import Encoded
from components.task_models.consistency import PARTIAL, WHOLE, ConsistencySampler, ConsistentModel, kept_pieces
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.task_models.sampler import ExampleSampler


def sampler(dropped: float = 0.5) -> ConsistencySampler:
    labelled = [Encoded.of_texts([[2, 7, 8, 3]]), Encoded.of_texts([[2, 9, 3]])]
    targets = [np.array([0.0]), np.array([1.0])]
    free = [Encoded.of_texts([[2, *range(10, 20 + row), 99, 3]]) for row in range(10)]
    examples = ExampleSampler(labelled, targets, batch_size=2, seed=0)
    return ConsistencySampler(examples, free, ratio=2, dropped=dropped, kept=frozenset({99}), seed=1)


def test_a_batch_has_two_views_of_unlabelled_rows() -> None:
    found = sampler().batch(3)
    assert found["tokens"].shape[0] == 2 and found["targets"].flatten().tolist() in ([0, 1], [1, 0])
    assert found[f"{WHOLE}tokens"].shape[0] == found[f"{PARTIAL}tokens"].shape[0] == 4
    lengths = zip(found[f"{WHOLE}lengths"].tolist(), found[f"{PARTIAL}lengths"].tolist(), strict=True)
    rows = zip(found[f"{WHOLE}tokens"].tolist(), found[f"{PARTIAL}tokens"].tolist(), strict=True)
    for (long, short), (whole, partial) in zip(lengths, rows, strict=True):
        assert short < long
        # The rest in order, with the pieces that a family adds.
        assert [piece for piece in whole[:long] if piece in partial[:short]] == partial[:short]
        assert partial[0] == 2 and partial[short - 2 : short] == [99, 3]


def test_batches_are_functions_of_the_step_and_no_piece_is_dropped_at_share_0() -> None:
    first, second = sampler(), sampler()
    first.batch(0)
    for name, tensor in first.batch(5).items():
        torch.testing.assert_close(tensor, second.batch(5)[name], rtol=0, atol=0)
    whole = sampler(dropped=0.0).batch(2)
    assert torch.equal(whole[f"{WHOLE}tokens"], whole[f"{PARTIAL}tokens"])
    assert first.tokens_before(1) > 0


def model(kind: str, **settings: float) -> ConsistentModel:
    torch.manual_seed(0)
    encoder = build_model("bert", vocabulary=120, settings={"width": 8, "layers": 1, "heads": 2, "dropout": 0.5})
    tuning = FinetuneSettings(training=Training(rate=0.1, batch_size=2), pooling="mean", layers="last")
    made = TaskModel(encoder, task=find_task(kind), settings=tuning, labels=["a", "b"])
    return ConsistentModel(made, settings=UnlabelledSettings(**settings), shares=np.array([0.5, 0.5]))


def test_the_loss_of_exclusive_labels() -> None:
    found = model("classification", confidence=0.7, temperature=0.5)
    targets = torch.tensor([[0.8, 0.2], [0.6, 0.4]])
    outputs = torch.tensor([[1.0, 0.0], [5.0, -5.0]])
    # The second row is not confident. Sharpened: 0.64 and 0.04 of 0.68.
    log = np.log(np.exp([1.0, 0.0]) / (np.e + 1))
    expected = -(0.64 * log[0] + 0.04 * log[1]) / 0.68 / 2
    assert found.loss(outputs, targets).item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_independent_labels() -> None:
    found = model("multilabel", confidence=0.7, temperature=1.0)
    targets, outputs = torch.tensor([[0.1, 0.6]]), torch.tensor([[2.0, 3.0]])
    # Of the second label the teacher is not sure.
    expected = (np.log1p(np.exp(2.0)) - 0.1 * 2.0) / 2
    assert found.loss(outputs, targets).item() == pytest.approx(expected, rel=1e-5)


def test_the_teacher_follows_and_learns_nothing_itself() -> None:
    found = model("classification", decay=0.9, confidence=0.0).train()
    batch = sampler().batch(0)
    before = [parameter.clone() for parameter in found.teacher.parameters()]
    with torch.no_grad():
        for parameter in found.model.parameters():
            parameter.add_(1.0)
    losses = found.losses(batch)
    # (1 + 1) / (10 + 1) is less than the decay.
    for old, new in zip(before, found.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 9 / 11)
    losses.loss.backward()
    assert all(parameter.grad is None for parameter in found.teacher.parameters())
    assert any(parameter.grad is not None for parameter in found.model.parameters())
    found.restart()
    for mine, theirs in zip(found.teacher.parameters(), found.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_predictions_are_aligned_with_the_shares_of_the_labels() -> None:
    found = model("classification").train()
    assert not found.teacher.training and found.model.training
    found.mean.copy_(torch.tensor([0.9, 0.1]))
    batch = {name.removeprefix(WHOLE): tensor for name, tensor in sampler().batch(0).items() if name.startswith(WHOLE)}
    raw = found.teacher(batch).softmax(1)
    aligned = found._targets(batch)
    expected = raw * torch.tensor([0.5, 0.5]) / found.mean
    torch.testing.assert_close(aligned, expected / expected.sum(1, keepdim=True))


def test_pieces_that_a_family_adds() -> None:
    assert kept_pieces(model("classification").model.encoder) == {2, 3}
