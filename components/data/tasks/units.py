"""Units of labelled rows: rows of one unit are not independent, and stay together in splits and folds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

#: Largest share of the rows that copies may join in one unit where rows have groups or documents.
MOST_JOINED: Final = 0.5


def units_of(
    keys: Sequence[Hashable], groups: Sequence[Hashable | None], documents: Sequence[Hashable | None]
) -> NDArray[np.int64]:
    """The unit of each row: rows with the same key, group or document are in one unit, directly or through other rows.

    Where this would join most of the rows (a sentence such as "Yes." that is in every document), rows are joined by
    group and document only, and copies may lie in several units. `groups`, `documents`: N names; None: the row has
    none. Returns (N,) numbers from 0, in the order of the first row.
    """
    joined = _linked(keys, groups, documents)
    if not len(joined) or np.bincount(joined).max() <= MOST_JOINED * len(joined):
        return joined
    alone = [
        key if group is None and document is None else None
        for key, group, document in zip(keys, groups, documents, strict=True)
    ]
    return _linked(alone, groups, documents)


def _linked(*columns: Sequence[Hashable | None]) -> NDArray[np.int64]:
    """Rows that share a value of a column, directly or through other rows, have the same number; None is no value."""
    count, values = len(columns[0]), dict[tuple[int, Hashable], int]()
    pairs = [
        (row, values.setdefault((number, value), count + len(values)))
        for number, column in enumerate(columns)
        for row, value in enumerate(column)
        if value is not None
    ]
    size = count + len(values)
    rows, nodes = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    _, parts = connected_components(coo_array((np.ones(len(rows), dtype=np.int8), (rows, nodes)), (size, size)), False)
    _, first, parts = np.unique(parts[:count], return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[parts], dtype=np.int64)
