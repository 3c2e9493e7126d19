"""Texts of unlike length in fewer rows: one behind the other, none looking at its neighbour.

Krell, Kosec, Perez and Fitzgibbon 2021 (Efficient Sequence Packing without Cross-contamination): what padding would
fill holds another text; every piece has the position that it has in its own text and attends to that text alone, so
its values are those of the text by itself.

Shape suffixes: B texts, T pieces of the longest, R rows of W places that hold them, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from components.models.layers.attention import SHORT

#: Share of padding from which it is left out; below it, what has to be moved costs what is saved.
PADDING = 0.05


@dataclass(frozen=True)
class Packing:
    """Where the pieces of a batch stand.

    Attributes:
        sources: (R, W) numbers of the pieces among all B T; that of the first where nothing stands.
        places: (B, T) the same the other way round: numbers among all R W; 0 at padding.
        positions: (R, W) of each piece in its own text.
        mask: (R, 1, W, W) bool, True where both pieces belong to one text.
    """

    sources: Tensor
    places: Tensor
    positions: Tensor
    mask: Tensor

    def pack(self, tokens_BT: Tensor) -> Tensor:
        """(B, T) -> (R, W); anything where nothing stands."""
        return tokens_BT.flatten()[self.sources]

    def unpack(self, states_RWD: Tensor) -> Tensor:
        """(R, W, D) -> (B, T, D); anything at padding."""
        return states_RWD.flatten(0, 1)[self.places]


def worth_leaving_out(lengths: Tensor, columns: int) -> bool:
    """Whether more than `PADDING` of a batch is padding: texts of these lengths (B,), padded to `columns`.

    Never on a GPU, which would have to wait until the processor knows the lengths; nor in a graph that is written out
    (ONNX), which has to hold for all lengths.
    """
    if lengths.is_cuda or torch.compiler.is_compiling():
        return False
    return int(lengths.sum()) < (1 - PADDING) * len(lengths) * columns


def packing(lengths: Tensor, columns: int) -> Packing | None:
    """How to pack B texts of these lengths (B,), padded to T = `columns`; None where so little is padding, or rows
    would be so long, that nothing is gained."""
    if not worth_leaving_out(lengths, columns):
        return None
    numbers = lengths.numpy()
    found = _placed(numbers.tolist())
    if found is None:
        return None
    rows, starts, width = found
    inside_BT = np.arange(columns) < numbers[:, None]
    texts, positions = inside_BT.nonzero()
    places = np.asarray(rows)[texts] * width + np.asarray(starts)[texts] + positions
    shape = (max(rows) + 1, width)
    owners_RW, sources_RW, positions_RW = (np.full(shape, fill) for fill in (-1, 0, 0))
    for table, values in ((owners_RW, texts), (sources_RW, texts * columns + positions), (positions_RW, positions)):
        table.put(places, values)
    places_BT = np.zeros(inside_BT.shape, dtype=np.int64)
    places_BT[inside_BT] = places
    return Packing(
        sources=torch.from_numpy(sources_RW),
        places=torch.from_numpy(places_BT),
        positions=torch.from_numpy(positions_RW),
        # Places where nothing stands see each other: a softmax over nothing would be NaN.
        mask=torch.from_numpy(owners_RW[:, :, None] == owners_RW[:, None, :]).unsqueeze(1),
    )


def _placed(lengths: list[int]) -> tuple[list[int], list[int], int] | None:
    """The row and the first place of each text, and the width of the rows: the longest text comes first, and each into
    the row that is emptiest (Graham 1969, Bounds on Multiprocessing Timing Anomalies). As many rows as leave at most
    `PADDING` empty; where none do, those that leave least; None where the texts are too long to share rows."""
    order = sorted(range(len(lengths)), key=lambda text: -lengths[text])
    total, longest, best = sum(lengths), max(lengths), None
    least = len(lengths) * longest
    # More rows, as long as the longest text, would be emptier than that: a large batch is not placed over and over.
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
