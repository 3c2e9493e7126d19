"""Which pieces of a row are predicted, and what stands in their place (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.models.base import Batch
from components.tokenization.special import FIRST_ORDINARY, MASK
from components.training.windows import Ids

#: Share of a row's pieces that are predicted, and what becomes of them: masked, replaced, kept (the rest).
PREDICTED: Final = 0.15
MASKED: Final = 0.8
REPLACED: Final = 0.1
#: What WordPiece writes before a piece inside a word.
INSIDE: Final = "##"
#: What byte-level BPE and unigram write before a piece that begins one.
BEGINNINGS: Final = ("Ġ", "▁")

Uniform = NDArray[np.float64]


class Masking:
    """K = round(0.15 * window) predicted pieces in each row of `window`, so that every row weighs the same.

    Special pieces are taken only where a row has fewer than K others. With whole words, the pieces of a word are
    predicted together (each is masked, replaced or kept on its own); only where no words that are left add up to K is
    one of them predicted in part.

    Args:
        window: pieces of a row.
        vocabulary: number of pieces, for random replacements.
        pieces: id -> piece, where whole words are wanted; else empty.
    """

    def __init__(self, window: int, *, vocabulary: int, pieces: Sequence[str] = ()) -> None:
        self.window, self.vocabulary = window, vocabulary
        self.predicted = max(1, round(PREDICTED * window))
        self.inside = inside_words(pieces) if pieces else None

    @property
    def draws(self) -> int:
        """Uniform numbers that a row needs."""
        return self.window + 2 * self.predicted

    def __call__(self, tokens: Ids, noise: Uniform) -> tuple[Ids, Ids, Ids]:
        """Choose and disguise.

        Args:
            tokens: (B, window).
            noise: (B, draws), uniform in [0, 1).

        Returns:
            disguised tokens (B, window), and (B, K) sorted places of the predicted pieces and the pieces themselves.
        """
        order, fate, replacement = np.split(noise, [self.window, self.window + self.predicted], axis=1)
        order = order + (tokens < FIRST_ORDINARY)
        if self.inside is not None:
            order = np.stack([self._by_words(*row) for row in zip(tokens, order, strict=True)])
        positions = np.sort(np.argpartition(order, self.predicted - 1, axis=1)[:, : self.predicted], axis=1)
        targets = np.take_along_axis(tokens, positions, axis=1)
        disguised = _disguised(targets, fate, replacement, vocabulary=self.vocabulary)
        tokens = tokens.copy()
        np.put_along_axis(tokens, positions, disguised, axis=1)
        return tokens, positions, targets

    def _by_words(self, tokens: Ids, order: Uniform) -> Uniform:
        """(window,) an order in which the first K pieces are whole words, drawn by each word's first piece."""
        assert self.inside is not None
        special = tokens < FIRST_ORDINARY
        # A special piece is no word's part, and what follows it begins one.
        begins = ~self.inside[tokens] | special | np.concatenate(([True], special[:-1]))
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(tokens))
        ranks = np.empty(len(starts))
        room, later = self.predicted, len(starts)
        for rank, word in enumerate(np.argsort(order[starts], kind="stable")):
            # A word that does not fit waits behind all that do, and special pieces behind all words.
            fits = lengths[word] <= room and not special[starts[word]]
            ranks[word] = rank if fits else rank + later * (1 + special[starts[word]])
            room -= lengths[word] if fits else 0
        return np.repeat(ranks, lengths) + np.arange(len(tokens)) / len(tokens)


def mask_texts(tokens: Ids, lengths: Ids, rngs: Sequence[np.random.Generator], *, vocabulary: int) -> Batch:
    """What masked and permuted models predict of labelled texts (`LanguageModel.text_loss`).

    K = round(0.15 * length), at least one, of each text's pieces, disguised as `Masking` does; special pieces are taken
    only where a text has fewer others.

    Args:
        tokens: (B, T), padded.
        lengths: (B,).
        rngs: one generator a row, so that a row's mask does not depend on its batch.

    Returns:
        `masked_tokens` (B, T); `masked_positions`, `masked_targets` (B, M) in the order in which they were drawn,
        filled up with a row's first position and target -1.
    """
    counts = np.maximum(1, np.round(PREDICTED * lengths).astype(np.int64))
    disguised = tokens.copy()
    positions = np.zeros((len(tokens), int(counts.max())), dtype=np.int64)
    targets = np.full_like(positions, -1)
    for row, (length, count, rng) in enumerate(zip(lengths, counts, rngs, strict=True)):
        order = rng.random(length) + (tokens[row, :length] < FIRST_ORDINARY)
        chosen = np.argsort(order, kind="stable")[:count]
        fate, replacement = rng.random((2, count))
        positions[row] = chosen[0]
        positions[row, :count] = chosen
        targets[row, :count] = tokens[row, chosen]
        disguised[row, chosen] = _disguised(tokens[row, chosen], fate, replacement, vocabulary=vocabulary)
    found = {"masked_tokens": disguised, "masked_positions": positions, "masked_targets": targets}
    return {name: torch.from_numpy(value) for name, value in found.items()}


def _disguised(targets: Ids, fate: Uniform, replacement: Uniform, *, vocabulary: int) -> Ids:
    """What stands in the place of predicted pieces, by uniform numbers of the same shape."""
    replacements = FIRST_ORDINARY + (replacement * max(1, vocabulary - FIRST_ORDINARY)).astype(np.int64)
    replaced = np.where(fate < MASKED + REPLACED, np.minimum(replacements, vocabulary - 1), targets)
    return np.where(fate < MASKED, MASK, replaced)


def inside_words(pieces: Sequence[str]) -> NDArray[np.bool_]:
    """(V,) which pieces go on with the word of the piece before them, by the marks that the vocabulary itself shows:
    `##` inside a word, or `Ġ` or `▁` at its beginning; a vocabulary without marks has whole words only."""
    marks = {mark: sum(piece.startswith(mark) and len(piece) > len(mark) for piece in pieces) for mark in BEGINNINGS}
    mark = max(marks, key=marks.__getitem__)
    continued = np.array([piece.startswith(INSIDE) and len(piece) > len(INSIDE) for piece in pieces])
    if marks[mark] <= continued.sum():
        return continued
    return np.array([not piece.startswith(mark) for piece in pieces])
