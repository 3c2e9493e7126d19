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

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from components.data.ingestion.dedup import Documents, Flags, Sketches, Words64, band_key, band_rows, unpacked_rows

#: Pairs that are verified at once.
_PAIRS = 50_000


def mapped_keys(batches: Iterable[pa.RecordBatch], folder: Path) -> tuple[Words64, Sketches]:
    """The keys (n, 2) and the signatures (n, p) of documents, memory-mapped from files that are written to a folder.
    `batches`: columns `exact` and `sketch`; without the latter, p is 0."""
    types, count = {"exact": np.uint64, "sketch": np.uint16}, 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in types}
        for batch in batches:
            count += len(batch)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                files[name].write(unpacked_rows(column, np.uint8).data)
    # An empty file cannot be mapped.
    exact, sketches = (
        np.memmap(folder / name, of, "r").reshape(count, -1)
        if (folder / name).stat().st_size
        else np.empty((count, 2), of)
        for name, of in types.items()
    )
    return exact, sketches


def find_duplicates(
    exact: Words64, sketches: Sketches, *, old: int, threshold: float | None
) -> tuple[pd.DataFrame, Flags]:
    """The duplicates among documents, in document order.

    Args:
        exact: keys (n, 2).
        sketches: signatures (n, p).
        old: number of documents of earlier runs, which are only compared with.
        threshold: estimated Jaccard similarity from which two documents are near duplicates; None: they are kept.

    Returns:
        The number `later` of each duplicate, the number `earlier` of the document that it was compared with, their
        `similarity`, and whether they are `exact` duplicates; (n,) whether a document is a duplicate.
    """
    flags, groups = np.zeros(len(exact), dtype=bool), []

    def searches() -> Iterator[tuple[Documents, Documents, npt.NDArray[np.float64]]]:
        later, earlier = _first_of_equal(np.arange(len(exact)), exact.view("V16")[:, 0])
        yield later, earlier, np.ones(len(later))
        if threshold:
            yield from near_pairs(sketches, threshold, rows=band_rows(threshold), flags=flags)

    for number, (later, earlier, similarity) in enumerate(searches()):
        pairs = pd.DataFrame({"later": later, "earlier": earlier, "similarity": similarity, "exact": number == 0})
        groups.append(pairs[pairs.later >= old])
        flags[groups[-1].later] = True
    return pd.concat(groups).sort_values("later"), flags


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


def _first_of_equal(numbers: Documents, keys: npt.NDArray[Any]) -> tuple[Documents, Documents]:
    """(later, first) of all documents with equal keys (n,)."""
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    later = first[group] != np.arange(len(keys))
    return numbers[later], numbers[first[group[later]]]
