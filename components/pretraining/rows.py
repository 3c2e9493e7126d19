"""Rows of text with masked pieces, packed without padding."""

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
    """Rows of exactly `window` pieces, special ones included; each begins with a sentence.

    An epoch visits the whole stream in steps of a row's text, in an order drawn for the epoch; text that is shorter
    than a row is followed by the next document, END between them. Masks are drawn for each row of each step, so a text
    that comes again is masked anew (dynamic masking).

    Batch: `tokens` (B, window), `positions`, `targets` (B, K) as `Masking` makes them, and what a subclass adds.
    Where the model's config says `whole_words`, words are masked whole.

    Raises:
        DataError: the window has no room for text beside the special pieces.
    """

    #: Special pieces of a row.
    frame: ClassVar[int]
    #: Uniform numbers that the text of a row is chosen by.
    choices: ClassVar[int] = 0

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
        """Pieces (B, window) of rows of the endless sequence of rows, not yet masked, and what else is in the batch.

        `choices` (B, `self.choices`) is uniform in [0, 1).
        """

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        own = slice(rows.start, rows.stop)
        # Drawn for the global batch, so that a row is the same whoever computes it.
        rng = counter_rng(self.seed, "rows", step)
        choices = rng.random((self.batch_size, self.choices))[own]
        noise = rng.random((self.batch_size, self.masking.samples))[own]
        texts, more = self._texts([step * self.batch_size + row for row in rows], choices)
        tokens, positions, targets = self.masking(texts, noise)
        masked = {"tokens": tokens, "positions": positions, "targets": targets}
        return {name: torch.from_numpy(value) for name, value in masked.items()} | more

    def _sentence(self, row: int) -> tuple[int, int]:
        """Where in the stream the sentence stands that a row begins with, and its document."""
        epoch, place = divmod(row, self.slots)
        if self._order[0] != epoch:
            self._order = epoch, counter_rng(self.seed, "slots", epoch).permutation(self.slots)
        # Another phase in every epoch cuts the text at other places.
        phase = counter_rng(self.seed, "phase", epoch).integers(self.text) if self.slots > 1 else 0
        start = int(self._order[1][place]) * self.text + int(phase)
        offsets = self.store.offsets
        document = int(np.searchsorted(offsets, start, side="right")) - 1
        starts = self.store.sentence_starts(document)
        inside = int(np.searchsorted(starts, start - offsets[document], side="right")) - 1
        return int(offsets[document]) + int(starts[max(0, inside)]), document


class FullSentencesSampler(RowSampler):
    """[CLS] text [SEP]: sentences in the order of the text, across documents (Liu et al. 2019, section 4.2).

    The row's last sentence is cut where the row ends: rows are filled instead of padded.
    """

    frame = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        texts = [self.store.span(self._sentence(row)[0], self.text) for row in rows]
        return np.stack([np.concatenate(([START], text, [END]), dtype=np.int64) for text in texts]), {}
