"""Co-occurrence counts of pieces, from a stream of any length in bounded memory.

If the distinct pairs exceed the limit, sorted runs of them are written to temporary files and merged range by range
(external merge sort); the result is then a memory map of an unnamed file."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.errors import DataError
from components.models.base import Batch
from components.models.glove import GloVeConfig
from components.tokenization.special import END
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

Counts = NDArray[np.float64]
#: Sorted distinct keys and the count of each.
Run = tuple[Ids, Counts]

#: Pieces per chunk of a stream.
CHUNK: Final = 65_536
#: Distinct pairs held in memory; sorting needs about 50 bytes per pair.
MAX_PAIRS: Final = 1 << 23
#: Interval of the keys of a run that are sampled to divide the merge into ranges.
SAMPLE_INTERVAL: Final = 1024


def whole_text(store: Tokens, *, reach: int) -> Iterator[tuple[Ids, int]]:
    """The stream in chunks, each with the first `reach` pieces of the next chunk; and the size without these."""
    for start in range(0, store.tokens, CHUNK):
        leading = min(CHUNK, store.tokens - start)
        yield store.span(start, min(leading + reach, store.tokens - start)), leading


def count_pairs(
    chunks: Iterable[tuple[Ids, int]],
    *,
    vocabulary: int,
    weights: Sequence[float],
    max_pairs: int = MAX_PAIRS,
) -> Run:
    """Weighted counts of unordered pairs of one document at a distance of at most len(weights) pieces.

    END is not an element of a pair.

    Args:
        chunks: pieces (n,), and the number of leading pieces that are left elements of pairs.
        weights: weight of a pair at distance 1, 2 ...

    Returns:
        keys (N,) int64, ascending, i * vocabulary + j with i <= j, and counts (N,).

    Raises:
        DataError: the temporary folder is full.
    """
    held: list[Run] = []
    spilled: list[Run] = []
    size = 0
    for text, leading in chunks:
        held.append(_count(text, leading, vocabulary=vocabulary, weights=np.asarray(weights)))
        size += len(held[-1][0])
        if size > max_pairs:
            held = [_merged(held)]
            size = len(held[0][0])
            # Kept in memory if merging has halved the number of pairs, because frequent pairs recur in every chunk.
            if size > max_pairs // 2:
                spilled.append(_on_disk(held))
                held, size = [], 0
    rest = _merged(held)
    return _on_disk(_in_ranges([*spilled, rest], max_pairs)) if spilled else rest


def _count(text: Ids, leading: int, *, vocabulary: int, weights: Counts) -> Run:
    """Counts of one chunk. A pair and its distance are encoded as one integer, so that a single sort counts both."""
    documents = np.cumsum(text == END)
    results = []
    for distance in range(1, min(len(weights), len(text) - 1) + 1):
        count = min(leading, len(text) - distance)
        left, right = text[:count], text[distance : distance + count]
        inside = (left != END) & (documents[:count] == documents[distance : distance + count])
        left, right = left[inside], right[inside]
        keys = np.minimum(left, right) * vocabulary + np.maximum(left, right)
        results.append(keys * len(weights) + (distance - 1))
    numbers = np.sort(np.concatenate([*results, np.empty(0, np.int64)]))
    firsts = _firsts(numbers)
    times = np.diff(np.append(firsts, len(numbers)))
    keys, distances = np.divmod(numbers[firsts], len(weights))
    return _summed(keys, times * weights[distances])


def _merged(runs: Sequence[Run]) -> Run:
    keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in runs)])
    # The stable sort is timsort, which merges the sorted runs.
    order = np.argsort(keys, kind="stable")
    return _summed(keys[order], np.concatenate([np.empty(0), *(counts for _, counts in runs)])[order])


def _summed(keys: Ids, counts: Counts) -> Run:
    firsts = _firsts(keys)
    return keys[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts


def _firsts(ascending: Ids) -> Ids:
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def _in_ranges(runs: Sequence[Run], size: int) -> Iterator[Run]:
    """The merge of sorted runs in ranges of keys, of about `size` entries each."""
    sampled = np.sort(np.concatenate([keys[::SAMPLE_INTERVAL] for keys, _ in runs]))
    bounds = np.unique(sampled[:: max(1, size // SAMPLE_INTERVAL)])[1:]
    cuts = [np.concatenate(([0], np.searchsorted(keys, bounds), [len(keys)])) for keys, _ in runs]
    for part in range(len(bounds) + 1):
        slices = [slice(cut[part], cut[part + 1]) for cut in cuts]
        yield _merged([(keys[part], counts[part]) for (keys, counts), part in zip(runs, slices, strict=True)])


def _on_disk(parts: Iterable[tuple[NDArray[Any], ...]]) -> Any:
    """Memory maps of unnamed temporary files, one per column; `parts` are tuples with a part of each column."""
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
    """Cells of the co-occurrence matrix X for GloVe, sampled in proportion to their weight.

    Pennington et al. 2014 sample the non-zero cells uniformly and weight each loss by f(X_ij), mostly close to 0. Here
    a cell is sampled with probability f(X_ij) / sum f and has weight 1: the same objective in expectation. X is
    symmetric; a pair of words at distance d within a document counts 1 / d. The store is counted when the sampler is
    created.

    Batch: `tokens`, `contexts` (B, window), the i and j of each cell, and `counts` (B, window) float32, X_ij. A cell is
    one token of the budget.

    Raises:
        DataError: no document contains two words.
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
            max_pairs=MAX_PAIRS,
        )
        if not len(self.keys):
            raise DataError("no document of the corpus contains two words, so GloVe has nothing to count; add text")
        parts = self._running_weights()
        on_disk = isinstance(self.keys, np.memmap)
        self._weights: Counts = _on_disk(parts)[0] if on_disk else np.concatenate([part for (part,) in parts])

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        share = slice(rows.start, rows.stop)
        # Sampled for the global batch, so that a row does not depend on the number of workers.
        rng = counter_rng(self.seed, "cells", step)
        shape = (self.batch_size, self.window)
        sampled, mirrored = rng.random(shape)[share] * self._weights[-1], rng.random(shape)[share] < 0.5
        indices = np.minimum(np.searchsorted(self._weights, sampled, side="right"), len(self.keys) - 1)
        low, high, counts = self._cells(indices)
        return {
            "tokens": torch.from_numpy(np.where(mirrored, high, low)),
            "contexts": torch.from_numpy(np.where(mirrored, low, high)),
            "counts": torch.from_numpy(counts.astype(np.float32)),
        }

    def _cells(self, indices: Ids | slice) -> tuple[Ids, Ids, Counts]:
        """i, j and X_ij of pairs, i <= j. A pair of equal words counts twice, because each is context of the other."""
        low, high = np.divmod(self.keys[indices], self.vocabulary)
        return low, high, self.sums[indices] * np.where(low == high, 2.0, 1.0)

    def _running_weights(self) -> Iterator[tuple[Counts]]:
        """Cumulative sums of f(X_ij) over all pairs; pairs off the diagonal count twice."""
        total = 0.0
        for start in range(0, len(self.keys), MAX_PAIRS):
            low, high, counts = self._cells(slice(start, start + MAX_PAIRS))
            weights = np.minimum(1, counts / self.settings.x_max) ** self.settings.alpha
            running = total + np.cumsum(weights * np.where(low == high, 1.0, 2.0))
            total = float(running[-1])
            yield (running,)
