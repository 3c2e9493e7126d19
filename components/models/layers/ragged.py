"""Windows of texts that end at different steps, without their padding.

A recurrent layer that goes step by step reads at each step only the rows that still go on: those of the longest texts,
which therefore come first, as in torch's packed sequences.

Shape suffixes: T steps, B batch rows, N places that hold pieces (the first step's, then the second's, ...), D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from components.models.layers.chunks import Texts
from components.models.layers.packing import worth_leaving_out


@dataclass(frozen=True)
class Ragged:
    """A window's places, step by step.

    Attributes:
        places: (N, D).
        counts: rows of each step; they never grow.
        shape: T and B of the window.
        packed: what the places stand in; None where the window is taken as it is, with what padding it has.
        last: (B,) each row's last place, in the batch's order.
    """

    places: Tensor
    counts: list[int]
    shape: tuple[int, int]
    packed: PackedSequence | None
    last: Tensor

    def rows(self, x_BD: Tensor) -> Tensor:
        """Values of the batch's rows in the order in which the steps have them."""
        return x_BD if self.packed is None else x_BD[self.packed.sorted_indices]

    def window(self, x_ND: Tensor) -> Tensor:
        """(T, B, D), and 0 where padding was left out."""
        if self.packed is None:
            return x_ND.view(*self.shape, -1)
        out_TBD, _ = pad_packed_sequence(self.packed._replace(data=x_ND), total_length=self.shape[0])
        return out_TBD


def ragged(x_TBD: Tensor, texts: Texts | None) -> Ragged:
    """A window without its padding, or as it is where little of it is padding (see `packing.worth_leaving_out`)."""
    steps, rows = x_TBD.shape[:2]
    if texts is None or not worth_leaving_out(texts.lengths, steps):
        last_B = torch.arange((steps - 1) * rows, steps * rows, device=x_TBD.device)
        return Ragged(x_TBD.flatten(0, 1), [rows] * steps, (steps, rows), None, last_B)
    # Of a text that has ended before this window one place is read, which nobody looks at.
    lengths_B = texts.lengths.clamp(1, steps)
    packed = pack_padded_sequence(x_TBD, lengths_B, enforce_sorted=False)
    starts_T = packed.batch_sizes.cumsum(0) - packed.batch_sizes
    assert packed.unsorted_indices is not None  # for type checkers
    last_B = starts_T[lengths_B - 1] + packed.unsorted_indices
    return Ragged(packed.data, packed.batch_sizes.tolist(), (steps, rows), packed, last_B)


def by_step(counts: list[int], *tables: Tensor) -> list[tuple[Tensor, ...]]:
    """Tables (N, ...) cut into steps: of each step its part of every table."""
    return list(zip(*(table.split(counts) for table in tables), strict=True))


def a_step_earlier(first_BD: Tensor, x_ND: Tensor, counts: list[int]) -> Tensor:
    """(N, D) what each place's row had a step earlier, `first_BD` at the first step."""
    counts_T = torch.tensor(counts)
    earlier = torch.arange(counts[0], len(x_ND)) - counts_T[:-1].repeat_interleave(counts_T[1:])
    return torch.cat([first_BD, x_ND[earlier.to(x_ND.device)]])
