"""Families with a key of their settings, and small models of them with a vocabulary of 40 pieces."""

from __future__ import annotations

from typing import Any

import torch

from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model


def tiny_model(family: str, **settings: Any) -> LanguageModel:
    """The family's test model with these settings, in evaluation mode."""
    torch.manual_seed(0)
    return build_model(family, vocabulary=40, settings={**FAMILIES[family].tiny, **settings}).eval()
