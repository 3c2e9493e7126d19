"""Duplicates in a corpus, whose texts may be larger than memory: only the keys of the documents are compared.

The documents of a corpus are numbered in order: those of earlier runs, then those of each part of the raw files. A
document is compared with the first document of equal key that is no duplicate itself:

- exact duplicates have the same BLAKE2b-128 hash;
- near duplicates share a band of their MinHash signatures, and at least the threshold of all values. Bands are compared
  one after the other, because a document that one band finds takes no part in the next.

Documents of earlier runs are never dropped. Signatures are memory-mapped; the hashes, and the keys of one band at a
time, are in memory, about 50 bytes per document.

Arrays: n documents, p hash permutations.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from components.cluster.shards import Work
from components.data.formats.corpus import read_batches
from components.data.ingestion.dedup import (
    PERMUTATIONS,
    Documents,
    Flags,
    Sketches,
    Words64,
    band_key,
    band_rows,
    unpacked_rows,
)

#: Pairs that are verified at once.
_PAIRS = 50_000
PAIR: Final = np.dtype([("later", "<i8"), ("earlier", "<i8"), ("similarity", "<f8"), ("exact", "?")])
Pairs = npt.NDArray[np.void]


@dataclass(frozen=True)
class Part:
    """Documents of a part: the key of its files in the work folder, and the numbers of its documents."""

    key: str
    first: int
    rows: int

    def exact(self, work: Work) -> Words64:
        """Keys (n, 2) in document order, memory-mapped."""
        return np.memmap(work.read(f"{self.key}.exact"), np.uint64, "r", shape=(self.rows, 2))

    def sketches(self, work: Work) -> Sketches:
        """Signatures (n, p) in document order, memory-mapped."""
        return np.memmap(work.read(f"{self.key}.sketches"), np.uint16, "r", shape=(self.rows, PERMUTATIONS))


@contextmanager
def joined_keys(
    work: Work, shards: Iterable[Path], parts: Iterable[Part], *, near: bool
) -> Iterator[tuple[Words64, Sketches]]:
    """The keys (n, 2) and the signatures (n, p) of all documents, memory-mapped; without `near`, p is 0.

    Args:
        shards: files with the keys of earlier runs, in order.
        parts: new documents, at least one.
    """
    names = {"exact": "exact", "sketches": "sketch"} if near else {"exact": "exact"}
    with work.scratch() as folder:
        with ExitStack() as stack:
            files = {name: stack.enter_context((folder / name).open("wb")) for name in names}
            for batch in (batch for path in shards for batch in read_batches(path, [*names.values()])):
                for file, column in zip(files.values(), batch.columns, strict=True):
                    file.write(np.ascontiguousarray(unpacked_rows(column, np.uint8)).data)
            for part in parts:
                for name, file in files.items():
                    with work.read(f"{part.key}.{name}").open("rb") as of_part:
                        shutil.copyfileobj(of_part, file)
        exact = np.memmap(folder / "exact", np.uint64, "r").reshape(-1, 2)
        sketches = np.memmap(folder / "sketches", np.uint16, "r").reshape(-1, PERMUTATIONS) if near else None
        yield exact, np.empty((len(exact), 0), np.uint16) if sketches is None else sketches


def find_duplicates(exact: Words64, sketches: Sketches, *, old: int, threshold: float | None) -> tuple[Pairs, Flags]:
    """The duplicates among documents, in document order.

    Args:
        exact: keys (n, 2).
        sketches: signatures (n, p).
        old: number of documents of earlier runs, which are only compared with.
        threshold: estimated Jaccard similarity from which two documents are near duplicates; None: they are kept.

    Returns:
        Each duplicate with the document that it was compared with (`PAIR`); (n,) whether a document is a duplicate.
    """
    flags = np.zeros(len(exact), dtype=bool)
    pairs = [np.empty(0, PAIR)]

    def add(later: Documents, earlier: Documents, similarity: npt.NDArray[np.float64], *, same: bool) -> None:
        new = np.flatnonzero(later >= old)
        of_group = np.zeros(len(new), PAIR)
        of_group["later"], of_group["earlier"], of_group["similarity"] = later[new], earlier[new], similarity[new]
        of_group["exact"] = same
        flags[later[new]] = True
        pairs.append(of_group)

    later, earlier = _first_of_equal(np.arange(len(exact)), exact[:, 0], exact[:, 1])
    add(later, earlier, np.ones(len(later)), same=True)
    for found in near_pairs(sketches, threshold, rows=band_rows(threshold), flags=flags) if threshold else ():
        add(*found, same=False)
    every = np.concatenate(pairs)
    return every[np.argsort(every["later"])], flags


def near_pairs(
    sketches: Sketches, threshold: float, *, rows: int, flags: Flags | None = None
) -> Iterator[tuple[Documents, Documents, npt.NDArray[np.float64]]]:
    """(later, earlier, similarity) of signatures (n, p) whose estimated similarity, the share of equal values, is at
    least `threshold`: in each band every document is compared with the first of equal key.

    Args:
        rows: values in a band.
        flags: (n,) documents that take no part; read anew for every band.
    """
    for start in range(0, sketches.shape[1] // rows * rows, rows):
        numbers = np.arange(len(sketches)) if flags is None else np.flatnonzero(~flags)
        later, earlier = _first_of_equal(numbers, band_key(sketches[:, start : start + rows][numbers]))
        similarity = np.empty(len(later))
        for first in range(0, len(later), _PAIRS):
            block = slice(first, first + _PAIRS)
            similarity[block] = (sketches[later[block]] == sketches[earlier[block]]).mean(axis=1)
        alike = similarity >= threshold
        yield later[alike], earlier[alike], similarity[alike]


def _first_of_equal(numbers: Documents, *keys: Words64) -> tuple[Documents, Documents]:
    """(later, first) of all documents with equal keys; of documents with equal keys, the earliest comes first."""
    # Both sorts are stable.
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1])
    numbers, keys = numbers[order], tuple(column[order] for column in keys)
    same = np.zeros(len(numbers), dtype=bool)
    if len(numbers) > 1:
        same[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in keys])
    heads = np.maximum.accumulate(np.where(same, 0, np.arange(len(numbers))))
    later = np.flatnonzero(same)
    return numbers[later], numbers[heads[later]]
