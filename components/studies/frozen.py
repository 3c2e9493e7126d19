"""Features of a frozen encoder, per layer, and how well they suit the labels of a task (LogME; You et al. 2021).

Shape suffixes: M vectors of N rows, D width, F features, R rank, C labels.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.errors import ConfigError
from components.data.scoring.base import Floats
from components.data.tasks.data import Split
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.models.encoder import Encoder
from components.settings.finetune import FinetuneSettings

#: Bounds of the logarithm of alpha / beta, for features whose largest singular value is 1.
BOUNDS = (-30.0, 30.0)


def numbers_of(split: Split) -> NDArray[np.int64]:
    """(M,) labels of all vectors of a split, in the order of the rows."""
    return np.concatenate([*split.targets, np.zeros(0)]).astype(np.int64)


def layer_vectors(encoder: Encoder, split: Split, *, kind: str, settings: FinetuneSettings) -> list[Tensor]:
    """(M, D_l) float32 features of the embedding and of each layer, lowest first, in the order of the rows. Of texts,
    the mean of the hidden states, over the sequences of a row; words have their `unit_states`."""
    task, read = find_task(kind), settings.model_copy(update={"method": "features", "layers": "all", "pooling": "mean"})
    model = TaskModel(encoder.model, task=task, settings=read, labels=["no", "yes"]).eval()
    table = Predictor(model).table(model.encode(split.fields, encoder.tokenizer))
    parts = [np.concatenate(row) if table.of_units else np.mean(row, axis=0, keepdims=True) for row in table.rows]
    joined = torch.from_numpy(np.concatenate(parts))
    if len(joined) != sum(map(len, split.targets)):
        raise ConfigError(
            f"{kind}: an input is longer than finetune.<family>.max_length; raise the limit for this study"
        )
    widths = list(model.features.widths)
    return list(joined.split(widths * (joined.shape[1] // sum(widths)), dim=1))


def logme(features_NF: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets (You et al. 2021).

    A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) has the evidence p(y | F, alpha,
    beta). With r = alpha / beta, U and s of the SVD of F, and the best beta,

        log p / N = -(log(2 pi m) + 1) / 2 - sum log(1 + s^2 / r) / 2N,    m = (|y|^2 - sum s^2 (U y)^2 / (s^2 + r)) / N

    Args:
        features_NF: features of N rows, neither centred nor scaled, as in the paper.
        targets_NC: one column per label, 1 for the rows with this label; or one column of values. Constant columns are
            ignored.
    """
    from scipy.optimize import minimize_scalar  # the import takes half a second

    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_NF, dtype=np.float64), full_matrices=False)
    # The evidence does not depend on the scale of the features, but the bounds of r do.
    squares_R, count = np.square(sizes_R / max(sizes_R[0], 1e-300)), len(u_NR)

    def lost(logarithm: float, along_R: Floats, total: float) -> float:
        ratio = math.exp(logarithm)
        mean = max((total - (squares_R / (squares_R + ratio) * along_R).sum()) / count, 1e-12)
        return float(math.log(2 * math.pi * mean) + 1 + np.log1p(squares_R / ratio).sum() / count) / 2

    values = []
    for y_N in (column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)):
        given = np.square(u_NR.T @ y_N), y_N @ y_N
        values.append(minimize_scalar(lost, args=given, bounds=BOUNDS, method="bounded", options={"xatol": 1e-6}).fun)
    return -float(np.mean(values))
