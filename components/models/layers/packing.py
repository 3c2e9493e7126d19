"""Sequence packing: several texts in one row, without attention between them.

Krell, Kosec, Perez and Fitzgibbon 2021 (Efficient Sequence Packing without Cross-contamination): padding is replaced by
other texts. Every piece keeps its position within its text and attends to that text only, so its hidden states are
the same as for the text alone.

Shape suffixes: B texts, T pieces of the longest, R packed rows of W positions, D width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components.models.layers.attention import SHORT
from components.models.layers.host import is_fixed

#: Fraction of padding above which packing saves time; below it, copying takes as long as packing saves.
PADDING = 0.05


@dataclass(frozen=True)
class Packing:
    """Indices between a batch and its packed rows.

    Attributes:
        sources: (R, W) index among the B T positions of the batch; 0 at empty positions.
        targets: (B, T) index among the R W packed positions; 0 at padding.
        positions: (R, W) position of each piece in its own text.
        mask: (R, 1, W, W) bool, True where both pieces belong to the same text.
    """

    sources: Tensor
    targets: Tensor
    positions: Tensor
    mask: Tensor

    def pack(self, tokens_BT: Tensor) -> Tensor:
        """(B, T) -> (R, W), undefined at empty positions."""
        return tokens_BT.flatten()[self.sources]

    def unpack(self, states_RWD: Tensor) -> Tensor:
        """(R, W, D) -> (B, T, D), undefined at padding."""
        return states_RWD.flatten(0, 1)[self.targets]


def worth_leaving_out(lengths: Tensor, columns: int) -> bool:
    """Whether more than `PADDING` of texts of lengths (B,), padded to `columns`, is padding. False on a GPU, in an
    exported graph (ONNX), which must be valid for all lengths, and where shapes are fixed."""
    if lengths.is_cuda or is_fixed() or torch.compiler.is_compiling():
        return False
    return int(lengths.sum()) < (1 - PADDING) * len(lengths) * columns


def packing(lengths: Tensor, columns: int) -> Packing | None:
    """The packing of texts of lengths (B,), padded to T = `columns`; None if it would not be faster, and on a GPU."""
    if not worth_leaving_out(lengths, columns):
        return None
    numbers = lengths.numpy()
    placed = _placed(numbers.tolist())
    if placed is None:
        return None
    rows, starts, width = placed
    inside_BT = np.arange(columns) < numbers[:, None]
    texts, positions = inside_BT.nonzero()
    targets = np.asarray(rows)[texts] * width + np.asarray(starts)[texts] + positions
    shape = (max(rows) + 1, width)
    owners_RW, sources_RW, positions_RW = (np.full(shape, fill) for fill in (-1, 0, 0))
    for table, values in ((owners_RW, texts), (sources_RW, texts * columns + positions), (positions_RW, positions)):
        table.put(targets, values)
    targets_BT = np.zeros(inside_BT.shape, dtype=np.int64)
    targets_BT[inside_BT] = targets
    return Packing(
        sources=torch.from_numpy(sources_RW),
        targets=torch.from_numpy(targets_BT),
        positions=torch.from_numpy(positions_RW),
        # Empty positions attend to each other, because a softmax over nothing is NaN.
        mask=torch.from_numpy(owners_RW[:, :, None] == owners_RW[:, None, :]).unsqueeze(1),
    )


def _placed(lengths: list[int]) -> tuple[list[int], list[int], int] | None:
    """The row and the first position of each text, and the width of the rows; None if the texts are too long to share
    rows.

    Texts are assigned in order of decreasing length, each to the row with the most free positions (Graham 1969, Bounds
    on Multiprocessing Timing Anomalies). The number of rows is the largest that leaves at most a fraction `PADDING`
    empty, or else the one that leaves the least empty."""
    order = sorted(range(len(lengths)), key=lambda text: -lengths[text])
    total, longest, best = sum(lengths), max(lengths), None
    least = len(lengths) * longest
    # More rows would leave more than `PADDING` empty, because a row is at least as wide as the longest text.
    most = int(total / longest / (1 - PADDING))
    for count in range(min(most, len(lengths) - 1), 0, -1):
        filled, rows, starts = [0] * count, [0] * len(lengths), [0] * len(lengths)
        for text in order:
            row = filled.index(min(filled))
            rows[text], starts[text] = row, filled[row]
            filled[row] += lengths[text]
        width = max(filled)
        if width > SHORT:
            break
        if count * width < least:
            best, least = (rows, starts, width), count * width
        if total >= (1 - PADDING) * least:
            break
    return best
