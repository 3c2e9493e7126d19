"""How often pieces stand near each other, counted from a stream of any length in bounded memory.

Pairs are counted a stretch at a time. Where the different pairs outgrow memory, sorted runs of them go to a temporary
file, and are merged range by range at the end; the result is then a map of a file that vanishes with the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.errors import DataError
from components.models.base import Batch
from components.models.glove import GloVeConfig
from components.tokenization.special import END
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

Counts = NDArray[np.float64]
#: Sorted different keys and the count of each.
Run = tuple[Ids, Counts]

#: Pieces of a stream that are read at once.
STRETCH: Final = 65_536
#: Different pairs held in memory; sorting them takes some 50 bytes each.
MOST_PAIRS: Final = 1 << 23
#: Every so many keys of a run one is looked at to divide the merge into ranges.
SAMPLED: Final = 1024


def whole_text(store: Tokens, *, reach: int) -> Iterator[tuple[Ids, int]]:
    """The stream in stretches, each followed by `reach` pieces of the next one, and how many pieces are its own."""
    for start in range(0, store.tokens, STRETCH):
        own = min(STRETCH, store.tokens - start)
        yield store.span(start, min(own + reach, store.tokens - start)), own


def count_pairs(
    stretches: Iterable[tuple[Ids, int]],
    *,
    vocabulary: int,
    weights: Sequence[float],
    separator: int | None = None,
    most: int = MOST_PAIRS,
) -> Run:
    """Weighted counts of the unordered pairs that stand up to len(weights) pieces apart.

    Args:
        stretches: pieces (n,) and how many of them, from the first on, are left ends of pairs.
        weights: what a pair at distance 1, 2 ... counts.
        separator: a piece that belongs to no pair, and over which no pair reaches.
        most: different pairs that are held in memory.

    Returns:
        keys (N,) int64, ascending, i * vocabulary + j with i <= j, and counts (N,).

    Raises:
        DataError: the temporary folder is full.
    """
    held: list[Run] = []
    spilled: list[Run] = []
    size = 0
    for text, own in stretches:
        held.append(_count(text, own, vocabulary=vocabulary, weights=np.asarray(weights), separator=separator))
        size += len(held[-1][0])
        if size > most:
            held = [_merged(held)]
            size = len(held[0][0])
            # Kept while merging still halves it: frequent pairs come again and again.
            if size > most // 2:
                spilled.append(_on_disk(held))
                held, size = [], 0
    rest = _merged(held)
    return _on_disk(_in_ranges([*spilled, rest], most)) if spilled else rest


def _count(text: Ids, own: int, *, vocabulary: int, weights: Counts, separator: int | None) -> Run:
    """One stretch. Pair and distance make one number, so that a plain sort, the fastest, counts both."""
    documents = np.cumsum(text == separator)
    found = []
    for distance in range(1, min(len(weights), len(text) - 1) + 1):
        many = min(own, len(text) - distance)
        left, right = text[:many], text[distance : distance + many]
        if separator is not None:
            inside = (left != separator) & (documents[:many] == documents[distance : distance + many])
            left, right = left[inside], right[inside]
        keys = np.minimum(left, right) * vocabulary + np.maximum(left, right)
        found.append(keys * len(weights) + (distance - 1))
    numbers = np.sort(np.concatenate([*found, np.empty(0, np.int64)]))
    firsts = _firsts(numbers)
    times = np.diff(np.append(firsts, len(numbers)))
    keys, distances = np.divmod(numbers[firsts], len(weights))
    return _summed(keys, times * weights[distances])


def _merged(runs: Sequence[Run]) -> Run:
    keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in runs)])
    # Stable is timsort, which merges what is sorted in parts.
    order = np.argsort(keys, kind="stable")
    return _summed(keys[order], np.concatenate([np.empty(0), *(counts for _, counts in runs)])[order])


def _summed(keys: Ids, counts: Counts) -> Run:
    """Counts of equal neighbours added up."""
    firsts = _firsts(keys)
    return keys[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts


def _firsts(ascending: Ids) -> Ids:
    """Where each different value begins."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def _in_ranges(runs: Sequence[Run], most: int) -> Iterator[Run]:
    """The merge of sorted runs in ranges of keys, of about `most` entries each."""
    sampled = np.sort(np.concatenate([keys[::SAMPLED] for keys, _ in runs]))
    bounds = np.unique(sampled[:: max(1, most // SAMPLED)])[1:]
    cuts = [np.concatenate(([0], np.searchsorted(keys, bounds), [len(keys)])) for keys, _ in runs]
    for part in range(len(bounds) + 1):
        slices = [slice(cut[part], cut[part + 1]) for cut in cuts]
        yield _merged([(keys[part], counts[part]) for (keys, counts), part in zip(runs, slices, strict=True)])


def _on_disk(parts: Iterable[tuple[NDArray[Any], ...]]) -> Any:
    """Columns, given part after part, as maps of unnamed temporary files."""
    try:
        with ExitStack() as files:
            columns: list[tuple[IO[bytes], np.dtype[Any]]] = []
            size = 0
            for part in parts:
                columns = columns or [(files.enter_context(tempfile.TemporaryFile()), new.dtype) for new in part]
                for (file, _), values in zip(columns, part, strict=True):
                    file.write(values.data)
                size += len(part[0])
            for file, _ in columns:
                file.flush()
            return tuple(np.memmap(file, dtype, mode="r", shape=(size,)) for file, dtype in columns)
    except OSError as error:
        raise DataError(
            f"{tempfile.gettempdir()}: co-occurrence counts cannot be written ({error.strerror}); free space there or "
            "set TMPDIR to a larger folder"
        ) from error


class CooccurrenceSampler(WindowSampler):
    """Cells of the co-occurrence matrix X for GloVe, each drawn as often as it weighs.

    Pennington et al. 2014 draw the cells that are not zero alike, and multiply the loss of each by f(X_ij). Most cells
    weigh next to nothing: here a cell is drawn with probability f(X_ij) / sum f instead and its loss counts whole, the
    same objective from fewer cells. X is symmetric; a pair of words at distance d within a document counts 1 / d. END
    belongs to no pair. The whole store is counted when the sampler is made.

    Batch: `tokens`, `contexts` (B, window), the i and j of each cell, and `counts` (B, window) float32, X_ij. A cell
    counts as one token of the budget.

    Raises:
        DataError: no two words stand near each other.
    """

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        config = self.config
        assert isinstance(config, GloVeConfig)
        self.settings = config
        self.keys, self.sums = count_pairs(
            whole_text(store, reach=config.context),
            vocabulary=self.vocabulary,
            weights=[1 / distance for distance in range(1, config.context + 1)],
            separator=END,
            most=MOST_PAIRS,
        )
        if not len(self.keys):
            raise DataError("no document of the corpus holds two words; there is nothing to count for GloVe")
        parts = self._running_weights()
        on_disk = isinstance(self.keys, np.memmap)
        self._weights: Counts = _on_disk(parts)[0] if on_disk else np.concatenate([part for (part,) in parts])

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        own = slice(rows.start, rows.stop)
        # Drawn for the global batch, so that a row is the same whoever computes it.
        rng = counter_rng(self.seed, "cells", step)
        shape = (self.batch_size, self.window)
        drawn, mirrored = rng.random(shape)[own] * self._weights[-1], rng.random(shape)[own] < 0.5
        places = np.minimum(np.searchsorted(self._weights, drawn, side="right"), len(self.keys) - 1)
        low, high, counts = self._cells(places)
        return {
            "tokens": torch.from_numpy(np.where(mirrored, high, low)),
            "contexts": torch.from_numpy(np.where(mirrored, low, high)),
            "counts": torch.from_numpy(counts.astype(np.float32)),
        }

    def _cells(self, places: Ids | slice) -> tuple[Ids, Ids, Counts]:
        """i, j and X_ij of pairs, i <= j. Each of two equal words stands near the other: they count twice."""
        low, high = np.divmod(self.keys[places], self.vocabulary)
        return low, high, self.sums[places] * np.where(low == high, 2.0, 1.0)

    def _running_weights(self) -> Iterator[tuple[Counts]]:
        """Sums of f(X_ij) over all pairs so far, a cell beside the diagonal being two."""
        total = 0.0
        for start in range(0, len(self.keys), MOST_PAIRS):
            low, high, counts = self._cells(slice(start, start + MOST_PAIRS))
            weights = np.minimum(1, counts / self.settings.x_max) ** self.settings.alpha
            running = total + np.cumsum(weights * np.where(low == high, 1.0, 2.0))
            total = float(running[-1])
            yield (running,)
