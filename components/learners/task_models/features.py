"""Features of a frozen encoder: computed once, cached on disk by content, and used to train heads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
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
        offsets: of each row as in `task_models.base.Encoded`, where sequences have units; else empty.
    """

    rows: list[list[Vectors]]
    offsets: Sequence[list[NDArray[np.int64]]] = ()

    @classmethod
    def of(cls, rows: Iterable[Iterable[Vectors]]) -> FeatureTable:
        """A table without offsets."""
        return cls(list(map(list, rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def joined(self, other: FeatureTable) -> FeatureTable:
        """The rows of this table, then the rows of another table of the same model."""
        return FeatureTable(self.rows + other.rows, [*self.offsets, *other.offsets])

    def take(self, rows: Iterable[int]) -> FeatureTable:
        """The rows with these indices, in this order; the vectors are shared."""
        chosen = list(rows)
        offsets = [self.offsets[row] for row in chosen] if self.offsets else ()
        return FeatureTable([self.rows[row] for row in chosen], offsets)

    def averaged(self, groups: NDArray[np.int64]) -> FeatureTable:
        """One vector for each group: the mean of the vectors of its rows. (N,) group of each row, from 0, ascending."""
        if len(np.unique(groups)) == len(groups):
            return self
        parts = [self.take(np.flatnonzero(groups == group)).matrix() for group in np.unique(groups)]
        return FeatureTable([[part.mean(0).numpy()] for part in parts])

    @property
    def counts(self) -> list[int]:
        """Number of sequences of each row."""
        return list(map(len, self.rows))

    @property
    def of_units(self) -> bool:
        """Whether a sequence has a vector per unit instead of one."""
        return self.rows[0][0].ndim == 2

    def matrix(self) -> Tensor:
        """(K, F) vectors of the rows, sequence by sequence."""
        return torch.from_numpy(np.concatenate([np.atleast_2d(vectors) for row in self.rows for vectors in row]))

    def batch(self, rows: Iterable[int], targets: Sequence[Target] | None = None) -> Batch:
        """B rows as a batch of `task_models.sampler` with `features` (S, F) or (S, U, F) instead of tokens."""
        part = self.take(rows)
        batch = target_batch(targets) | {"rows": torch.from_numpy(np.repeat(np.arange(len(part)), part.counts))}
        if not part.of_units:
            return batch | {"features": part.matrix()}
        batch["features"], batch["unit_lengths"] = pad(list(chain(*part.rows)))
        if any(map(len, offsets := list(chain(*part.offsets)))):
            batch["offsets"], _ = pad(offsets, value=-1)
        return batch

    @property
    def longest(self) -> NDArray[np.int64]:
        """(N,) number of units of each row's longest sequence; 1 if every sequence is one vector."""
        return np.asarray([max(map(len, row)) if row[0].ndim == 2 else 1 for row in self.rows], dtype=np.int64)


def grouped(items: Iterable[Any], counts: Iterable[int]) -> list[list[Any]]:
    """Consecutive items in lists of these lengths."""
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
        counts, lengths, offsets = list[int](), list[int](), list[NDArray[np.int64]]()
        with (draft.path / VECTORS).open("wb") as file:
            for table in compute():
                vectors = table.matrix().numpy()
                vectors.tofile(file)
                counts += table.counts
                lengths += map(len, chain(*table.rows)) if table.of_units else ()
                offsets += chain(*table.offsets)
        sizes, flat = list(map(len, offsets)), np.concatenate([np.zeros((0, 2), dtype=np.int64), *offsets])
        layout = {"counts": counts, "lengths": lengths, "sizes": sizes}
        arrays: dict[str, Any] = {name: np.asarray(values, dtype=np.int64) for name, values in layout.items()}
        np.savez(draft.path / LAYOUT, width=vectors.shape[1], offsets=flat, **arrays)


def _read(directory: Path) -> FeatureTable:
    with np.load(directory / LAYOUT) as stored:
        counts, lengths, sizes, offsets = (stored[name] for name in ("counts", "lengths", "sizes", "offsets"))
        # Memory-mapped: processes share the pages, and a table may exceed memory.
        flat = np.memmap(directory / VECTORS, np.float32, "r").view(np.ndarray).reshape(-1, int(stored["width"]))
    parts = np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else flat
    of_rows = grouped(np.split(offsets, np.cumsum(sizes)[:-1]), counts) if len(sizes) else []
    return FeatureTable(grouped(parts, counts), of_rows)


def trim(folder: Path, *, gigabytes: float) -> None:
    """Remove the least recently used tables until the cache has at most this size in gigabytes (10^9 bytes)."""
    sweep(Path(folder))
    tables = [manifest.parent for manifest in Path(folder).glob(f"[!.]*/{MANIFEST}")]
    tables.sort(key=lambda table: (table / MANIFEST).stat().st_mtime, reverse=True)
    sizes = np.cumsum([sum(file.stat().st_size for file in table.iterdir()) for table in tables])
    for table, size in zip(tables, sizes, strict=True):
        if size > gigabytes * 1e9:
            shutil.rmtree(table, ignore_errors=True)


def read_by_head(model: TaskModel, table: FeatureTable) -> FeatureTable:
    """The inputs of the head: the table, or with a learned mix of layers the mixed vectors for the current weights."""
    if model.features.mix is None:
        return table

    def read(row: list[Vectors]) -> list[Vectors]:
        vectors = [model.features.mixed(torch.tensor(each, device=model.device)) for each in row]
        if model.combine is not None:
            vectors = list(model.combine(torch.stack(vectors), torch.zeros(len(row), dtype=torch.int64), None))
        return [each.cpu().numpy() for each in vectors]

    with torch.no_grad():
        return FeatureTable(list(map(read, table.rows)), table.offsets)
