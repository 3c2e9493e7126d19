"""Names and forms of what a run stores in its checkpoints."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from components.data.tasks.data import Answer

#: Prefixes of a member's tensors in a checkpoint: its best weights so far, and the weights of a model.
BEST, MODEL = "best.", "model."


def pack(name: str, answers: Sequence[Answer]) -> dict[str, Tensor]:
    """Answers of different lengths as two tensors of a checkpoint: the values, and the lengths."""
    flat = np.concatenate([*answers, np.zeros(0, dtype=np.float32)])
    lengths = np.asarray([len(answer) for answer in answers], dtype=np.int64)
    return {name: torch.from_numpy(flat), f"{name}.lengths": torch.from_numpy(lengths)}


def unpack(name: str, tensors: Mapping[str, Tensor]) -> list[Answer]:
    ends = np.cumsum(tensors[f"{name}.lengths"].numpy())
    return np.split(tensors[name].numpy(), ends[:-1])


def held(number: int) -> str:
    """Name of the predictions of a fold at an evaluation (`pack`)."""
    return f"held.{number}"
