"""The loss of distillation by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from components.learners.task_models.heads import ImitatingHead
from components.learners.task_models.kinds import find_task
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

SETTINGS = FinetuneSettings(training=Training(rate=0.1, batch_size=2), head_norm="none", head_dropout=0.0)


def loss(kind: str, outputs: list[list[float]], targets: list[list[float]], **batch: Tensor) -> float:
    """The loss at temperature 2."""
    head = find_task(kind).head(SETTINGS, 3, ["a", "b"])
    assert isinstance(head, ImitatingHead)
    found = head.imitation(torch.tensor(outputs), {"targets": torch.tensor(targets), **batch}, temperature=2.0)
    return float(found)


def test_exclusive_labels() -> None:
    # At temperature 2 the model says 1/3, 2/3; the teachers 1/2, 1/2 and 2/3, 1/3.
    outputs = [[0.0, math.log(4)]] * 2
    first, second = 4 * math.log(1.125) / 2, 4 * math.log(2) / 3
    assert loss("classification", outputs, [[0.5, 0.5], [0.8, 0.2]]) == pytest.approx((first + second) / 2)
    assert loss("pair", [[0.0, math.log(4)]], [[0.2, 0.8]]) == pytest.approx(0, abs=1e-6)


def test_several_labels() -> None:
    # Each label has a distribution of its own: 1/3, 2/3 of the model, 2/3, 1/3 and 1/3, 2/3 of the teacher.
    found = loss("multilabel", [[math.log(4), math.log(4)]], [[0.2, 0.8]])
    assert found == pytest.approx(4 * math.log(2) / 3 / 2)


def test_choices() -> None:
    # The second row has one choice, which costs nothing.
    outputs, targets = [[0.0], [math.log(4)], [5.0]], [[0.8, 0.2], [1.0, math.nan]]
    found = loss("choice", outputs, targets, rows=torch.tensor([0, 0, 1]))
    assert found == pytest.approx(4 * math.log(2) / 3 / 2)


def test_numbers() -> None:
    head = find_task("regression").head(SETTINGS, 3, [])
    assert isinstance(head, ImitatingHead)
    found = head.imitation(torch.tensor([[1.0], [3.0]]), {"targets": torch.tensor([[2.0], [0.0]])}, temperature=2.0)
    assert float(found) == pytest.approx((1 + 9) / 2)
