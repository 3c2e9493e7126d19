"""Baselines for one text: TF-IDF with logistic regression or a linear support vector machine."""

from __future__ import annotations

from components.baselines.base import Systems
from components.words.systems import SYSTEMS

CLASSIFICATION = Systems(
    SYSTEMS["classification"].usual,
    characters={**SYSTEMS["classification"].characters, **SYSTEMS["classification"].margins},
)
MULTILABEL = Systems(SYSTEMS["multilabel"].usual)
