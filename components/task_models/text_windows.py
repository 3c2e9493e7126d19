"""Long texts for encoders without recurrent state: pooling over windows.

A text is split into windows of `chunk` pieces, each with the family's special pieces. Each window is encoded
independently; the head reads the pooled vectors. Encoders with a state read the whole text chunk by chunk instead
(`LanguageModel.set_chunks`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import Batch, LanguageModel
from components.models.layers.host import move, on_host, places
from components.settings.finetune import FinetuneSettings
from components.task_models.heads import precise


def window_size(settings: FinetuneSettings, encoder: LanguageModel) -> int | None:
    """Maximum number of pieces of a window, special pieces included; None if a text is one sequence."""
    if settings.chunk is None or encoder.carries_state:
        return None
    return min(settings.chunk, encoder.max_tokens or settings.chunk)


def windows(pieces: Sequence[int], *, size: int, encoder: LanguageModel) -> list[NDArray[np.int64]]:
    """The pieces of a text (at least one) in windows of at most `size` pieces."""
    room = max(1, size - len(encoder.special_tokens([])))
    return [
        np.asarray(encoder.special_tokens(list(pieces[start : start + room])), dtype=np.int64)
        for start in range(0, len(pieces), room)
    ]


class WindowPooling:
    """Pooling of a row's windows: the maximum of features that are maxima over pieces, the mean of all others, in which
    a window has the weight of its number of pieces. A text of one window has the same vector as without windows.

    Args:
        settings: `pooling` of the pieces of a window (in `concat`, the middle third of each layer is a maximum), and
            `chunks_learned`.
    """

    def __init__(self, settings: FinetuneSettings, *, width: int) -> None:
        self.pooling = settings.pooling
        self.width = width
        self.learned = settings.chunks_learned

    def __call__(self, features: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) vectors of windows, (S,) indices of their rows, ascending, and (S,) lengths, equal ones by default ->
        (B, F)."""
        count = int(on_host(rows)[-1]) + 1
        index = rows[:, None].expand_as(features)
        zeros = features.new_zeros(count, features.shape[1])
        wide = precise(features)
        pieces = wide.new_ones(len(rows)) if lengths is None else lengths.to(wide)
        shares = pieces / pieces.new_zeros(count).index_add(0, rows, pieces)[rows]
        mean = wide.new_zeros(zeros.shape).index_add(0, rows, wide * shares[:, None]).to(features)
        if self.pooling not in ("concat", "max"):
            return mean
        most = zeros.scatter_reduce(0, index, features, "amax", include_self=False)
        if self.pooling == "max":
            return most
        middle = torch.arange(features.shape[1], device=features.device) // self.width % 3 == 1
        return torch.where(middle, most, mean)


def pooling_of_windows(settings: FinetuneSettings, encoder: LanguageModel) -> WindowPooling | None:
    """`Task.combine` of kinds that read one text; None if a text is one sequence."""
    if window_size(settings, encoder) is None:
        return None
    single = torch.tensor([encoder.special_tokens([])])
    with torch.no_grad():
        top = encoder.hidden_states(single, torch.tensor([single.shape[1]]))[-1]
    return WindowPooling(settings, width=top.shape[-1])


def states_of_windows(encoder: LanguageModel, batch: Batch, *, learned: int) -> list[Tensor]:
    """`hidden_states` of a batch; only the last `learned` sequences of each row receive gradients, so that memory does
    not depend on the number of windows."""
    rows, device = on_host(batch["rows"]), batch["tokens"].device
    behind = rows.bincount().cumsum(0)[rows] - torch.arange(len(rows))
    learns = behind <= learned

    def read(chosen: Tensor) -> list[Tensor]:
        index = places(chosen, device)
        segments = batch["segments"][index] if "segments" in batch else None
        lengths = move(on_host(batch["lengths"])[chosen], device)
        return encoder.hidden_states(batch["tokens"][index], lengths, segments)

    if not torch.is_grad_enabled() or bool(learns.all()):
        return read(torch.ones_like(learns))
    with torch.no_grad():
        before = read(~learns)
    after = read(learns)
    order = move(torch.cat([(~learns).nonzero(), learns.nonzero()]).flatten().argsort(), device)
    return [torch.cat(parts)[order] for parts in zip(before, after, strict=True)]
