"""Dropout of heads that are trained on features."""

from __future__ import annotations

import numpy as np
import torch

from components.learners.finetuning.features import FeatureTable
from components.learners.finetuning.probe import train_head
from components.learners.task_models.heads import ClassificationHead
from components.settings.training import Training


def test_a_head_is_trained_with_dropout() -> None:
    """A task model is built in evaluation mode; its head alone must not be trained in that mode."""
    head = ClassificationHead(4, 2, hidden=3).eval()
    modes = []
    head.dropout.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    table = FeatureTable.of_texts(torch.randn(6, 4))
    targets = [np.asarray([row % 2], dtype=np.float32) for row in range(6)]
    train_head(head, table=table, targets=targets, settings=Training(rate=0.1, batch_size=3), steps=2, seed=0)
    assert modes == [True, True]
