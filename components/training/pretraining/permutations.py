"""Windows for permutation language models (Yang et al. 2019, sections 2.3 to 2.5 and 3.1)."""

from typing import Any

import numpy as np
import torch

from components.core.errors import DataError
from components.models.base import Batch
from components.models.xlnet import remembered
from components.tokenization.special import END, FIRST_ORDINARY, START
from components.training.pretraining.streams import StreamSampler
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens

#: One in this number of pieces is predicted (K in the paper).
ONE_IN = 6
#: Maximum length of a span; length L has a probability proportional to 1 / L (XLNet's code).
LONGEST_SPAN = 5
#: Number of special pieces: [SEP] after a, [SEP] after b, [CLS].
FRAME = 3
#: Segment numbers: of the text, a and its [SEP]; of b and its [SEP]; of [CLS].
SEGMENTS = (0, 1, 2)
#: Minimum window: one piece each of the text, a and b, and the special pieces.
LEAST_WINDOW = 6

Floats = np.ndarray[Any, np.dtype[np.float64]]


class PermutationSampler(StreamSampler):
    """Rows of exactly `window` pieces, `text a [SEP] b [SEP] [CLS]`, with the predicted positions and their order.

    The text is the next `remembered(window)` pieces of the row's stream (`StreamSampler`), so that the memory continues
    from step to step. a follows the text; b follows a, or in half of the rows is a random segment. The boundary between
    a and b is uniform over all positions; the published code takes the end of a sentence.

    Whole spans are predicted (section 3.1): contexts of 6 L pieces have a span of L pieces each, 1 to 5. Every row
    predicts round(window / 6) pieces, half of them in the text: the last spans of a random sequence are dropped, or
    single pieces added.

    `order` defines the attention mask (`XLNet`). In the text, pieces that are not predicted come first, with the same
    number, and predicted ones follow in a random order. So do a and b, where the three special pieces are at random
    ranks among the predicted ones, as published.

    Batch: `tokens`, `segments`, `order` (B, window), `positions`, `targets` (B, M). With `backward_rows` in the model's
    config also `backward` (B,), 1 in every second row, whose stream is read in reverse.

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

    @property
    def has_constant_shapes(self) -> bool:
        return True

    def position(self, step: int) -> tuple[int, int]:
        """Position of a step's text in its stream, and its length."""
        return step * self.text, self.text

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def rate_scale(self, step: int) -> float:
        return 1.0

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        share = slice(rows.start, rows.stop)
        bidirectional = bool(getattr(self.config, "backward_rows", False))
        backward = np.arange(self.batch_size)[share] % 2 * int(bidirectional)
        # Sampled for the global batch, so that a row does not depend on the number of workers.
        rng = counter_rng(self.seed, "permutation", step)
        choices = rng.random((self.batch_size, 3))[share]
        parts = (slice(0, self.text), slice(self.text, self.window))
        noises = [rng.random((self.batch_size, 4, part.stop - part.start))[share] for part in parts]
        sampled = [
            self._row(step, row, bool(reverse), *choice)
            for row, reverse, choice in zip(rows, backward, choices, strict=True)
        ]
        tokens = np.stack([pieces for pieces, _ in sampled])
        segments = np.stack([numbers for _, numbers in sampled])
        # The last pieces of segments: [SEP], [SEP] and [CLS].
        framed = np.diff(segments, append=len(SEGMENTS)) > 0
        order = np.empty_like(tokens)
        positions = []
        first = 0
        for part, noise, predicted in zip(parts, noises, self.predicted, strict=True):
            chosen = _positions(tokens[:, part], noise, predicted)
            order[:, part] = first + _order(chosen, framed[:, part], noise[:, 3])
            positions.append(part.start + chosen)
            # The second part follows the whole first part.
            first = predicted + 1
        where = np.concatenate(positions, axis=1)
        batch = {
            "tokens": tokens,
            "segments": segments,
            "order": order,
            "positions": where,
            "targets": np.take_along_axis(tokens, where, axis=1),
        }
        if bidirectional:
            batch["backward"] = backward
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in batch.items()}

    def _row(self, step: int, row: int, reverse: bool, coin: float, cut: float, offset: float) -> tuple[Ids, Ids]:
        pieces = self._read(row, step * self.text, self.text + self.rest, backward=reverse)
        length = 1 + int(cut * (self.rest - 1))
        a, b = pieces[self.text : self.text + length], pieces[self.text + length :]
        if coin < 0.5:
            b = self.store.span(int(offset * self.store.tokens), self.rest - length)[:: -1 if reverse else 1]
        tokens = np.concatenate((pieces[: self.text], a, [END], b, [END, START]), dtype=np.int64)
        segments = np.repeat(SEGMENTS, [self.text + length + 1, len(b) + 1, 1])
        return tokens, segments


def _positions(tokens: Ids, noise: Floats, predicted: int) -> Ids:
    """The predicted positions (B, predicted) within a part of the row, sorted."""
    positions = np.arange(tokens.shape[1])
    chances = 1 / np.arange(1, LONGEST_SPAN + 1)
    # Contexts have at least ONE_IN pieces, so this number of contexts covers the part.
    noise_of_spans = noise[:, :2, : len(positions) // ONE_IN + 1]
    spans = 1 + np.searchsorted(np.cumsum(chances / chances.sum())[:-1], noise_of_spans[:, 0])
    ends = np.cumsum(ONE_IN * spans, axis=1)
    starts = ends - ONE_IN * spans + (noise_of_spans[:, 1] * ((ONE_IN - 1) * spans + 1)).astype(np.int64)
    context = (positions[None, :, None] >= ends[:, None, :]).sum(2)
    start, span = np.take_along_axis(starts, context, axis=1), np.take_along_axis(spans, context, axis=1)
    inside = (positions >= start) & (positions < start + span)
    # Order of selection: whole spans in random order, then single pieces in random order, special pieces last.
    sequence = np.take_along_axis(noise[:, 2], context, axis=1) + 1e-9 * positions
    rank = np.where(inside, sequence, 1 + noise[:, 2]) + 2 * (tokens < FIRST_ORDINARY)
    return np.sort(np.argpartition(rank, predicted - 1, axis=1)[:, :predicted], axis=1)


def _order(positions: Ids, framed: np.ndarray[Any, np.dtype[np.bool_]], noise: Floats) -> Ids:
    """0 for pieces visible to their whole part; 1, 2, ... in a random order for predicted and special pieces."""
    ordered = framed.copy()
    np.put_along_axis(ordered, positions, True, axis=1)
    ranks = np.argsort(np.argsort(np.where(ordered, noise, 2.0), axis=1), axis=1)
    return np.where(ordered, 1 + ranks, 0)
