"""Reading long texts in chunks: the state is carried from chunk to chunk, and only the last chunks have gradients.

Howard and Ruder 2018, section 3.3 (back-propagation through time for text classification, BPT3C): pooling reads the
states at all positions of a long text, but activations are kept for the backward pass of the last chunks only.

Shape suffixes: T time, B batch rows, I input width, H output width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from components.models.layers.host import both, move, on_host

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Chunking:
    """Division of texts into chunks.

    Attributes:
        length: pieces per chunk.
        learned: number of chunks of each text that have gradients, the last ones in reading direction.
    """

    length: int
    learned: int


@dataclass(frozen=True)
class Texts:
    """Lengths of the texts of a window (T, B, ...); padding follows the last piece in reading direction.

    Attributes:
        lengths: (B,) pieces of each text.
        chunking: chunks of long texts; None: no chunks.
    """

    lengths: Tensor
    chunking: Chunking | None = None

    def chunks(self, columns: int) -> Iterator[tuple[slice, Tensor]] | None:
        """For each chunk of a window of `columns`: its columns, and (B,) whether the row has gradients in it, on the
        host. None if the window is a single chunk."""
        if self.chunking is None or columns <= self.chunking.length:
            return None
        length, learned = self.chunking.length, self.chunking.learned
        counts_B = -(-on_host(self.lengths) // length)
        return (
            (slice(start, start + length), (index >= counts_B - learned) & (index < counts_B))
            for index, start in enumerate(range(0, columns, length))
        )

    def within(self, columns: slice) -> Texts:
        """The parts of the texts in a chunk."""
        return Texts(both(lambda x: (x - columns.start).clamp(0, columns.stop - columns.start), self.lengths))


#: A recurrent layer over a window: inputs (T, B, I), state, texts -> outputs (T, B, H), state after it, detached.
Window = Callable[[Tensor, State, "Texts | None"], tuple[Tensor, State]]


def run_in_chunks(window: Window, x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
    """Apply a recurrent layer to a window, chunk by chunk.

    The outputs equal those of the whole window. Gradients do not cross chunks, and are not kept for chunks in which no
    row learns. Without gradients or chunks the window is computed at once.
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
    """The same values, with gradients only where `learns` (broadcast), a mask of the host, is True."""
    if not x.requires_grad or bool(learns.all()):
        return x
    return torch.where(move(learns, x.device), x, x.detach())
