"""Tests run on one thread, because the OpenMP threads of parallel test processes would compete for the cores."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
