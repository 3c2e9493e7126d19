"""Batches of labelled rows: every row once an epoch, rows of like length together.

A batch of B rows with S sequences in all holds

tokens, lengths         (S, T) piece ids padded with 0, and (S,)
segments                (S, T), only where any is not 0
rows                    (S,) the row of the batch that a sequence belongs to, ascending
units, unit_lengths     (S, U, 2) padded with -1 (see `tasks.base.Encoded`), and (S,)
offsets                 (S, U, 2) padded with -1, only where there are any
targets, target_lengths (B, X) padded with nan, and (B,); only where targets are known
masked_...              what `components.training.masking.mask_texts` draws, only where it is asked for
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.finetuning.tasks.base import Encoded, Target
from components.models.base import Batch
from components.training.counters import counter_rng
from components.training.masking import mask_texts
from components.training.windows import Sampler

#: So many batches are drawn together and sorted by length, as far as the order of an epoch goes.
BUCKET = 16


def pad(vectors: Sequence[NDArray[np.generic]], *, value: float = 0) -> tuple[Tensor, Tensor]:
    """Vectors (or matrices) as (N, T, ...), padded with `value` to the longest, and their lengths (N,)."""
    lengths = np.asarray([len(vector) for vector in vectors], dtype=np.int64)
    padded = np.full((len(vectors), int(lengths.max()), *vectors[0].shape[1:]), value, dtype=vectors[0].dtype)
    for row, vector in zip(padded, vectors, strict=True):
        row[: len(vector)] = vector
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def collate(encoded: Sequence[Encoded], targets: Sequence[Target] | None = None) -> Batch:
    """Rows as a batch (see the module's text)."""
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
    """The part of a batch that says what is right."""
    if targets is None:
        return {}
    padded, lengths = pad(targets, value=np.nan)
    return {"targets": padded, "target_lengths": lengths}


def longest(encoded: Sequence[Encoded]) -> NDArray[np.int64]:
    """(N,) pieces of each row's longest sequence."""
    return np.asarray([max(map(len, row.pieces)) for row in encoded], dtype=np.int64)


def sequences(encoded: Sequence[Encoded]) -> NDArray[np.int64]:
    """(N,) sequences of each row."""
    return np.asarray([len(row.pieces) for row in encoded], dtype=np.int64)


def some_windows(row: Encoded, target: Target, *, most: int, rng: np.random.Generator) -> Encoded:
    """At most `most` of a row's windows, in their order: one that holds all of the first answer, if any does, and
    others as they are drawn."""
    held: list[int] = []
    if len(target):
        held = [
            window
            for window, places in enumerate(row.offsets)
            if len(places) > 1 and places[1, 0] <= target[0] and places[-1, 1] >= target[1]
        ]
    chosen = [held[int(rng.integers(len(held)))]] if held else []
    chosen += [int(window) for window in rng.permutation(len(row.pieces)) if window not in chosen][: most - len(chosen)]
    chosen.sort()
    parts = (row.pieces, row.segments, row.units, row.offsets)
    return Encoded(*([part[window] for window in chosen] for part in parts))


class ExampleSampler(Sampler):
    """Labelled rows, a pure function of (seed, step).

    Each epoch has its own order. Within it, stretches of `BUCKET` batches are sorted by length and cut into batches,
    whose order is then drawn: there is little padding, and no batch order that follows length.

    Args:
        encoded: N rows.
        targets: N vectors.
        batch_size: rows of a global batch; an epoch's last batch may have fewer.
        seed: decides the order, and the masks.
        masks: number of pieces of the vocabulary, if pieces are to be masked beside (`LanguageModel.text_loss`).
        windows: of a row, that are in a batch at most; None: all.
    """

    def __init__(
        self,
        encoded: Sequence[Encoded],
        targets: Sequence[Target],
        *,
        batch_size: int,
        seed: int,
        masks: int | None = None,
        windows: int | None = None,
    ) -> None:
        self.encoded = encoded
        self.targets = targets
        self.batch_size = batch_size
        self.seed = seed
        self.masks = masks
        self.windows = windows
        self.lengths = longest(encoded)
        #: Pieces of each row; where some windows are left out, those of the longest ones.
        self.pieces = np.asarray(
            [sum(sorted(map(len, row.pieces), reverse=True)[:windows]) for row in encoded], dtype=np.int64
        )
        self.epoch_steps = -(-len(encoded) // batch_size)
        #: The epoch at hand: its number, its batches, and the pieces before each of them.
        self._epoch: tuple[int, list[NDArray[np.int64]], NDArray[np.int64]] = (-1, [], self.lengths[:0])

    def rows(self, step: int) -> NDArray[np.int64]:
        """Row numbers of a step's global batch."""
        epoch, place = divmod(step, self.epoch_steps)
        if self._epoch[0] != epoch:
            batches = self._batches(epoch)
            before = np.cumsum([0, *(int(self.pieces[rows].sum()) for rows in batches)])
            self._epoch = (epoch, batches, before)
        return self._epoch[1][place]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, with targets."""
        rows = self.rows(step)[rank::world]
        encoded = [self._learned(step, int(row)) for row in rows]
        batch = collate(encoded, [self.targets[row] for row in rows])
        if self.masks is not None:
            rngs = [
                counter_rng(self.seed, "masks", step, int(row), sequence)
                for row, own in zip(rows, encoded, strict=True)
                for sequence in range(len(own.pieces))
            ]
            batch |= mask_texts(batch["tokens"].numpy(), batch["lengths"].numpy(), rngs, vocabulary=self.masks)
        return batch

    def _learned(self, step: int, row: int) -> Encoded:
        found = self.encoded[row]
        if self.windows is None or len(found.pieces) <= self.windows:
            return found
        rng = counter_rng(self.seed, "windows", step, row)
        return some_windows(found, self.targets[row], most=self.windows, rng=rng)

    def tokens_before(self, step: int) -> int:
        """Pieces of all batches before `step`, padding not counted."""
        epochs, place = divmod(step, self.epoch_steps)
        begun = 0
        if place:
            self.rows(step)
            begun = int(self._epoch[2][place])
        return epochs * int(self.pieces.sum()) + begun

    def _batches(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = counter_rng(self.seed, "examples", epoch)
        order = rng.permutation(len(self.encoded))
        stretch = BUCKET * self.batch_size
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), stretch):
            rows = order[start : start + stretch]
            rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            batches += [rows[at : at + self.batch_size] for at in range(0, len(rows), self.batch_size)]
        # The last stretch may end in a short batch: it keeps the last place, so that every epoch has the same steps.
        short = [batches.pop()] if len(batches[-1]) < self.batch_size else []
        return [batches[index] for index in rng.permutation(len(batches))] + short
