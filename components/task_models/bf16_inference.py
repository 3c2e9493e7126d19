"""A model that only answers in bfloat16, with its matrices cast beforehand.

While a model learns, its weights are float32 and are cast for every batch. Of one text that costs more than the
products themselves; a model that no longer changes is cast once.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.linear import Linear
from components.task_models.model import TaskModel


class CastLinear(nn.Module):
    """`Linear` for answers alone: y = x W^T + b, all of it in bfloat16.

    Args:
        weight: (O, I) in bfloat16.
        bias: (O,) in bfloat16, or None.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


def cast(model: TaskModel) -> TaskModel:
    """A copy in evaluation mode that answers in bfloat16 (under `predicting`) what `model` answers there; it shares
    with it all weights that are not of a `Linear`."""
    shared: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        if isinstance(module, Linear):
            bias = None if module.bias is None else module.bias.detach().to(torch.bfloat16)
            shared[id(module)] = CastLinear(module.weight.detach().to(torch.bfloat16), bias)
    return copy.deepcopy(model, shared).eval()
