"""Batches of sizes whose results are bit-identical, computed by threads.

Which sizes these are depends on processor and library, so they are found out with items of random content.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

#: Number of elements that vectorised functions compute at a time: two vectors of 512 bits in bfloat16.
VECTOR = 64

#: Key -> sizes of batches.
Known = dict[Hashable, tuple[int, ...]]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Sizes(Generic[Item, Result]):
    """The numbers of rows of a batch whose results are bit-identical.

    Args:
        compute: N items of one key -> N results; each result is a list of arrays to compare.
        samples: key -> two items with random content.
        limits: key -> minimum and maximum number of rows.
        known: results of earlier probes by key, shared by models with the same shapes.
    """

    def __init__(
        self,
        compute: Callable[[Hashable, Sequence[Item]], Sequence[Result]],
        *,
        samples: Callable[[Any], tuple[Item, Item]],
        limits: Callable[[Any], tuple[int, int]],
        known: Known,
    ) -> None:
        self._compute, self._samples, self._limits, self._known = compute, samples, limits, known

    def of(self, key: Hashable) -> tuple[int, ...]:
        """The sizes, ascending; the first batch of a key costs about two batches more."""
        if key not in self._known:
            self._known[key] = self._probe(key)
        return self._known[key]

    def _probe(self, key: Hashable) -> tuple[int, ...]:
        least, most = self._limits(key)
        samples = self._samples(key)
        groups: list[tuple[tuple[set[bytes], set[bytes]], list[int]]] = []
        sizes = [1 << power for power in range(most.bit_length()) if least <= 1 << power <= most]
        for size in sizes if most > 1 else ():
            found: tuple[set[bytes], set[bytes]] = (set(), set())
            # Both contents are at even and at odd positions.
            orders: list[tuple[int, ...]] = [(0, 1, 1, 0) * (size // 4)]
            if size < 4:
                orders = [(0,), (1,)] if size == 1 else [(0, 1), (1, 0)]
            for order in orders:
                results = self._compute(key, [samples[which] for which in order])
                for which, result in zip(order, results, strict=True):
                    found[which].add(bytes_of(result))
            # Rows with the same content have the same result at all positions.
            if len(found[0]) == len(found[1]) == 1:
                for known, same in groups:
                    if known == found:
                        same.append(size)
                        break
                else:
                    groups.append((found, [size]))
        if not groups:
            return (1,)  # a single row has one position
        # The group with the largest size is the fastest.
        return tuple(max([same for _, same in groups], key=max))


def whole_vectors(elements: int) -> int:
    """The smallest number of rows, a power of two, for which the elements of all rows fill whole vectors.

    Elementwise functions (tanh, exp) compute the elements that are left over at the end of a tensor by scalar
    instructions, which differ in the last bit.
    """
    return VECTOR // math.gcd(VECTOR, elements)


def bytes_of(result: Any) -> bytes:
    """The bytes of an array, or of several."""
    parts = result if isinstance(result, list | tuple) else [result]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def split(items: Sequence[Item], sizes: Sequence[int], *, threads: int) -> Iterator[tuple[list[Item], int]]:
    """The items in batches, and the size of each; the smallest size has to be filled up.

    A batch is not larger than the share of one thread.
    """
    share = -(-len(items) // threads)
    start = 0
    while (left := min(len(items) - start, share)) > 0:
        # Filling up a quarter costs less than another batch.
        size = max((size for size in sizes if size * 3 <= left * 4), default=sizes[0])
        yield list(items[start : start + size]), size
        start += size


@dataclass(frozen=True)
class Workers:
    """Threads with one thread of torch each.

    Attributes:
        threads: number of threads.
        pool: None: the present thread, which has one thread of torch.
    """

    threads: int
    pool: ThreadPoolExecutor | None

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a thread."""
        return function(*arguments) if self.pool is None else self.pool.submit(function, *arguments).result()

    def compute(
        self,
        items: Sequence[Item],
        keys: Sequence[Any],
        sizes: Sizes[Item, Any],
        function: Callable[[Any, Sequence[Item]], Sequence[Result]],
    ) -> list[Result]:
        """Apply a function to batches of items with the same key; returns N results in the order of the items."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for index, key in enumerate(keys):
            groups[key].append(index)
        jobs = [
            (key, part, size)
            for key, indices in sorted(groups.items(), reverse=True)
            for part, size in split(indices, self.run(sizes.of, key), threads=self.threads)
        ]

        def batch(job: tuple[Any, list[int], int]) -> Sequence[Result]:
            key, part, size = job
            filled = [items[index] for index in part] + [items[part[0]]] * (size - len(part))
            return function(key, filled)[: len(part)]

        found: list[Any] = [None] * len(items)
        results = map(batch, jobs) if self.pool is None else self.pool.map(batch, jobs)
        for (_, part, _), part_results in zip(jobs, results, strict=True):
            for index, result in zip(part, part_results, strict=True):
                found[index] = result
        return found
