"""Windows for permutation language models (Yang et al. 2019, sections 2.3 to 2.5 and 3.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from components.errors import DataError
from components.models.base import Batch
from components.models.xlnet import remembered
from components.pretraining.streams import StreamSampler
from components.tokenization.special import END, FIRST_ORDINARY, START
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens

#: One piece in so many is predicted (K in the paper).
ONE_IN = 6
#: Most pieces of a span; a span of L has probability proportional to 1 / L (XLNet's code).
LONGEST_SPAN = 5
#: [SEP] after a, [SEP] after b, [CLS].
FRAME = 3
#: Text, a and its [SEP]; b and its [SEP]; [CLS].
SEGMENTS = (0, 1, 2)
#: The smallest window: one piece of text, one of a and one of b, and the frame.
LEAST_WINDOW = 6

Floats = np.ndarray[Any, np.dtype[np.float64]]


class PermutationSampler(StreamSampler):
    """Rows of exactly `window` pieces: text, then `a [SEP] b [SEP] [CLS]`, with what is predicted and in which order.

    The text is the next `remembered(window)` pieces of the row's lane (see `StreamSampler`), so that a memory of it
    goes on from step to step. a goes on where the text ends; b goes on where a ends, or, in half the rows, is taken
    from anywhere. The cut between a and b is drawn from all places, where the published code takes a sentence's end.

    Predicted are whole spans, as in the paper's section 3.1: pieces are cut into contexts of 6 L with a span of L,
    1 to 5, in each. Spans count pieces, as the paper says (the code counts words). Every row predicts the same number,
    round(window / 6), half of it in the text: the last spans in a drawn sequence are left out, single pieces added.

    `order` says who sees whom (see `XLNet`). In the text all that is not predicted comes first, together; predicted
    pieces follow in a drawn order. In a and b the same again, after all of the text; there the three special pieces
    stand somewhere among the predicted ones, as published.

    Batch: `tokens`, `segments`, `order` (B, window), `positions`, `targets` (B, M); with `backward_rows` in the model's
    config also `backward` (B,), 1 in every second row, which is read from its lane's end.

    Raises:
        DataError: the window is too small for all parts.
    """

    def __init__(self, store: Tokens, *, batch_size: int, window: int, **options: Any) -> None:
        super().__init__(store, batch_size=batch_size, window=window, **options)
        if window < LEAST_WINDOW:
            raise DataError(
                f"training.window {window} leaves no room for text and two segments; choose at least {LEAST_WINDOW}"
            )
        self.text = remembered(window)
        self.rest = window - self.text - FRAME
        predicted = max(2, round(window / ONE_IN))
        self.predicted = (predicted // 2, predicted - predicted // 2)

    def position(self, step: int) -> tuple[int, int]:
        """Start of a step's text in its lane, and its length."""
        return step * self.text, self.text

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def rate_scale(self, step: int) -> float:
        return 1.0

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        own = slice(rows.start, rows.stop)
        turning = bool(getattr(self.config, "backward_rows", False))
        backward = np.arange(self.batch_size)[own] % 2 * int(turning)
        # Drawn for the global batch, so that a row is the same whoever computes it.
        rng = counter_rng(self.seed, "permutation", step)
        choices = rng.random((self.batch_size, 3))[own]
        parts = (slice(0, self.text), slice(self.text, self.window))
        noises = [rng.random((self.batch_size, 4, part.stop - part.start))[own] for part in parts]
        drawn = [
            self._row(step, row, bool(turned), *choice)
            for row, turned, choice in zip(rows, backward, choices, strict=True)
        ]
        tokens = np.stack([pieces for pieces, _ in drawn])
        segments = np.stack([numbers for _, numbers in drawn])
        # The pieces that segments end with: [SEP], [SEP] and [CLS].
        framed = np.diff(segments, append=len(SEGMENTS)) > 0
        order = np.empty_like(tokens)
        positions = []
        first = 0
        for part, noise, predicted in zip(parts, noises, self.predicted, strict=True):
            places = _places(tokens[:, part], noise, predicted)
            order[:, part] = first + _order(places, framed[:, part], noise[:, 3])
            positions.append(part.start + places)
            # The second part comes after all of the first.
            first = predicted + 1
        where = np.concatenate(positions, axis=1)
        batch = {
            "tokens": tokens,
            "segments": segments,
            "order": order,
            "positions": where,
            "targets": np.take_along_axis(tokens, where, axis=1),
        }
        if turning:
            batch["backward"] = backward
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in batch.items()}

    def _row(self, step: int, row: int, turned: bool, coin: float, cut: float, place: float) -> tuple[Ids, Ids]:
        """A row's pieces and segments. The last three are uniform in [0, 1)."""
        pieces = self._read(row, step * self.text, self.text + self.rest, backward=turned)
        length = 1 + int(cut * (self.rest - 1))
        a, b = pieces[self.text : self.text + length], pieces[self.text + length :]
        if coin < 0.5:
            b = self.store.span(int(place * self.store.tokens), self.rest - length)[:: -1 if turned else 1]
        tokens = np.concatenate((pieces[: self.text], a, [END], b, [END, START]), dtype=np.int64)
        segments = np.repeat(SEGMENTS, [self.text + length + 1, len(b) + 1, 1])
        return tokens, segments


def _places(tokens: Ids, noise: Floats, predicted: int) -> Ids:
    """The (B, predicted) places of a part that are predicted, sorted. `noise` is uniform, (B, 3 or more, part)."""
    places = np.arange(tokens.shape[1])
    chances = 1 / np.arange(1, LONGEST_SPAN + 1)
    # Contexts of ONE_IN pieces or more: so many are enough for the part.
    noise_of_spans = noise[:, :2, : len(places) // ONE_IN + 1]
    spans = 1 + np.searchsorted(np.cumsum(chances / chances.sum())[:-1], noise_of_spans[:, 0])
    ends = np.cumsum(ONE_IN * spans, axis=1)
    starts = ends - ONE_IN * spans + (noise_of_spans[:, 1] * ((ONE_IN - 1) * spans + 1)).astype(np.int64)
    context = (places[None, :, None] >= ends[:, None, :]).sum(2)
    start, span = np.take_along_axis(starts, context, axis=1), np.take_along_axis(spans, context, axis=1)
    inside = (places >= start) & (places < start + span)
    # Spans in a drawn sequence, each from its first piece on; then single pieces; special ones only in need.
    sequence = np.take_along_axis(noise[:, 2], context, axis=1) + 1e-9 * places
    rank = np.where(inside, sequence, 1 + noise[:, 2]) + 2 * (tokens < FIRST_ORDINARY)
    chosen: Ids = np.sort(np.argpartition(rank, predicted - 1, axis=1)[:, :predicted], axis=1)
    return chosen


def _order(places: Ids, framed: np.ndarray[Any, np.dtype[np.bool_]], noise: Floats) -> Ids:
    """0 for what is seen by all of its part; 1, 2, ... in a drawn order for predicted places and special pieces."""
    ordered = framed.copy()
    np.put_along_axis(ordered, places, True, axis=1)
    ranks = np.argsort(np.argsort(np.where(ordered, noise, 2.0), axis=1), axis=1)
    return np.where(ordered, 1 + ranks, 0)
