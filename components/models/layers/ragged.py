"""Windows of texts of different lengths, without their padding.

A recurrent layer that is computed step by step reads at each step only the rows that have not ended. Rows are sorted by
decreasing length, as in torch's packed sequences.

Shape suffixes: T steps, B batch rows, N positions that hold pieces (those of the first step, then of the second, ...),
D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from components.models.layers.chunks import Texts
from components.models.layers.host import move
from components.models.layers.packing import worth_leaving_out


@dataclass(frozen=True)
class Ragged:
    """The positions of a window, step by step.

    Attributes:
        values: (N, D).
        counts: rows per step, non-increasing.
        shape: T and B of the window.
        packed: torch's packed sequence; None if the window keeps its padding.
        last: (B,) index of each row's last position among N, rows in the order of the batch.
    """

    values: Tensor
    counts: list[int]
    shape: tuple[int, int]
    packed: PackedSequence | None
    last: Tensor

    def sort_rows(self, x_BD: Tensor) -> Tensor:
        """Values of the batch's rows, sorted as in the steps."""
        return x_BD if self.packed is None else x_BD[self.packed.sorted_indices]

    def unpack(self, x_ND: Tensor) -> Tensor:
        """(N, D) -> (T, B, D), 0 at padding that was left out."""
        if self.packed is None:
            return x_ND.view(*self.shape, -1)
        out_TBD, _ = pad_packed_sequence(self.packed._replace(data=x_ND), total_length=self.shape[0])
        return out_TBD


def ragged(x_TBD: Tensor, texts: Texts | None) -> Ragged:
    """A window without its padding; with it if there is little (`packing.worth_leaving_out`)."""
    steps, rows = x_TBD.shape[:2]
    if texts is None or not worth_leaving_out(texts.lengths, steps):
        last_B = torch.arange((steps - 1) * rows, steps * rows, device=x_TBD.device)
        return Ragged(x_TBD.flatten(0, 1), [rows] * steps, (steps, rows), None, last_B)
    # Packed sequences require a length of at least 1; the output of texts that ended before this window is not used.
    lengths_B = texts.lengths.clamp(1, steps)
    packed = pack_padded_sequence(x_TBD, lengths_B, enforce_sorted=False)
    starts_T = packed.batch_sizes.cumsum(0) - packed.batch_sizes
    assert packed.unsorted_indices is not None  # for type checkers
    last_B = starts_T[lengths_B - 1] + packed.unsorted_indices
    return Ragged(packed.data, packed.batch_sizes.tolist(), (steps, rows), packed, last_B)


def by_step(counts: list[int], *tables: Tensor) -> list[tuple[Tensor, ...]]:
    """Tables (N, ...) split by step: one tuple per step with the step's part of each table."""
    return list(zip(*(table.split(counts) for table in tables), strict=True))


def previous_step(first_BD: Tensor, x_ND: Tensor, counts: list[int]) -> Tensor:
    """(N, D): for each position, the value of the same row at the previous step; `first_BD` at the first step."""
    counts_T = torch.tensor(counts)
    earlier = torch.arange(counts[0], len(x_ND)) - counts_T[:-1].repeat_interleave(counts_T[1:])
    return torch.cat([first_BD, x_ND[move(earlier, x_ND.device)]])
