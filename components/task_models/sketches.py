"""Projections of the features that the head of a task model reads (`components.drift.measuring`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import Batch
from components.task_models.base import Encoded
from components.task_models.model import TaskModel
from components.task_models.norms import FixedNorm
from components.task_models.pooling import mask
from components.tokenization.special import UNK

#: Number of features F -> (F, S) random numbers.
Projection = Callable[[int], NDArray[np.float32]]


def sketches(model: TaskModel, vectors: Tensor, batch: Batch, projection: Projection) -> list[NDArray[np.float32]]:
    """The sketches (S,) of the B rows of a batch.

    Args:
        vectors: inputs of its head: (S, F), (B, F) or (S, U, F).
    """
    norm = getattr(model.head, "norm", None)
    if model.of_units:
        lengths = batch["unit_lengths"]
        inside = mask(lengths, vectors.shape[1])[..., None]
        vectors = vectors.float().masked_fill(~inside, 0.0).sum(1) / lengths.clamp(min=1)[:, None]
    if isinstance(norm, FixedNorm):
        vectors = norm(vectors)
    table = torch.from_numpy(projection(vectors.shape[-1])).to(vectors.device)
    with torch.autocast(vectors.device.type, enabled=False):
        result = vectors.float() @ table
    rows = batch["rows"]
    count = int(rows[-1]) + 1
    if len(result) != count:
        total = result.new_zeros(count, table.shape[1]).index_add(0, rows, result)
        result = total / torch.bincount(rows, minlength=count)[:, None]
    return list(result.cpu().numpy())


def measured(
    encoded: Sequence[Encoded], result: Sequence[NDArray[np.float32]]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(N, 2) pieces and unknown pieces of N rows, and (N, S) their sketches."""
    counts = [(sum(map(len, row.pieces)), sum(int((pieces == UNK).sum()) for pieces in row.pieces)) for row in encoded]
    none = np.zeros((0, 1), dtype=np.float32)
    return np.array(counts, dtype=np.int64).reshape(-1, 2), np.stack(result) if len(result) else none
