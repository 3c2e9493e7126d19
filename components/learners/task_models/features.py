"""Features of a frozen encoder: computed once, cached on disk by content, and used to train heads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.artifacts import MANIFEST, is_complete, is_intact, sweep, writing
from components.data.tasks.data import Answer, Target
from components.learners.task_models.heads import Head
from components.learners.task_models.model import TaskModel, batches_by_length, predicting
from components.learners.task_models.sampler import target_batch
from components.models.base import Batch

KIND = "features"
#: Maximum number of vectors of a batch in prediction, padding included.
PREDICT_VECTORS = 16_384
#: Files of a table: the vectors, which are memory-mapped, and all other arrays.
VECTORS, LAYOUT = "vectors.npy", "layout.npz"


@dataclass(frozen=True)
class FeatureTable:
    """Inputs of a head for N rows with S sequences.

    Attributes:
        vectors: (M, F) float32; the vectors of a sequence are contiguous.
        starts: (S,) index of the first vector of each sequence.
        lengths: (S,) number of units; None if every sequence is one vector.
        counts: (N,) number of sequences of each row.
        offsets: (M, 2) as in `task_models.base.Encoded`; (0, 2) for tasks without offsets.
    """

    vectors: Tensor
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of_texts(cls, vectors: Tensor, counts: NDArray[np.int64] | None = None) -> FeatureTable:
        """One vector (S, F) per sequence, and (N,) sequences of each row; None: one."""
        each = np.ones(len(vectors), dtype=np.int64) if counts is None else counts
        return cls(vectors, np.arange(len(vectors)), None, each, np.zeros((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.counts)

    def joined(self, other: FeatureTable) -> FeatureTable:
        """The rows of this table, then the rows of another table of the same model; the vectors are copied."""
        tables = (self, other)
        lengths = None
        if self.lengths is not None and other.lengths is not None:
            lengths = np.concatenate([self.lengths, other.lengths])
        sizes = np.ones(len(self.starts) + len(other.starts), dtype=np.int64) if lengths is None else lengths
        offsets = [table.offsets[table.indices()] if len(table.offsets) else table.offsets for table in tables]
        return FeatureTable(
            torch.cat([table.matrix() for table in tables]),
            np.cumsum(sizes) - sizes,
            lengths,
            np.concatenate([table.counts for table in tables]),
            np.concatenate(offsets),
        )

    def take(self, rows: NDArray[np.int64]) -> FeatureTable:
        """The rows with these indices, in this order; the vectors are shared."""
        chosen = self.sequences_of(rows)
        lengths = None if self.lengths is None else self.lengths[chosen]
        return FeatureTable(self.vectors, self.starts[chosen], lengths, self.counts[rows], self.offsets)

    def averaged(self, groups: NDArray[np.int64]) -> FeatureTable:
        """One vector for each group: the mean of the vectors of its rows. (N,) group of each row, from 0, ascending."""
        if len(np.unique(groups)) == len(groups):
            return self
        whose = torch.from_numpy(np.repeat(groups, self.counts))
        means = self.vectors.new_zeros(int(groups[-1]) + 1, self.vectors.shape[1])
        return FeatureTable.of_texts(means.index_reduce(0, whose, self.matrix(), "mean", include_self=False))

    def indices(self) -> NDArray[np.int64]:
        """(K,) indices of the rows' vectors, sequence by sequence."""
        lengths = np.ones_like(self.starts) if self.lengths is None else self.lengths
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.starts - before, lengths) + np.arange(int(lengths.sum()))

    def matrix(self) -> Tensor:
        """(K, F) vectors of the rows, sequence by sequence."""
        indices = self.indices()
        if len(indices) == len(self.vectors) and np.array_equal(indices, np.arange(len(indices))):
            return self.vectors
        return self.vectors[torch.from_numpy(indices)]

    def batch(
        self, rows: NDArray[np.int64], targets: Sequence[Target] | None = None, *, units: int | None = None
    ) -> Batch:
        """B rows as a batch of `task_models.sampler` with `features` (S, F) or (S, U, F) instead of tokens; `units`: U,
        at least the longest sequence (None: just that)."""
        chosen = self.sequences_of(rows)
        whose = np.repeat(np.arange(len(rows)), self.counts[rows])
        batch = target_batch(targets) | {"rows": torch.from_numpy(whose)}
        starts = self.starts[chosen]
        if self.lengths is None:
            return batch | {"features": self.vectors[torch.from_numpy(starts)]}
        lengths = self.lengths[chosen]
        shape = (len(chosen), int(lengths.max()) if units is None else units)
        features = self.vectors.new_zeros(*shape, self.vectors.shape[1])
        offsets = np.full((*shape, 2), -1, dtype=np.int64)
        for sequence, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            features[sequence, :length] = self.vectors[start : start + length]
            if len(self.offsets):
                offsets[sequence, :length] = self.offsets[start : start + length]
        if len(self.offsets):
            batch["offsets"] = torch.from_numpy(offsets)
        return batch | {"features": features, "unit_lengths": torch.from_numpy(lengths)}

    def batches(self) -> Iterator[NDArray[np.int64]]:
        longest = self.longest()
        if longest is None:
            yield np.arange(len(self))
        else:
            yield from batches_by_length(longest, self.counts, PREDICT_VECTORS)

    def sequences(self, row: int) -> list[Tensor]:
        """The vectors of each sequence of a row: (F,), or (U, F)."""
        chosen = self.sequences_of(np.asarray([row]))
        if self.lengths is None:
            return list(self.vectors[torch.from_numpy(self.starts[chosen])])
        return [self.vectors[self.starts[each] : self.starts[each] + self.lengths[each]] for each in chosen]

    def longest(self) -> NDArray[np.int64] | None:
        """(N,) number of units of each row's longest sequence; None if every sequence is one vector."""
        if self.lengths is None:
            return None
        return np.maximum.reduceat(self.lengths, np.cumsum(self.counts) - self.counts)

    def sequences_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = np.cumsum(self.counts)
        return np.concatenate([np.arange(ends[row] - self.counts[row], ends[row]) for row in rows])


