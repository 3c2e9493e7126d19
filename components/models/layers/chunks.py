"""Long texts, read chunk by chunk: the state goes on from one chunk to the next, a gradient only through the last ones.

Howard and Ruder 2018, section 3.3 (back-propagation through time for text classification, BPT3C): a text of thousands
of pieces gives states at all its places, which pooling reads, while memory for gradients is needed for few of them.

Shape suffixes: T time, B batch rows, I input width, H output width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Chunking:
    """How texts are cut.

    Attributes:
        length: pieces of a chunk.
        learned: chunks of each text that a gradient goes through, the last ones in reading order.
    """

    length: int
    learned: int

    def of(self, lengths: Tensor) -> Chunks:
        """The chunks of a batch of texts with these lengths (B,)."""
        return Chunks(self, lengths)


@dataclass(frozen=True)
class Chunks:
    """The chunks of one batch; padding stands behind each text in reading order."""

    chunking: Chunking
    lengths: Tensor

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Columns of each chunk, and (B,) which rows learn in it; without end, as columns are."""
        counts_B = -(-self.lengths // self.chunking.length)
        index = 0
        while True:
            columns = slice(index * self.chunking.length, (index + 1) * self.chunking.length)
            yield columns, (index >= counts_B - self.chunking.learned) & (index < counts_B)
            index += 1


def run_in_chunks(
    window: Callable[[Tensor, State], tuple[Tensor, State]], x_TBI: Tensor, state: State, chunks: Chunks | None
) -> tuple[Tensor, State]:
    """Apply a recurrent layer to a window, chunk by chunk.

    The outputs are those of the whole window; what differs is that no gradient crosses from chunk to chunk, and that
    none is kept where a row does not learn. Where nothing is to learn, or `chunks` is None, the window is one piece.

    Args:
        window: (inputs (T, B, I), state) -> outputs (T, B, H) and the state after them, detached.
    """
    if chunks is None or not torch.is_grad_enabled() or len(x_TBI) <= chunks.chunking.length:
        return window(x_TBI, state)
    outputs: list[Tensor] = []
    for columns, learns_B in chunks:
        part_TBI = x_TBI[columns]
        if not len(part_TBI):
            break
        with torch.set_grad_enabled(bool(learns_B.any())):
            out_TBH, state = window(part_TBI, state)
        outputs.append(for_learners(out_TBH, learns_B[:, None]))
    return torch.cat(outputs), state


def for_learners(x: Tensor, learns: Tensor) -> Tensor:
    """The same values, with a gradient only where `learns`, which is broadcast."""
    return torch.where(learns, x, x.detach()) if x.requires_grad and not bool(learns.all()) else x
