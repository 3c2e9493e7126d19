"""Reading texts in chunks and in reverse, and the pieces that states predict.

Howard and Ruder 2018, section 3.3 (back-propagation through time for text classification, BPT3C): pooling reads the
states at all positions of a long text, but activations are kept for the backward pass of the last chunks only. The
state is carried from chunk to chunk.

Shape suffixes: T time or pieces (padding included), B texts, I input width, H output width, D width, N pairs of a state
and the piece that it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from components.models.layers.host import both, move, on_host, places

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Chunking:
    """Division of texts into chunks of `length` pieces, of which the last `learned` have gradients."""

    length: int
    learned: int


@dataclass(frozen=True)
class Texts:
    """Lengths (B,) of the texts of a window (T, B, ...), padded in reading direction, and their chunks."""

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
        return Texts(both(lambda x: (x - columns.start).clamp(0, columns.stop - columns.start), self.lengths))


#: A recurrent layer over a window: inputs (T, B, I), state, texts -> outputs (T, B, H), state after it, detached.
Window = Callable[[Tensor, State, "Texts | None"], tuple[Tensor, State]]


def run_in_chunks(window: Window, x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
    """Apply a recurrent layer to a window, chunk by chunk, with the same outputs as for the whole window. Gradients do
    not cross chunks, and are not kept for chunks in which no row learns."""
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


def turned(lengths: Tensor, columns: int) -> Tensor:
    """(B, columns) indices that reverse each row within its own length, padding at the end; its own inverse."""
    indices_BT = lengths.unsqueeze(1) - 1 - torch.arange(columns, device=lengths.device)
    return torch.where(indices_BT < 0, indices_BT + columns, indices_BT)


def turn(x_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """(B, T, D) with each row reversed by the indices of `turned`."""
    return x_BTD.gather(1, turned_BT.unsqueeze(-1).expand(-1, -1, x_BTD.shape[-1]))


def joined(ahead_BTD: Tensor, back_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """[forward; backward] outputs (B, T, 2 D) at each position; `back_BTD` is in reversed order, as from `turned`."""
    return torch.cat([ahead_BTD, turn(back_BTD, turned_BT)], -1)


def following(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's last, and the following pieces (N,)."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, :-1][inside], tokens_BT[:, 1:][inside]


def preceding(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's first, and the preceding pieces (N,), for backward models."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, 1:][inside], tokens_BT[:, :-1][inside]


def _inside(tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside_BT = torch.arange(1, tokens_BT.shape[1]) < on_host(lengths).unsqueeze(1)
    return places(inside_BT, tokens_BT.device)
