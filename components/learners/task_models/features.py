"""Features of a frozen encoder: computed once, cached on disk by content, and used to train heads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.artifacts import MANIFEST, is_complete, is_intact, locked, sweep, unwritable, writing
from components.learners.task_models.base import Encoded
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import matrix

KIND = "features"
#: Files of a table: the vectors, which are memory-mapped, and all other arrays.
VECTORS, LAYOUT = "vectors.f32", "layout.npz"


def averaged(rows: Sequence[Encoded], groups: NDArray[np.int64]) -> list[Encoded]:
    """One vector for each group: the mean of the vectors of its rows. (N,) group of each row, from 0, ascending."""
    if len(np.unique(groups)) == len(groups):
        return list(rows)
    parts = [matrix(rows[row] for row in np.flatnonzero(groups == group).tolist()) for group in np.unique(groups)]
    return [Encoded.of_vectors([part.mean(0).numpy()]) for part in parts]


def grouped(items: Iterable[Any], counts: Iterable[int]) -> list[list[Any]]:
    """Consecutive items in lists of these lengths."""
    left = iter(items)
    return [list(islice(left, count)) for count in counts]


def cached(folder: Path, key: str, compute: Callable[[], Iterable[Sequence[Encoded]]]) -> list[Encoded]:
    """The inputs of a head with this key, read from the cache, or computed and written by one process while others
    wait. What was altered is computed again.

    Args:
        folder: of the cache.
        key: of the table's content.
        compute: consecutive rows, at least one.

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


def _write(directory: Path, compute: Callable[[], Iterable[Sequence[Encoded]]]) -> None:
    if is_complete(directory, kind=KIND):
        shutil.rmtree(directory)
    with writing(directory, kind=KIND, replace=False) as draft:
        counts, lengths, offsets = list[int](), list[int](), list[NDArray[np.int64]]()
        with (draft.path / VECTORS).open("wb") as file:
            for rows in compute():
                vectors = matrix(rows).numpy()
                vectors.tofile(file)
                for row in rows:
                    counts.append(len(row.vectors))
                    lengths += row.sizes if row.vectors[0].ndim == 2 else ()
                    offsets += row.offsets
        sizes, flat = list(map(len, offsets)), np.concatenate([np.zeros((0, 2), dtype=np.int64), *offsets])
        layout = {"counts": counts, "lengths": lengths, "sizes": sizes}
        arrays: dict[str, Any] = {name: np.asarray(values, dtype=np.int64) for name, values in layout.items()}
        np.savez(draft.path / LAYOUT, width=vectors.shape[1], offsets=flat, **arrays)


def _read(directory: Path) -> list[Encoded]:
    with np.load(directory / LAYOUT) as stored:
        counts, lengths, sizes, offsets = (stored[name] for name in ("counts", "lengths", "sizes", "offsets"))
        # Memory-mapped: processes share the pages, and a table may exceed memory.
        flat = np.memmap(directory / VECTORS, np.float32, "r").view(np.ndarray).reshape(-1, int(stored["width"]))
    parts = np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else flat
    of_rows = grouped(np.split(offsets, np.cumsum(sizes)[:-1]), counts) if len(sizes) else repeat(())
    return list(map(Encoded.of_vectors, grouped(parts, counts), of_rows))


def trim(folder: Path, *, gigabytes: float) -> None:
    """Remove the least recently used tables until the cache has at most this size in gigabytes (10^9 bytes)."""
    sweep(Path(folder))
    tables = [manifest.parent for manifest in Path(folder).glob(f"[!.]*/{MANIFEST}")]
    tables.sort(key=lambda table: (table / MANIFEST).stat().st_mtime, reverse=True)
    sizes = np.cumsum([sum(file.stat().st_size for file in table.iterdir()) for table in tables])
    for table, size in zip(tables, sizes, strict=True):
        if size > gigabytes * 1e9:
            shutil.rmtree(table, ignore_errors=True)


def read_by_head(model: TaskModel, rows: list[Encoded]) -> list[Encoded]:
    """The inputs of the head: the rows, or with a learned mix of layers the mixed vectors for the current weights."""
    if model.features.mix is None:
        return rows

    def read(row: Encoded) -> Encoded:
        vectors = [model.features.mixed(torch.tensor(each, device=model.device)) for each in row.vectors]
        if model.combine is not None:
            vectors = list(model.combine(torch.stack(vectors), torch.zeros(len(vectors), dtype=torch.int64), None))
        return Encoded.of_vectors((each.cpu().numpy() for each in vectors), row.offsets)

    with torch.no_grad():
        return list(map(read, rows))
