"""Text, tokenizers and models of the steps, without files."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from components.data.segmenters import Segmentation
from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.settings.training import LanguageModelTraining
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES
from components.tokenization.word import OpenWordTokenizer
from components.training.loop import TrainingState
from components.training.optim import decayed
from components.training.precision import Precision
from components.training.pretraining.samplers import WindowSampler, sampler_for

PIECES = [*SPECIAL_PIECES, *(f"w{number}" for number in range(200))]
WINDOW = 16
ROWS = 8


class CountingStore:
    """Documents that count upwards through the vocabulary from a random piece, so that the next piece is predictable.
    The translation of a document is its first 3 to 6 pieces. The interface is `TokenStore`'s. `vocabulary`: number of
    pieces. `documents`: number of documents. `length`: pieces of a document, without END."""

    def __init__(self, vocabulary: int, documents: int = 200, length: int = 60) -> None:
        rng = np.random.default_rng(0)
        kinds = vocabulary - FIRST_ORDINARY
        self.texts = [
            np.append(FIRST_ORDINARY + (rng.integers(kinds) + np.arange(length)) % kinds, END) for _ in range(documents)
        ]
        self.stream = np.concatenate(self.texts).astype(np.int64)
        self.offsets = np.arange(documents + 1) * (length + 1)
        self.documents, self.tokens = documents, len(self.stream)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return self.stream[np.arange(start, start + length) % self.tokens]

    def another(self, document: int, chance: float) -> int:
        return (document + 1 + int(chance * (self.documents - 1))) % self.documents

    def sentence_starts(self, document: int) -> NDArray[np.int64]:
        return np.arange(0, self.offsets[1] - 1, 5)

    def document(self, index: int) -> NDArray[np.int64]:
        return self.texts[index]

    def target(self, index: int) -> NDArray[np.int64]:
        return np.append(self.texts[index][: 3 + index % 4], END)

    def pair_lengths(self) -> NDArray[np.int64]:
        return np.array([[len(self.document(index)), len(self.target(index))] for index in range(self.documents)])


def model_of(family: str, *, dropout: float = 1.0) -> LanguageModel:
    """The family's test model, with the same weights in every call. `dropout`: factor of the dropout rates."""
    torch.manual_seed(0)
    model = build_model(family, vocabulary=len(PIECES), settings=FAMILIES[family].tiny)
    tokenizer = OpenWordTokenizer(PIECES, segmentation=Segmentation("none"), lowercase=True, strip_accents=True)
    model.bind(tokenizer)
    model.set_dropout(dropout)
    return model


def sampler_of(family: str, model: LanguageModel) -> WindowSampler:
    """Batches of `CountingStore` for a family."""
    return sampler_for(
        family,
        CountingStore(len(PIECES)),
        config=model.config,
        pieces=PIECES,
        batch_size=ROWS,
        window=WINDOW,
        seed=0,
        jitter=0,
    )


def settings_of(steps: int) -> LanguageModelTraining:
    """Settings of a short run."""
    return LanguageModelTraining(
        rate=0.01, batch_size=ROWS, window=WINDOW, window_jitter=0, tokens=steps * ROWS * WINDOW
    )


def state_of(model: LanguageModel, settings: LanguageModelTraining, precision: Precision) -> TrainingState:
    """The state before the first step."""
    return TrainingState.fresh(model, decayed(model.parameters()), settings=settings, precision=precision)
