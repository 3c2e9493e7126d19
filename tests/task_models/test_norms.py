"""Normalisations of the head's input: exact values, blocks of features, the stored choice."""

from __future__ import annotations

import torch

from components.learners.task_models.heads import ClassificationHead

ROWS = torch.tensor([[0.0, 0.0, 5.0], [2.0, 2 * 7**0.5, 9.0]])


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
