"""Sentence pairs with masked pieces (Devlin et al. 2019, section 3.1 and appendix A.1 and A.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from components.errors import DataError
from components.models.base import Batch
from components.tokenization.special import END, FIRST_ORDINARY, MASK, START
from components.training.counters import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

#: Share of a row's pieces that are predicted, and what becomes of them: masked, replaced, kept (the rest).
PREDICTED = 0.15
MASKED = 0.8
REPLACED = 0.1
#: [CLS] A [SEP] B [SEP]
FRAME = 3
#: A cut between A and B that leaves either less than this share of the row is taken only where there is no other.
LEAST_SHARE = 1 / 8


class SentencePairSampler(WindowSampler):
    """Rows of exactly `window` pieces, [CLS] A [SEP] B [SEP], without padding.

    A starts at a sentence, B at another. In half the rows B is what follows A in the text, in the others it is drawn
    from another document. An epoch visits the whole stream in rows of `window` - 3 pieces, in an order drawn for the
    epoch; text that is shorter than a row is followed by the next document, END between them.

    Every row has the same number of predicted positions, so that every row and every worker weighs the same.

    Batch, with K = round(0.15 * window): `tokens`, `segments` (B, window), `positions`, `targets` (B, K) sorted places
    of the predicted pieces and the pieces themselves, `next_sentence` (B,) 0 where B follows A, 1 where it is random.

    Raises:
        DataError: the store holds only one document, so there is no other to draw from.
    """

    def __init__(self, store: Tokens, *, window: int, **options: Any) -> None:
        super().__init__(store, window=window, **options)
        if store.documents < 2:
            raise DataError("next-sentence prediction needs at least two documents; the corpus holds one")
        self.text = window - FRAME
        if self.text < 2:
            raise DataError(f"training.window {window} leaves no room for two sentences; choose at least {FRAME + 2}")
        self.slots = max(1, store.tokens // self.text - 1)
        self.predicted = max(1, round(PREDICTED * window))
        self._order: tuple[int, Ids] = (-1, np.empty(0, np.int64))

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        own = slice(rows.start, rows.stop)
        # Drawn for the global batch, so that a row is the same whoever computes it.
        rng = counter_rng(self.seed, "pairs", step)
        choices = rng.random((self.batch_size, 4))[own]
        masks = rng.random((self.batch_size, self.window + 2 * self.predicted))[own]
        pairs = [self._pair(step * self.batch_size + row, *choice) for row, choice in zip(rows, choices, strict=True)]
        tokens = np.stack([tokens for tokens, _, _ in pairs])
        lengths = np.array([length for _, length, _ in pairs])
        segments = (np.arange(self.window) >= lengths[:, None]).astype(np.int64)
        tokens, positions, targets = self._mask(tokens, masks)
        return {
            "tokens": torch.from_numpy(tokens),
            "segments": torch.from_numpy(segments),
            "positions": torch.from_numpy(positions),
            "targets": torch.from_numpy(targets),
            "next_sentence": torch.tensor([int(random) for _, _, random in pairs]),
        }

    def _pair(self, row: int, cut: float, coin: float, document: float, sentence: float) -> tuple[Ids, int, bool]:
        """A row's pieces, the length of [CLS] A [SEP], and whether B is random. The last four are uniform in [0, 1)."""
        offsets = self.store.offsets
        start = self._slot(row)
        here = int(np.searchsorted(offsets, start, side="right")) - 1
        starts = self.store.sentence_starts(here)
        inside = int(np.searchsorted(starts, start - offsets[here], side="right")) - 1
        start = int(offsets[here]) + int(starts[max(0, inside)])
        cuts = self._cuts(start, here)
        length = int(cuts[int(cut * len(cuts))]) - start
        random = coin < 0.5
        if random:
            # Any document but the one that A ends in.
            ends_in = int(np.searchsorted(offsets, min(start + length, self.store.tokens) - 1, side="right")) - 1
            other = (ends_in + 1 + int(document * (self.store.documents - 1))) % self.store.documents
            starts = self.store.sentence_starts(other)
            second = int(offsets[other]) + int(starts[int(sentence * len(starts))])
        else:
            second = start + length
        first = self.store.span(start, length)
        row_tokens = np.concatenate(
            ([START], first, [END], self.store.span(second, self.text - length), [END]), dtype=np.int64
        )
        return row_tokens, length + 2, random

    def _slot(self, row: int) -> int:
        """Where in the stream a row of the endless sequence of rows begins."""
        epoch, place = divmod(row, self.slots)
        if self._order[0] != epoch:
            self._order = epoch, counter_rng(self.seed, "slots", epoch).permutation(self.slots)
        # Another phase in every epoch cuts the text at other places.
        phase = counter_rng(self.seed, "phase", epoch).integers(self.text) if self.slots > 1 else 0
        return int(self._order[1][place]) * self.text + int(phase)

    def _cuts(self, start: int, document: int) -> Ids:
        """Places where B may begin: a sentence inside a document; else a document's start; else the middle."""
        end = min(start + self.text, self.store.tokens)
        sentences = []
        documents = []
        while document < self.store.documents and (first := int(self.store.offsets[document])) < end:
            documents.append(first)
            sentences.append(first + np.asarray(self.store.sentence_starts(document)[1:], dtype=np.int64))
            document += 1
        margin = LEAST_SHARE * self.text
        inner = np.concatenate(sentences)
        for places, least in ((inner, margin), (inner, 0), (np.array(documents), 0)):
            places = places[(places > start + least) & (places < end - least)]
            if len(places):
                return places
        return np.array([start + self.text // 2])

    def _mask(self, tokens: Ids, noise: np.ndarray) -> tuple[Ids, Ids, Ids]:
        """Choose and disguise K pieces in each row; `noise` is uniform, (B, window + 2K)."""
        order, fate, replacement = np.split(noise, [self.window, self.window + self.predicted], axis=1)
        # Special pieces are taken only where a row has fewer than K others.
        order = order + (tokens < FIRST_ORDINARY)
        positions = np.sort(np.argpartition(order, self.predicted - 1, axis=1)[:, : self.predicted], axis=1)
        targets = np.take_along_axis(tokens, positions, axis=1)
        replacements = FIRST_ORDINARY + (replacement * max(1, self.vocabulary - FIRST_ORDINARY)).astype(np.int64)
        disguised = np.where(
            fate < MASKED,
            MASK,
            np.where(fate < MASKED + REPLACED, np.minimum(replacements, self.vocabulary - 1), targets),
        )
        tokens = tokens.copy()
        np.put_along_axis(tokens, positions, disguised, axis=1)
        return tokens, positions, targets
