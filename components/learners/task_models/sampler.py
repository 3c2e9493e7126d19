"""Batches of labelled rows: every row once per epoch, rows of similar length together.

A batch of B rows with S sequences in total holds

tokens, lengths         (S, T) piece ids padded with 0, and (S,)
segments                (S, T), only if any is not 0
rows                    (S,) index of the sequence's row in the batch, ascending
units, unit_lengths     (S, U, 2) padded with -1 (see `task_models.base.Encoded`), and (S,)
offsets                 (S, U, 2) padded with -1, only if there are any
targets, target_lengths (B, X) padded with nan, and (B,); only if targets are known
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.data.tasks.data import Target
from components.learners.task_models.base import Encoded
from components.models.base import Batch
from components.training.rng import counter_rng
from components.training.windows import Sampler

#: Number of consecutive batches of an epoch's order whose rows are sorted by length together.
BUCKET = 64
#: Maximum relative increase of lengths by random noise before sorting, so that batches differ between epochs even if a
#: bucket holds the whole training set.
JITTER = 0.03


def pad(vectors: Sequence[NDArray[np.generic]], *, value: float = 0, size: int | None = None) -> tuple[Tensor, Tensor]:
    """N arrays (T_n, ...) -> (N, T, ...), padded with `value`, and their lengths (N,); `size`: T, None: the longest."""
    lengths = np.asarray([len(vector) for vector in vectors], dtype=np.int64)
    padded = np.full(
        (len(vectors), int(lengths.max()) if size is None else size, *vectors[0].shape[1:]),
        value,
        dtype=vectors[0].dtype,
    )
    for row, vector in zip(padded, vectors, strict=True):
        row[: len(vector)] = vector
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def collate(encoded: Sequence[Encoded], targets: Sequence[Target] | None = None) -> Batch:
    """Rows as a batch (see the module's docstring)."""
    tokens, lengths = pad([pieces for row in encoded for pieces in row.pieces])
    units, unit_lengths = pad([units for row in encoded for units in row.units], value=-1)
    batch = {
        "tokens": tokens,
        "lengths": lengths,
        "rows": torch.from_numpy(np.repeat(np.arange(len(encoded)), [len(row.pieces) for row in encoded])),
        "units": units,
        "unit_lengths": unit_lengths,
    }
    if any(len(offsets) for row in encoded for offsets in row.offsets):
        batch["offsets"], _ = pad([offsets for row in encoded for offsets in row.offsets], value=-1)
    if any(segments.any() for row in encoded for segments in row.segments):
        batch["segments"], _ = pad([segments for row in encoded for segments in row.segments])
    return batch | target_batch(targets)


def target_batch(targets: Sequence[Target] | None) -> Batch:
    """The part of a batch with the targets; empty without targets."""
    if targets is None:
        return {}
    padded, lengths = pad(targets, value=np.nan)
    return {"targets": padded, "target_lengths": lengths}


def longest(encoded: Sequence[Encoded]) -> NDArray[np.int64]:
    """(N,) length of each row's longest sequence in pieces."""
    return np.asarray([max(map(len, row.pieces)) for row in encoded], dtype=np.int64)


def some_windows(row: Encoded, target: Target, *, most: int, rng: np.random.Generator) -> Encoded:
    """A sample of at most `most` windows of a row, in order, with one that contains the first answer, if any."""
    held: list[int] = []
    if len(target):
        # Unit 0 is the whole sequence.
        contexts = [offsets[1:] for offsets in row.offsets]
        held = [
            window
            for window, offsets in enumerate(contexts)
            if len(offsets) and offsets[0, 0] <= target[0] and offsets[-1, 1] >= target[1]
        ]
    chosen = [held[int(rng.integers(len(held)))]] if held else []
    chosen += [int(window) for window in rng.permutation(len(row.pieces)) if window not in chosen][: most - len(chosen)]
    chosen.sort()
    parts = (row.pieces, row.segments, row.units, row.offsets)
    return Encoded(*([part[window] for window in chosen] for part in parts))


class EpochSampler(Sampler):
    """Every row once per epoch, in an order that is a function of (seed, epoch).

    The rows of an epoch are shuffled; the rows of each `BUCKET` batches are sorted by length and split into batches,
    and the batches are shuffled. This bounds padding without an order by length. If the rows do not fill the batches of
    a bucket, the batch sizes differ by at most one row: a small last batch would always contain the longest rows and
    weight them more.

    Args:
        targets: N targets.
        lengths: (N,) length of each row's longest sequence; None: rows need no padding, so they are not sorted, and the
            last batch of an epoch may be smaller.
        sizes: (N,) tokens of each row.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        lengths: NDArray[np.int64] | None,
        *,
        sizes: NDArray[np.int64],
        batch_size: int,
        seed: int,
        purpose: str,
    ) -> None:
        self.targets, self.lengths, self.sizes = targets, lengths, sizes
        self.batch_size, self.seed, self.purpose = batch_size, seed, purpose
        self.epoch_steps = -(-len(sizes) // batch_size)
        #: Current epoch: index, and batches.
        self._epoch: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def rows(self, step: int) -> NDArray[np.int64]:
        epoch, index = divmod(step, self.epoch_steps)
        if self._epoch[0] != epoch:
            self._epoch = epoch, self._batches(counter_rng(self.seed, self.purpose, epoch))
        return self._epoch[1][index]

    @abstractmethod
    def inputs(self, step: int, rows: NDArray[np.int64]) -> Batch:
        """The batch of some rows of a step, without targets."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it on one rank."""
        rows = self.rows(step)[rank::world]
        return self.inputs(step, rows) | target_batch([self.targets[row] for row in rows])

    def tokens(self, step: int) -> int:
        return int(self.sizes[self.rows(step)].sum())

    def _batches(self, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        order, size = rng.permutation(len(self.sizes)), self.batch_size
        if self.lengths is None:
            return [order[start : start + size] for start in range(0, len(order), size)]
        stretched = self.lengths * (1 + JITTER * rng.random(len(order)))
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), BUCKET * size):
            rows = order[start : start + BUCKET * size]
            count = -(-len(rows) // size)
            cuts = len(rows) // count + (rng.permutation(count) < len(rows) % count)
            batches += np.split(rows[np.argsort(stretched[rows])], np.cumsum(cuts)[:-1])
        return [batches[index] for index in rng.permutation(len(batches))]


class ExampleSampler(EpochSampler):
    """Batches of labelled rows as piece ids, with at most `windows` of a row."""

    def __init__(
        self,
        encoded: Sequence[Encoded],
        targets: Sequence[Target],
        *,
        batch_size: int,
        seed: int,
        windows: int | None = None,
    ) -> None:
        # With a sample of windows: the pieces of the longest ones, an upper bound.
        pieces = np.asarray(
            [sum(sorted(map(len, row.pieces), reverse=True)[:windows]) for row in encoded], dtype=np.int64
        )
        super().__init__(targets, longest(encoded), sizes=pieces, batch_size=batch_size, seed=seed, purpose="examples")
        self.encoded, self.windows = encoded, windows

    def inputs(self, step: int, rows: NDArray[np.int64]) -> Batch:
        return collate([self._learned(step, int(row)) for row in rows])

    def _learned(self, step: int, row: int) -> Encoded:
        result = self.encoded[row]
        if self.windows is None or len(result.pieces) <= self.windows:
            return result
        rng = counter_rng(self.seed, "windows", step, row)
        return some_windows(result, self.targets[row], most=self.windows, rng=rng)
