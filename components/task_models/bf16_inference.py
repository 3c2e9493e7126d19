"""Inference in bfloat16 with weights that are cast once.

Autocast casts float32 weights for every batch, which for one text takes longer than the matrix products.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.linear import Linear
from components.models.layers.lstm import LSTM
from components.models.layers.projected_lstm import ProjectedLSTM
from components.task_models.model import TaskModel
from components.tokenization import Tokenizer


class CastLinear(nn.Module):
    """Linear layer for inference: y = x W^T + b in bfloat16.

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
    """A copy of the model in evaluation mode, with the weights of all `Linear` and LSTM layers in bfloat16; it gives
    the same answers under `predicting(precision="bf16")`, and shares all other weights."""
    shared: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        if isinstance(module, Linear):
            bias = None if module.bias is None else module.bias.detach().to(torch.bfloat16)
            shared[id(module)] = CastLinear(module.weight.detach().to(torch.bfloat16), bias)
        elif isinstance(module, LSTM | ProjectedLSTM):
            for weight in module.parameters(recurse=False):
                shared[id(weight)] = nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False)
        # A tokenizer of words has ids for words that it has seen, which must be those of the classifier's.
        for value in vars(module).values():
            owner = getattr(value, "__self__", value)
            if isinstance(owner, Tokenizer):
                shared[id(owner)] = owner
    return copy.deepcopy(model, shared).eval()
