"""Masking of tokens for masked language models (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.tokenization.special import FIRST_ORDINARY, MASK
from components.training.windows import Ids

#: Fraction of a row's pieces that are predicted. Of these, MASKED is the fraction replaced by [MASK], REPLACED the
#: fraction replaced by a random piece; the others stay unchanged in the input.
PREDICTED: Final = 0.15
MASKED: Final = 0.8
REPLACED: Final = 0.1
#: Prefix of WordPiece pieces inside a word.
INSIDE: Final = "##"
#: Prefixes of byte-level BPE and unigram pieces at the beginning of a word.
BEGINNINGS: Final = ("Ġ", "▁")

Uniform = NDArray[np.float64]


class Masking:
    """Masks K = round(0.15 window) pieces of each row, so that all rows have the same weight.

    Special pieces are predicted only if a row has fewer than K others. With whole-word masking, all pieces of a word
    are predicted (each is masked, replaced or kept separately); one word is predicted in part if the remaining words do
    not add up to K.

    Args:
        window: pieces per row.
        vocabulary: number of pieces, for random replacements.
        pieces: id -> piece for whole-word masking; empty: pieces are masked independently.
    """

    def __init__(self, window: int, *, vocabulary: int, pieces: Sequence[str] = ()) -> None:
        self.window, self.vocabulary = window, vocabulary
        self.predicted = max(1, round(PREDICTED * window))
        self.inside = inside_words(pieces) if pieces else None

    @property
    def samples(self) -> int:
        """Number of uniform samples per row."""
        return self.window + 2 * self.predicted

    def __call__(self, tokens: Ids, noise: Uniform) -> tuple[Ids, Ids, Ids]:
        """Select the predicted pieces and mask them.

        Args:
            tokens: (B, window).
            noise: (B, samples), uniform in [0, 1).

        Returns:
            masked tokens (B, window); positions (B, K) of the predicted pieces, sorted; these pieces (B, K).
        """
        order, fate, replacement = np.split(noise, [self.window, self.window + self.predicted], axis=1)
        order = order + (tokens < FIRST_ORDINARY)
        if self.inside is not None:
            order = np.stack([self._by_words(*row) for row in zip(tokens, order, strict=True)])
        positions = np.sort(np.argpartition(order, self.predicted - 1, axis=1)[:, : self.predicted], axis=1)
        targets = np.take_along_axis(tokens, positions, axis=1)
        disguised = _masked(targets, fate, replacement, vocabulary=self.vocabulary)
        tokens = tokens.copy()
        np.put_along_axis(tokens, positions, disguised, axis=1)
        return tokens, positions, targets

    def _by_words(self, tokens: Ids, order: Uniform) -> Uniform:
        """Ranks (window,) whose K lowest are whole words; words are ordered by the noise of their first piece."""
        assert self.inside is not None
        special = tokens < FIRST_ORDINARY
        # A special piece belongs to no word, and the next piece begins one.
        begins = ~self.inside[tokens] | special | np.concatenate(([True], special[:-1]))
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(tokens))
        ranks = np.empty(len(starts))
        room, later = self.predicted, len(starts)
        for rank, word in enumerate(np.argsort(order[starts], kind="stable")):
            # Words longer than the remaining number of predictions come after those that fit; special pieces last.
            fits = lengths[word] <= room and not special[starts[word]]
            ranks[word] = rank if fits else rank + later * (1 + special[starts[word]])
            room -= lengths[word] if fits else 0
        return np.repeat(ranks, lengths) + np.arange(len(tokens)) / len(tokens)


def _masked(targets: Ids, fate: Uniform, replacement: Uniform, *, vocabulary: int) -> Ids:
    """The input at the positions of predicted pieces; `fate` and `replacement` are uniform samples of their shape."""
    replacements = FIRST_ORDINARY + (replacement * max(1, vocabulary - FIRST_ORDINARY)).astype(np.int64)
    unmasked = np.where(fate < MASKED + REPLACED, np.minimum(replacements, vocabulary - 1), targets)
    return np.where(fate < MASKED, MASK, unmasked)


def inside_words(pieces: Sequence[str]) -> NDArray[np.bool_]:
    """(V,) whether a piece continues the word of the previous piece.

    The most frequent mark in the vocabulary decides: `##` inside a word, `Ġ` or `▁` at its beginning. Without any mark,
    every piece is a word.
    """
    marks = {mark: sum(piece.startswith(mark) and len(piece) > len(mark) for piece in pieces) for mark in BEGINNINGS}
    mark = max(marks, key=marks.__getitem__)
    continued = np.array([piece.startswith(INSIDE) and len(piece) > len(INSIDE) for piece in pieces])
    if marks[mark] <= continued.sum():
        return continued
    return np.array([not piece.startswith(mark) for piece in pieces])
