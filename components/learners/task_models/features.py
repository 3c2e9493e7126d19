"""Features of a frozen encoder: computed once, cached on disk by content, and used to train heads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.artifacts import MANIFEST, is_complete, is_intact, locked, sweep, unwritable, writing
from components.data.tasks.data import Target
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import pad, target_batch
from components.models.base import Batch

KIND = "features"
#: Files of a table: the vectors, which are memory-mapped, and all other arrays.
VECTORS, LAYOUT = "vectors.f32", "layout.npz"


#: A vector (F,), or the vectors (U, F) of the units of a sequence, in float32.
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class FeatureTable:
    """Inputs of a head for N rows.

    Attributes:
        rows: of each row, the vectors of its sequences.
        offsets: of each row as in `task_models.base.Encoded`; (0, 2) for tasks without offsets.
    """

    rows: list[list[Vectors]]
    offsets: list[list[NDArray[np.int64]]]

    @classmethod
    def of(cls, rows: Iterable[Iterable[Vectors]]) -> FeatureTable:
        """A table without offsets."""
        given = list(map(list, rows))
        return cls(given, [[np.zeros((0, 2), dtype=np.int64)] * len(row) for row in given])

    def __len__(self) -> int:
        return len(self.rows)

    def joined(self, other: FeatureTable) -> FeatureTable:
        """The rows of this table, then the rows of another table of the same model."""
        return FeatureTable(self.rows + other.rows, self.offsets + other.offsets)

    def take(self, rows: Iterable[int]) -> FeatureTable:
        """The rows with these indices, in this order; the vectors are shared."""
        chosen = list(rows)
        return FeatureTable([self.rows[row] for row in chosen], [self.offsets[row] for row in chosen])

    def averaged(self, groups: NDArray[np.int64]) -> FeatureTable:
        """One vector for each group: the mean of the vectors of its rows. (N,) group of each row, from 0, ascending."""
        if len(np.unique(groups)) == len(groups):
            return self
        parts = [self.take(np.flatnonzero(groups == group)).matrix() for group in np.unique(groups)]
        return FeatureTable.of([part.mean(0).numpy()] for part in parts)

    @property
    def counts(self) -> list[int]:
        """Number of sequences of each row."""
        return list(map(len, self.rows))

    @property
    def sequences(self) -> list[Vectors]:
        return [vectors for row in self.rows for vectors in row]

    @property
    def of_units(self) -> bool:
        """Whether a sequence has a vector per unit instead of one."""
        return self.sequences[0].ndim == 2

    def matrix(self) -> Tensor:
        """(K, F) vectors of the rows, sequence by sequence."""
        return torch.from_numpy(np.concatenate([np.atleast_2d(vectors) for vectors in self.sequences]))

    def batch(self, rows: Iterable[int], targets: Sequence[Target] | None = None, *, units: int | None = None) -> Batch:
        """B rows as a batch of `task_models.sampler` with `features` (S, F) or (S, U, F) instead of tokens; `units`: U,
        at least the longest sequence (None: just that)."""
        part = self.take(rows)
        whose = torch.from_numpy(np.repeat(np.arange(len(part)), part.counts))
        batch = target_batch(targets) | {"rows": whose}
        if not part.of_units:
            return batch | {"features": part.matrix()}
        batch["features"], batch["unit_lengths"] = pad(part.sequences, size=units)
        offsets = [each for row in part.offsets for each in row]
        if any(map(len, offsets)):
            batch["offsets"], _ = pad(offsets, value=-1, size=batch["features"].shape[1])
        return batch

    def longest(self) -> NDArray[np.int64] | None:
        """(N,) number of units of each row's longest sequence; None if every sequence is one vector."""
        return np.asarray([max(map(len, row)) for row in self.rows]) if self.of_units else None

    def with_vectors(self, vectors: Vectors) -> FeatureTable:
        """The same rows with other (K, F) vectors; with as many as rows, one for each row."""
        if not self.of_units:
            counts = [1] * len(self) if len(vectors) == len(self) else self.counts
            return FeatureTable.of(_grouped(vectors, counts))
        parts = np.split(vectors, np.cumsum(list(map(len, self.sequences)))[:-1])
        return FeatureTable(_grouped(parts, self.counts), self.offsets)


def _grouped(items: Iterable[Any], counts: Iterable[int]) -> list[list[Any]]:
    left = iter(items)
    return [list(islice(left, count)) for count in counts]


def cached(folder: Path, key: str, compute: Callable[[], Iterable[FeatureTable]]) -> FeatureTable:
    """The table with this key, read from the cache, or computed and written by one process while others wait. A table
    whose files were altered is computed again.

    Args:
        folder: of the cache.
        key: of the table's content.
        compute: the tables of consecutive rows, at least one.

    Raises:
        ArtifactError: the table cannot be written.
    """
    directory, lock = Path(folder) / key, Path(folder) / f".{key}.lock"
    if not is_intact(directory, kind=KIND):
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            with locked(lock):
                if not is_intact(directory, kind=KIND):
                    _write(directory, compute)
        except OSError as error:
            raise unwritable(directory, error) from error
        finally:
            with suppress(OSError):
                lock.unlink()
    os.utime(directory / MANIFEST)
    return _read(directory)


def _write(directory: Path, compute: Callable[[], Iterable[FeatureTable]]) -> None:
    if is_complete(directory, kind=KIND):
        shutil.rmtree(directory)
    with writing(directory, kind=KIND, replace=False) as draft:
        layouts = []
        with (draft.path / VECTORS).open("wb") as file:
            for table in compute():
                vectors = table.matrix().numpy()
                vectors.tofile(file)
                lengths = list(map(len, table.sequences)) if table.of_units else np.zeros(0, dtype=np.int64)
                offsets = [each for row in table.offsets for each in row]
                layouts.append((table.counts, lengths, np.concatenate(offsets), list(map(len, offsets))))
        names = ("counts", "lengths", "offsets", "offset_lengths")
        layout: dict[str, Any] = dict(zip(names, map(np.concatenate, zip(*layouts, strict=True)), strict=True))
        np.savez(draft.path / LAYOUT, width=vectors.shape[1], **layout)


def _read(directory: Path) -> FeatureTable:
    with np.load(directory / LAYOUT) as stored:
        counts, lengths = stored["counts"], stored["lengths"]
        offsets = np.split(stored["offsets"], np.cumsum(stored["offset_lengths"])[:-1])
        # Memory-mapped: processes share the pages, and a table may exceed memory.
        flat = np.memmap(directory / VECTORS, np.float32, "r").view(np.ndarray).reshape(-1, int(stored["width"]))
    parts = np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else flat
    return FeatureTable(_grouped(parts, counts), _grouped(offsets, counts))


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
    device = model.features.mix.gamma.device
    whose = torch.from_numpy(np.repeat(np.arange(len(table)), table.counts)).to(device)
    with torch.no_grad():
        return table.with_vectors(model.above(table.matrix().to(device), whose).cpu().numpy())
