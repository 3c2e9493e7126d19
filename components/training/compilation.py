"""Which runs on a GPU are compiled (torch.compile).

A compiled step fuses the operators between matrix products. Compilation takes about as long as some hundred steps, and
is repeated for batches of other shapes and for other sets of trained parameters; after `recompile_limit` repetitions
torch would stop compiling. So only long runs with constant shapes are compiled: pretraining and adaptation of
Transformers. A recurrent layer is not compiled, because torch would replace cuDNN's kernel by one operator per step.

The decision depends on settings alone, never on measured time: compiled and uncompiled steps differ in the last bits,
and a resumed run must continue with the same ones.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from components.models.base import LanguageModel
from components.settings.training import LanguageModelTraining
from components.training.windows import Sampler

#: Least number of steps, or seconds of a budget in seconds, of a compiled run.
LEAST_STEPS: Final = 500
LEAST_SECONDS: Final = 300.0


def is_compiled(
    model: nn.Module,
    sampler: Sampler,
    *,
    settings: LanguageModelTraining,
    steps: int | None,
    device: torch.device,
) -> bool:
    """Whether a run is compiled.

    Args:
        steps: of the budget; None for a budget in seconds.
    """
    if device.type != "cuda" or not isinstance(model, LanguageModel) or not model.compiles:
        return False
    long = (settings.seconds or 0) >= LEAST_SECONDS if steps is None else steps >= LEAST_STEPS
    return long and sampler.has_constant_shapes
