"""Pooled word vectors of many texts at once, without padding.

The vector of a text of static word vectors is a sum, mean or maximum of rows of a table. `embedding_bag` computes it
for texts of any lengths; each text is computed on its own, so its vector does not depend on the others.

Shape suffixes: S sequences, N pieces of all of them, W distinct pieces, D width, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from components.models.static import StaticVectors
from components.task_models.model import TaskModel
from components.task_models.pooling import Pooling


def suits(model: TaskModel) -> bool:
    """Whether the features of a model are pooled word vectors, computed on the processor."""
    return isinstance(model.encoder, StaticVectors) and not model.of_units and model.device.type == "cpu"


def pooled(encoder: StaticVectors, sequences: Sequence[NDArray[np.integer[Any]]], *, pooling: Pooling) -> Tensor:
    """(S, F) float32: the features of `pooling.Features.pooled` up to rounding.

    Args:
        pooling: as in `pooling.Features`; `summary` is the mean, as in `StaticVectors`.
    """
    lengths_S = torch.from_numpy(np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences)))
    begins_S = lengths_S.cumsum(0) - lengths_S
    ids_N = torch.from_numpy(np.concatenate(sequences).astype(np.int64, copy=False))
    # Each distinct piece is embedded once: fastText composes its vectors.
    distinct_W, which_N = ids_N.unique(return_inverse=True)
    table_WD = encoder.embed(distinct_W).float()

    def mean() -> Tensor:
        return F.embedding_bag(which_N, table_WD, begins_S, mode="sum") / lengths_S[:, None]

    def most() -> Tensor:
        return F.embedding_bag(which_N, table_WD, begins_S, mode="max")

    if pooling == "lead":
        places_N = torch.arange(len(ids_N)) - begins_S.repeat_interleave(lengths_S)
        weights_N = 1 / (3 + places_N).float()
        sums_S = torch.zeros(len(lengths_S)).index_add(
            0, torch.arange(len(lengths_S)).repeat_interleave(lengths_S), weights_N
        )
        weighted = F.embedding_bag(which_N, table_WD, begins_S, mode="sum", per_sample_weights=weights_N)
        return weighted / sums_S[:, None]
    if pooling == "max":
        return most()
    if pooling == "concat":
        average = mean()
        return torch.cat([average, most(), average], dim=1)
    return mean()
