"""Normalisations of the head's input: exact values, blocks of features, the stored choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from components.learners.task_models.heads import BlockNorm, ClassificationHead, Statistics, TextHead
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

#: Blocks of widths 2 and 1; variances 1 and 7, and 4: stds 2 and 2.
ROWS = torch.tensor([[0.0, 0.0, 5.0], [2.0, 2 * 7**0.5, 9.0]])


def fitted(kind: Statistics, rows: Tensor = ROWS) -> BlockNorm:
    norm = BlockNorm(3, kind=kind)
    norm.blocks = [2, 1]
    norm.fit(rows)
    return norm


def test_a_block_has_one_std() -> None:
    norm = fitted("block")
    torch.testing.assert_close(norm.mean, torch.tensor([1.0, 7**0.5, 7.0]))
    torch.testing.assert_close(norm.deviation, torch.tensor([2.0, 2.0, 2.0]))
    torch.testing.assert_close(norm(torch.tensor([[5.0, 7**0.5, 3.0]])), torch.tensor([[2.0, 0.0, -2.0]]))
    assert fitted("block", torch.zeros(2, 3)).deviation.tolist() == [1, 1, 1]


def test_the_blocks_of_a_text_have_one_length() -> None:
    norm = fitted("length")
    # (2, 0) and (-2) become (sqrt 2, 0) and (-1); a zero vector stays zero.
    torch.testing.assert_close(norm(torch.tensor([[5.0, 7**0.5, 3.0]])), torch.tensor([[2**0.5, 0.0, -1.0]]))
    assert norm(norm.mean[None]).tolist() == [[0, 0, 0]]


def test_the_choice_is_stored_with_the_head() -> None:
    head = ClassificationHead(3, 2, norm="auto")
    head.set_blocks([2, 1])
    head.set_norm("length")
    head.fit_norm(ROWS)
    other = ClassificationHead(3, 2, norm="auto").eval()
    other.set_blocks([2, 1])
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(ROWS), head.eval()(ROWS))
    assert head.norm_kinds == ["length", "block", "fixed"] and ClassificationHead(3, 2, norm="length").norm_kinds == []


@pytest.mark.parametrize(
    ("kind", "changes", "blocks"),
    [
        ("classification", {"layers": "all", "pooling": "concat"}, [32] * 9),
        ("classification", {"layers": "last", "pooling": "mean"}, [32]),
        ("classification", {"layers": "mix", "pooling": "concat"}, [32] * 3),
        ("pair", {"layers": "last", "pooling": "mean", "pairs": "apart"}, [32] * 4),
        ("tagging", {"layers": "all"}, [32] * 3),
    ],
)
def test_blocks_are_pooled_layers_and_parts_of_pairs(kind: str, changes: dict[str, Any], blocks: list[int]) -> None:
    encoder = build_model("bert", vocabulary=20, settings=FAMILIES["bert"].tiny)
    settings = FinetuneSettings(head_norm="length", training=Training(rate=0.1, batch_size=4), **changes)
    labels = ["O", "B-a"] if kind == "tagging" else ["a", "b"]
    head = TaskModel(encoder, task=find_task(kind), settings=settings, labels=labels).head
    assert isinstance(head, TextHead) and isinstance(head.norm, BlockNorm)
    assert head.norm.blocks == blocks
