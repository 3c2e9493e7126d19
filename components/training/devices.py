"""The device that a process computes on."""

from __future__ import annotations

import torch


def first_device() -> torch.device:
    """The first GPU that this process sees; the CPU if it sees none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
