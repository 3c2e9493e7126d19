"""Batches of labelled texts: every text once an epoch, texts of like length together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import Batch
from components.training.counters import counter_rng
from components.training.windows import Sampler

#: So many batches are drawn together and sorted by length, as far as the order of an epoch goes.
BUCKET = 16


def pad(pieces: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Texts as (B, T) int64, padded with 0 to the longest, and their lengths (B,)."""
    lengths = np.asarray([len(text) for text in pieces], dtype=np.int64)
    tokens = np.zeros((len(pieces), int(lengths.max())), dtype=np.int64)
    for row, text in zip(tokens, pieces, strict=True):
        row[: len(text)] = text
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


class ExampleSampler(Sampler):
    """Labelled texts, a pure function of (seed, step).

    Each epoch has its own order. Within it, stretches of `BUCKET` batches are sorted by length and cut into batches,
    whose order is then drawn: there is little padding, and no batch order that follows length.

    Args:
        pieces: N texts as piece ids.
        labels: (N,) label numbers.
        batch_size: texts of a global batch; an epoch's last batch may have fewer.
        seed: decides the order.
    """

    def __init__(
        self, pieces: Sequence[NDArray[np.int64]], labels: NDArray[np.int64], *, batch_size: int, seed: int
    ) -> None:
        self.pieces = pieces
        self.labels = labels
        self.batch_size = batch_size
        self.seed = seed
        self.lengths = np.asarray([len(text) for text in pieces], dtype=np.int64)
        self.epoch_steps = -(-len(pieces) // batch_size)
        #: The epoch at hand: its number, its batches, and the pieces before each of them.
        self._epoch: tuple[int, list[NDArray[np.int64]], NDArray[np.int64]] = (-1, [], self.lengths[:0])

    def rows(self, step: int) -> NDArray[np.int64]:
        """Row numbers of a step's global batch."""
        epoch, place = divmod(step, self.epoch_steps)
        if self._epoch[0] != epoch:
            batches = self._batches(epoch)
            before = np.cumsum([0, *(int(self.lengths[rows].sum()) for rows in batches)])
            self._epoch = (epoch, batches, before)
        return self._epoch[1][place]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """`tokens` (B, T) padded with 0, `lengths` (B,), `labels` (B,)."""
        rows = self.rows(step)[rank::world]
        tokens, lengths = pad([self.pieces[row] for row in rows])
        return {"tokens": tokens, "lengths": lengths, "labels": torch.from_numpy(self.labels[rows])}

    def tokens_before(self, step: int) -> int:
        """Pieces of all batches before `step`, padding not counted."""
        epochs, place = divmod(step, self.epoch_steps)
        begun = 0
        if place:
            self.rows(step)
            begun = int(self._epoch[2][place])
        return epochs * int(self.lengths.sum()) + begun

    def _batches(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = counter_rng(self.seed, "examples", epoch)
        order = rng.permutation(len(self.pieces))
        stretch = BUCKET * self.batch_size
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), stretch):
            rows = order[start : start + stretch]
            rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            batches += [rows[at : at + self.batch_size] for at in range(0, len(rows), self.batch_size)]
        # The last stretch may end in a short batch: it keeps the last place, so that every epoch has the same steps.
        short = [batches.pop()] if len(batches[-1]) < self.batch_size else []
        return [batches[index] for index in rng.permutation(len(batches))] + short