def cached(folder: Path, key: str, compute: Callable[[Path], FeatureTable]) -> FeatureTable:
    """The table with this key, read from the cache, or computed and written. If two processes compute it at the same
    time, the first result is kept. A table whose files were altered is computed again.

    Args:
        folder: of the cache.
        key: of the table's content.
        compute: (file for the vectors) -> table.

    Raises:
        ArtifactError: the table cannot be written.
    """
    directory = Path(folder) / key
    if not is_intact(directory, kind=KIND):
        if is_complete(directory, kind=KIND):
            shutil.rmtree(directory)
        with writing(directory, kind=KIND, replace=False) as draft:
            table = compute(draft.path / VECTORS)
            layout: dict[str, Any] = {"starts": table.starts, "counts": table.counts, "offsets": table.offsets}
            if table.lengths is not None:
                layout["lengths"] = table.lengths
            np.savez(draft.path / LAYOUT, **layout)
    os.utime(directory / MANIFEST)
    with np.load(directory / LAYOUT) as stored:
        arrays = dict(stored)
    # Memory-mapped: processes share the pages, and a table may exceed memory.
    vectors = torch.from_numpy(np.load(directory / VECTORS, mmap_mode="c"))
    return FeatureTable(vectors, arrays["starts"], arrays.get("lengths"), arrays["counts"], arrays["offsets"])


def trim(folder: Path, *, gigabytes: float) -> None:
    """Remove the least recently used tables until the cache has at most this size in gigabytes (10^9 bytes)."""
    sweep(Path(folder))
    result = []
    for manifest in Path(folder).glob(f"[!.]*/{MANIFEST}"):
        size = sum(file.stat().st_size for file in manifest.parent.iterdir())
        result.append((manifest.stat().st_mtime, size, manifest.parent))
    kept = 0.0
    for _, size, directory in sorted(result, reverse=True):
        kept += size
        if kept > gigabytes * 1e9:
            shutil.rmtree(directory, ignore_errors=True)


def read_by_head(model: TaskModel, table: FeatureTable) -> FeatureTable:
    """The inputs of the head: the table, or with a learned mix of layers the mixed vectors for the current weights."""
    if model.features.mix is None:
        return table
    whose = torch.from_numpy(np.repeat(np.arange(len(table)), table.counts)).to(model.features.mix.gamma.device)
    with torch.no_grad():
        vectors = model.above(table.matrix().to(whose.device), whose).cpu()
    if table.lengths is None:
        return FeatureTable.of_texts(vectors, table.counts if len(vectors) == len(whose) else None)
    lengths = table.lengths
    offsets = table.offsets[table.indices()] if len(table.offsets) else table.offsets
    return FeatureTable(vectors, np.cumsum(lengths) - lengths, lengths, table.counts, offsets)


def head_answers(
    head: Head, table: FeatureTable, *, answer: Callable[[Tensor, Batch], list[Answer]] | None = None
) -> list[Answer]:
    """The answers of a head to N rows, computed on its device, by `Head.answers` or another function of its outputs."""
    answer = answer or head.answers
    device = next(head.parameters()).device
    results: dict[int, Answer] = {}
    with predicting(head):
        for rows in table.batches():
            batch = {name: tensor.to(device) for name, tensor in table.batch(rows).items()}
            result = answer(head.of_batch(batch["features"], batch), batch)
            results |= zip(rows.tolist(), result, strict=True)
    return [results[row] for row in range(len(table))]
