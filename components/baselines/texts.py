"""Baselines for one text: TF-IDF with logistic regression, a linear support vector machine or ridge regression."""

from __future__ import annotations

from functools import partial

from components.baselines.base import Systems
from components.words.systems import SYSTEMS, ridge, ridge_and_characters

CLASSIFICATION = Systems(
    SYSTEMS["classification"].usual,
    characters={**SYSTEMS["classification"].characters, **SYSTEMS["classification"].margins},
)
MULTILABEL = Systems(SYSTEMS["multilabel"].usual)
REGRESSION = Systems(
    {"ridge-words": partial(ridge, ngrams=(1, 1)), "ridge-words-pairs": partial(ridge, ngrams=(1, 2))},
    characters={"ridge-words-characters": ridge_and_characters},
)
