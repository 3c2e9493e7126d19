"""Rows of text with masked pieces, without padding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from components.errors import DataError
from components.models.base import Batch
from components.tokenization.special import END, START
from components.training.masking import Masking
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler


class RowSampler(WindowSampler):
    """Rows of exactly `window` pieces, special pieces included; each begins with a sentence.

    An epoch covers the whole stream: rows begin at intervals of a row's length without special pieces, in an order
    sampled for the epoch. A document that ends within a row is followed by END and the next document. Masks are sampled
    for each row of each step (dynamic masking).

    Batch: `tokens` (B, window), `positions`, `targets` (B, K) of `Masking`, and the additions of a subclass. The
    model's config says whether whole words are masked (`whole_words`).

    Raises:
        DataError: the window is too small for special pieces and text.
    """

    #: Number of special pieces per row.
    frame: ClassVar[int]
    #: Number of uniform samples that select the text of a row.
    choices: int = 0

    def __init__(self, store: Tokens, *, window: int, **options: Any) -> None:
        super().__init__(store, window=window, **options)
        self.text = window - self.frame
        if self.text < 2:
            raise DataError(
                f"training.window {window} leaves no room for two pieces of text; choose at least {self.frame + 2}"
            )
        self.slots = max(1, store.tokens // self.text - 1)
        whole_words = getattr(self.config, "whole_words", False)
        self.masking = Masking(window, vocabulary=self.vocabulary, pieces=self.pieces if whole_words else ())
        self._order: tuple[int, Ids] = (-1, np.empty(0, np.int64))

    @abstractmethod
    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        """Unmasked pieces (B, window) of rows, and further entries of the batch.

        Args:
            rows: numbers of the rows, across epochs.
            choices: (B, `self.choices`), uniform in [0, 1).
        """

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        own = slice(rows.start, rows.stop)
        # Sampled for the global batch, so that a row does not depend on the number of workers.
        rng = counter_rng(self.seed, "rows", step)
        choices = rng.random((self.batch_size, self.choices))[own]
        noise = rng.random((self.batch_size, self.masking.samples))[own]
        texts, more = self._texts([step * self.batch_size + row for row in rows], choices)
        tokens, positions, targets = self.masking(texts, noise)
        masked = {"tokens": tokens, "positions": positions, "targets": targets}
        return {name: torch.from_numpy(value) for name, value in masked.items()} | more

    def _sentence(self, row: int) -> tuple[int, int]:
        """Position in the stream of the sentence with which a row begins, and the index of its document."""
        epoch, slot = divmod(row, self.slots)
        if self._order[0] != epoch:
            self._order = epoch, counter_rng(self.seed, "slots", epoch).permutation(self.slots)
        # A random phase per epoch: rows begin at different positions in every epoch.
        phase = counter_rng(self.seed, "phase", epoch).integers(self.text) if self.slots > 1 else 0
        start = int(self._order[1][slot]) * self.text + int(phase)
        offsets = self.store.offsets
        document = int(np.searchsorted(offsets, start, side="right")) - 1
        starts = self.store.sentence_starts(document)
        inside = int(np.searchsorted(starts, start - offsets[document], side="right")) - 1
        return int(offsets[document]) + int(starts[max(0, inside)]), document


class FullSentencesSampler(RowSampler):
    """[CLS] text [SEP] of consecutive sentences, across documents (FULL-SENTENCES of Liu et al. 2019, section 4.2).

    The last sentence is truncated at the end of the row, so that rows need no padding.
    """

    frame = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        texts = [self.store.span(self._sentence(row)[0], self.text) for row in rows]
        return np.stack([np.concatenate(([START], text, [END]), dtype=np.int64) for text in texts]), {}
