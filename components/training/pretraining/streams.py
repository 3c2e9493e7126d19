"""Contiguous windows for models with a recurrent state or memory."""

from typing import Any

import numpy as np
import torch

from components.models.base import Batch
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

#: Number of tokens of a stream that are read into its buffer at once.
READ_AHEAD = 4096
#: Probability of a window around half the base length (AWD-LSTM, Merity et al. 2018, section 5).
HALVED = 0.05
#: Minimum length of a window.
LEAST_WINDOW = 5


class StreamSampler(WindowSampler):
    """Windows for causal language models with a state (truncated back-propagation through time).

    The documents of an epoch, in an order sampled for the epoch, are concatenated and divided into `batch_size` streams
    of equal length. Row b of a batch continues stream b where row b of the previous batch ended; each epoch continues
    the streams of the previous one. Batch: `tokens` (B, T) and `targets` (B, T), shifted by one piece. With `direction:
    backward` in the model's config, the text is read in reverse.

    With `jitter`, T varies as in AWD-LSTM: around `window`, sometimes around half of it, with the learning rate scaled
    by T / `window`. Lengths are sampled in pairs, `window` + d and `window` - d, so step 2k begins at position 2k *
    `window`."""

    def __init__(self, store: Tokens, *, batch_size: int, **options: Any) -> None:
        super().__init__(store, batch_size=batch_size, **options)
        self.stream_length = store.tokens // batch_size
        self._orders: dict[int, tuple[Ids, Ids]] = {}
        self._buffers: dict[tuple[int, bool], tuple[int, Ids]] = {}

    @property
    def has_constant_shapes(self) -> bool:
        return not self.jitter

    def position(self, step: int) -> tuple[int, int]:
        """Position of a step's window in its stream, and its length T."""
        if not self.jitter:
            return step * self.window, self.window
        pair, second = divmod(step, 2)
        rng = counter_rng(self.seed, "window", pair)
        most = max(0, self.window - LEAST_WINDOW)
        change = rng.normal(0, self.jitter) - (self.window / 2 if rng.random() < HALVED else 0)
        change = int(np.clip(round(change), -most, most))
        start = 2 * pair * self.window
        return (start + self.window + change, self.window - change) if second else (start, self.window + change)

    def tokens_before(self, step: int) -> int:
        return self.position(step)[0] * self.batch_size

    def rate_scale(self, step: int) -> float:
        return self.position(step)[1] / self.window

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        backward = getattr(self.config, "direction", "forward") == "backward"
        tokens, targets = self._windows(step, rank, world, backward=backward)
        return {"tokens": tokens, "targets": targets}

    def _windows(self, step: int, rank: int, world: int, *, backward: bool) -> tuple[torch.Tensor, torch.Tensor]:
        start, length = self.position(step)
        rows = [self._read(row, start, length + 1, backward=backward) for row in self._rows(rank, world)]
        window = torch.from_numpy(np.stack(rows))
        return window[:, :-1], window[:, 1:]

    def _read(self, row: int, start: int, length: int, *, backward: bool) -> Ids:
        begin, buffer = self._buffers.get((row, backward), (0, np.empty(0, np.int64)))
        if not begin <= start <= start + length <= begin + len(buffer):
            begin, buffer = start, self._read_stream(row, start, max(length, READ_AHEAD), backward=backward)
            self._buffers[row, backward] = begin, buffer
        return buffer[start - begin : start - begin + length]

    def _read_stream(self, row: int, start: int, length: int, *, backward: bool) -> Ids:
        parts = []
        while length:
            epoch, inside = divmod(start, self.stream_length)
            taken = min(length, self.stream_length - inside)
            parts.append(self._read_epoch(epoch, row * self.stream_length + inside, taken, backward=backward))
            start, length = start + taken, length - taken
        return np.concatenate(parts)

    def _read_epoch(self, epoch: int, start: int, length: int, *, backward: bool) -> Ids:
        if backward:
            return self._read_epoch(epoch, self.store.tokens - start - length, length, backward=False)[::-1]
        order, ends = self._order(epoch)
        index, parts = int(np.searchsorted(ends, start, side="right")), []
        while length:
            document = order[index]
            first, last = self.store.offsets[document], self.store.offsets[document + 1]
            skipped = start - (ends[index] - (last - first))
            taken = min(length, int(last - first - skipped))
            if taken:
                parts.append(self.store.span(int(first + skipped), taken))
            start, length, index = start + taken, length - taken, index + 1
        return np.concatenate(parts)

    def _order(self, epoch: int) -> tuple[Ids, Ids]:
        """The documents in the epoch's order, and the position in the epoch's text at which each ends."""
        if epoch not in self._orders:
            order = counter_rng(self.seed, "documents", epoch).permutation(self.store.documents)
            ends = np.cumsum(np.diff(self.store.offsets)[order])
            # Read-ahead needs at most the current epoch and the next one.
            self._orders = {kept: value for kept, value in self._orders.items() if kept == epoch - 1}
            self._orders[epoch] = order, ends
        return self._orders[epoch]


class PackedSampler(StreamSampler):
    """`StreamSampler` with windows of constant length, for models without a state that have a maximum length."""

    def __init__(self, store: Tokens, *, jitter: float = 0, **options: Any) -> None:
        super().__init__(store, **options)


class BidirectionalStreamSampler(StreamSampler):
    """`StreamSampler` in both directions: `backward_tokens`, `backward_targets` (B, T) are from the text in reverse, in
    which the target of a piece is the previous piece of the text."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        tokens, targets = self._windows(step, rank, world, backward=True)
        return super().batch(step, rank, world) | {"backward_tokens": tokens, "backward_targets": targets}
