"""Regularisation of fine-tuning: exact values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from components.models.encoder import load_encoder
from components.settings.finetune import FinetuneSettings
from components.task_models.heads import ClassificationHead
from components.task_models.kinds import classification
from components.task_models.kinds.multilabel import MultilabelHead
from components.task_models.model import TaskModel
from components.task_models.regularisation import Mixout, interpolated
from components.task_models.sampler import collate


def targets(*rows: list[float]) -> dict[str, torch.Tensor]:
    return {"targets": torch.tensor(rows, dtype=torch.float64)}


def test_label_smoothing_applies_in_training_only() -> None:
    head = ClassificationHead(2, 3, norm="none", smoothing=0.3).requires_grad_(False)
    logits = torch.tensor([[2.0, 0.0, 0.0]])
    p = torch.softmax(logits, 1)[0]
    # 0.3 of the probability is spread over three labels.
    expected = -(0.8 * math.log(p[0]) + 0.1 * math.log(p[1]) + 0.1 * math.log(p[2]))
    assert float(head.train().loss(logits, targets([0.0]))) == pytest.approx(expected, rel=1e-5)
    assert float(head.eval().loss(logits, targets([0.0]))) == pytest.approx(-math.log(p[0]), rel=1e-5)
    several = MultilabelHead(2, 2, norm="none", smoothing=0.2).requires_grad_(False).train()
    found = several.loss(torch.tensor([[1.0, -1.0]]), targets([0.0]))
    q = 1 / (1 + math.exp(-1.0))
    assert float(found) == pytest.approx(-(0.9 * math.log(q) + 0.1 * math.log(1 - q)), rel=1e-5)


def test_divergence_is_the_mean_of_both_directions() -> None:
    first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    p, q = torch.softmax(first, 1)[0], torch.softmax(second, 1)[0]
    both = sum(float(a * (a / b).log() + b * (b / a).log()) for a, b in zip(p, q, strict=True)) / 2
    assert float(ClassificationHead(2, 2, norm="none").divergence(first, second)) == pytest.approx(both, rel=1e-5)
    p, q = torch.sigmoid(first)[0], torch.sigmoid(second)[0]
    each = [
        float(a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log() + b * (b / a).log()
              + (1 - b) * ((1 - b) / (1 - a)).log()) / 2
        for a, b in zip(p, q, strict=True)
    ]  # fmt: skip
    found = MultilabelHead(2, 2, norm="none").divergence(first, second)
    assert float(found) == pytest.approx(sum(each) / 2, rel=1e-5)


def model(make_encoder, settings: FinetuneSettings, family: str = "bert", **changes: object):
    loaded = load_encoder(make_encoder(family))
    torch.manual_seed(0)
    own = settings.model_copy(update={"pooling": "mean", "layers": "last"} | changes)
    made = TaskModel(loaded.model, task=classification.TASK, settings=own, labels=["a", "b", "c"]).eval()
    rows = [("the apple is red",), ("old iron here",), ("a small cat",)]
    encoded = classification.encode(rows, loaded.tokenizer, loaded.model, own)
    return made, collate(encoded, [torch.tensor([float(row)]).numpy() for row in range(3)])


def test_mixout_keeps_the_mean_and_passes_the_gradient_of_kept_weights(make_encoder, settings) -> None:
    made, _ = model(make_encoder, settings)
    mixout = Mixout(made, probability=0.75)
    assert mixout.start and all(value.ndim > 1 for value in mixout.start.values())
    assert not any("head" in name or "embedding" in name for name in mixout.start)
    weight, start = torch.full((200, 200), 3.0, requires_grad=True), torch.full((200, 200), 1.0)
    torch.manual_seed(1)
    mixed = mixout.mixed(weight, start)
    # (3 - 0.75) / 0.25 for kept weights, (1 - 0.75) / 0.25 for those of the start.
    assert sorted(set(mixed.detach().flatten().tolist())) == [1.0, 9.0]
    assert float(mixed.detach().mean()) == pytest.approx(3.0, abs=0.1)
    mixed.sum().backward()
    assert torch.equal(weight.grad, (mixed.detach() == 9.0) * 4.0)


def test_mixout_changes_the_loss_of_training_steps_after_the_start(make_encoder, settings) -> None:
    made, batch = model(make_encoder, settings, dropout=0.0)
    made.encoder.set_dropout(0.0)
    made.head.dropout.p = 0.0
    made.train()
    plain = made.losses(batch).loss
    made.mixout = Mixout(made, probability=0.5)
    # At the start the mixed weights are the weights.
    torch.testing.assert_close(made.losses(batch).loss, plain, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        for parameter in made.encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    torch.manual_seed(3)
    first = made.losses(batch).loss
    torch.manual_seed(3)
    assert torch.equal(made.losses(batch).loss, first)
    assert not torch.equal(made.losses(batch).loss, first)
    made.eval()
    assert torch.equal(made.losses(batch).loss, made.batch_losses(batch).loss)


def test_inside_weights_are_interpolated_and_afterwards_the_same_bits() -> None:
    layer = nn.Linear(2, 2)
    start = {name: value.detach().clone() for name, value in layer.named_parameters()}
    with torch.no_grad():
        layer.weight.add_(1.0)
    before = layer.weight.detach().clone()
    with interpolated(layer, start, 0.25):
        torch.testing.assert_close(layer.weight.detach(), start["weight"] + 0.25)
    assert torch.equal(layer.weight, before)
    with interpolated(layer, {}, 1.0):
        assert torch.equal(layer.weight, before)


def test_r_drop_adds_the_divergence_of_two_passes(make_encoder, settings) -> None:
    made, batch = model(make_encoder, settings, r_drop=4.0)
    made.train()
    torch.manual_seed(5)
    found = made.losses(batch).loss
    torch.manual_seed(5)
    first, second = made(batch), made(batch)
    both = (made.head.loss(first, batch) + made.head.loss(second, batch)) / 2
    torch.testing.assert_close(found, both + 2.0 * made.head.divergence(first, second))
