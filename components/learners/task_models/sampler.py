"""Batches of labelled rows: every row once per epoch, rows of similar length together.

A batch of B rows with S sequences in total holds

tokens, lengths         (S, T) piece ids padded with 0, and (S,)
segments                (S, T), only if any is not 0
rows                    (S,) index of the sequence's row in the batch, ascending
units, unit_lengths     (S, U, 2) padded with -1 (see `task_models.base.Encoded`), and (S,)
features                (S, F), or (S, U, F) padded with 0, of inputs of a head instead of tokens, segments and units
offsets                 (S, U, 2) padded with -1, only if there are any
targets, target_lengths (B, X) padded with nan, and (B,); only if targets are known
"""

from collections.abc import Iterable, Sequence

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
    counts = [len(row.sizes) for row in encoded]
    batch = target_batch(targets) | {"rows": torch.from_numpy(np.repeat(np.arange(len(encoded)), counts))}
    if (vectors := [each for row in encoded for each in row.vectors]) and vectors[0].ndim == 1:
        return batch | {"features": matrix(encoded)}
    if vectors:
        batch["features"], batch["unit_lengths"] = pad(vectors)
    else:
        batch["tokens"], batch["lengths"] = pad([pieces for row in encoded for pieces in row.pieces])
        batch["units"], batch["unit_lengths"] = pad([units for row in encoded for units in row.units], value=-1)
    if any(len(offsets) for row in encoded for offsets in row.offsets):
        batch["offsets"], _ = pad([offsets for row in encoded for offsets in row.offsets], value=-1)
    if any(segments.any() for row in encoded for segments in row.segments):
        batch["segments"], _ = pad([segments for row in encoded for segments in row.segments])
    return batch


def matrix(rows: Iterable[Encoded]) -> Tensor:
    """(K, F) vectors of inputs of a head, sequence by sequence."""
    return torch.from_numpy(np.concatenate([np.atleast_2d(vectors) for row in rows for vectors in row.vectors]))


def target_batch(targets: Sequence[Target] | None) -> Batch:
    """The part of a batch with the targets; empty without targets."""
    if targets is None:
        return {}
    padded, lengths = pad(targets, value=np.nan)
    return {"targets": padded, "target_lengths": lengths}


def longest(encoded: Sequence[Encoded]) -> NDArray[np.int64]:
    """(N,) size of each row's longest sequence."""
    return np.asarray([max(row.sizes) for row in encoded], dtype=np.int64)


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
    pieces, segments, units, offsets = (
        [part[window] for window in chosen] for part in (row.pieces, row.segments, row.units, row.offsets)
    )
    return Encoded(pieces, segments, units, offsets)


class ExampleSampler(Sampler):
    """Every labelled row once per epoch, in an order that is a function of (seed, epoch), with at most `windows` of a
    row.

    The rows of an epoch are shuffled; the rows of each `BUCKET` batches are sorted by length and split into batches,
    and the batches are shuffled. This bounds padding without an order by length. If the rows do not fill the batches of
    a bucket, the batch sizes differ by at most one row: a small last batch would always contain the longest rows and
    weight them more. Vectors of sequences need no padding, so they are not sorted, and the last batch of an epoch may
    be smaller.
    """

    def __init__(
        self,
        encoded: Sequence[Encoded],
        targets: Sequence[Target],
        *,
        batch_size: int,
        seed: int,
        windows: int | None = None,
    ) -> None:
        self.encoded, self.targets, self.windows = encoded, targets, windows
        self.batch_size, self.seed, self.epoch_steps = batch_size, seed, -(-len(encoded) // batch_size)
        # Of inputs of a head, which have no tokens, a row counts as one. With a sample of windows: the pieces of the
        # longest ones, an upper bound.
        sizes = [sum(sorted(row.sizes, reverse=True)[:windows]) if row.pieces else 1 for row in encoded]
        self.sizes, self.lengths = np.asarray(sizes, dtype=np.int64), longest(encoded)
        self.purpose = "examples" if encoded[0].pieces else "features"
        #: Current epoch: index, and batches.
        self._epoch: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def rows(self, step: int) -> NDArray[np.int64]:
        epoch, index = divmod(step, self.epoch_steps)
        if self._epoch[0] != epoch:
            self._epoch = epoch, self._batches(counter_rng(self.seed, self.purpose, epoch))
        return self._epoch[1][index]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it on one rank."""
        rows = self.rows(step)[rank::world]
        return collate([self._learned(step, row) for row in rows.tolist()], [self.targets[row] for row in rows])

    def tokens(self, step: int) -> int:
        return int(self.sizes[self.rows(step)].sum())

    def _batches(self, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        order, size = rng.permutation(len(self.sizes)), self.batch_size
        if self.encoded[0].vectors and self.encoded[0].vectors[0].ndim == 1:
            return [order[start : start + size] for start in range(0, len(order), size)]
        stretched = self.lengths * (1 + JITTER * rng.random(len(order)))
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), BUCKET * size):
            rows = order[start : start + BUCKET * size]
            count = -(-len(rows) // size)
            cuts = len(rows) // count + (rng.permutation(count) < len(rows) % count)
            batches += np.split(rows[np.argsort(stretched[rows])], np.cumsum(cuts)[:-1])
        return [batches[index] for index in rng.permutation(len(batches))]

    def _learned(self, step: int, row: int) -> Encoded:
        result = self.encoded[row]
        if self.windows is None or len(result.pieces) <= self.windows:
            return result
        rng = counter_rng(self.seed, "windows", step, row)
        return some_windows(result, self.targets[row], most=self.windows, rng=rng)
