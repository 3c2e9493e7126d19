"""Items of a stream in lists."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches(items: Iterable[T], *, size: Callable[[T], int], most: int, count: int | None = None) -> Iterator[list[T]]:
    """Consecutive items; a list ends where the sizes of its items reach `most`, or at `count` of them."""
    batch, total = list[T](), 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= most or len(batch) == count:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
