"""The texts of a batch, and long ones read chunk by chunk: the state goes on, a gradient only through the last ones.

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


@dataclass(frozen=True)
class Texts:
    """Which places of a window (T, B, ...) hold pieces: the first ones of each row, in reading order.

    Attributes:
        lengths: (B,) pieces of each text.
        chunking: how long texts are cut; None: not at all.
    """

    lengths: Tensor
    chunking: Chunking | None = None

    def chunks(self, columns: int) -> Iterator[tuple[slice, Tensor]] | None:
        """The chunks of a window of so many columns: those of each, and (B,) which rows learn in it. None where the
        window is one piece."""
        if self.chunking is None or columns <= self.chunking.length:
            return None
        length, learned = self.chunking.length, self.chunking.learned
        counts_B = -(-self.lengths // length)
        return (
            (slice(start, start + length), (index >= counts_B - learned) & (index < counts_B))
            for index, start in enumerate(range(0, columns, length))
        )

    def within(self, columns: slice) -> Texts:
        """The parts of the texts that lie in a chunk."""
        return Texts((self.lengths - columns.start).clamp(0, columns.stop - columns.start))


#: A recurrent layer over a window: inputs (T, B, I), state, texts -> outputs (T, B, H) and the state after, detached.
Window = Callable[[Tensor, State, "Texts | None"], tuple[Tensor, State]]


def run_in_chunks(window: Window, x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
    """Apply a recurrent layer to a window, chunk by chunk.

    The outputs are those of the whole window; what differs is that no gradient crosses from chunk to chunk, and that
    none is kept where a row does not learn. Where nothing is to learn, or there are no chunks, the window is one piece.
    """
    if texts is None or not torch.is_grad_enabled() or (chunks := texts.chunks(x_TBI.shape[0])) is None:
        return window(x_TBI, state, texts)
    outputs: list[Tensor] = []
    for columns, learns_B in chunks:
        with torch.set_grad_enabled(bool(learns_B.any())):
            out_TBH, state = window(x_TBI[columns], state, texts.within(columns))
        outputs.append(for_learners(out_TBH, learns_B[:, None]))
    return torch.cat(outputs), state


def for_learners(x: Tensor, learns: Tensor) -> Tensor:
    """The same values, with a gradient only where `learns`, which is broadcast."""
    return torch.where(learns, x, x.detach()) if x.requires_grad and not bool(learns.all()) else x
