"""Fixtures: the tokenizers of the models' tests, and one thread with a fixed seed."""

from __future__ import annotations

import pytest
import torch

from tests.models.conftest import tokenizer_directory

__all__ = ["tokenizer_directory"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
