"""Copies of a model whose weights are converted once for inference: to bfloat16, or to 8-bit integers."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.learners.task_models.model import TaskModel
from components.models.base import LanguageModel
from components.models.layers.linear import Linear
from components.models.layers.lstm import LSTM, ProjectedLSTM
from components.tokenization import Tokenizer

#: Largest absolute value of quantised weights and of quantised activations. With 7 bits of activations, the sum of two
#: products fits 16 bits, in which processors without VNNI add them: 2 * 127 * 127 < 2^15.
WEIGHTS, ACTIVATIONS = 127, 63
#: The integer that stands for an activation of 0.
ZERO = 64
#: Rows of x that `CastLinear` reorders a matrix for; others are right, too.
ROWS = 128
#: Least scale; rows and channels of zeros have it.
TINY = 1e-30


class CastLinear(nn.Module):
    """y = x W^T + b in bfloat16. On a processor with bf16 products by oneDNN (AVX512 or better), W is stored in the
    order in which oneDNN reads it, for which `F.linear` reorders it in every call; the product is the same to the last
    bit."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # Without AVX512, oneDNN refuses bf16.
        bf16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self.packed = weight.is_cpu and bf16
        self.register_buffer("weight", torch.ops.mkldnn._reorder_linear_weight(weight, ROWS) if self.packed else weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.bfloat16)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)


class Int8Linear(nn.Module):
    """y = x W^T + b on a processor with products of 8-bit integers: the vector-wise quantisation of Dettmers et al.
    2022 (LLM.int8(), section 3.1) without outlier columns. Each output channel of W and each row of x has a scale,
    so that an output does not depend on the other rows of a batch; sums are exact."""

    bias: Tensor | None
    scales: Tensor
    zeros: Tensor
    packed: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.outputs, self.inputs = weight.shape
        scales = (weight.abs().amax(1) / WEIGHTS).clamp_min(TINY)
        quantised = (weight / scales[:, None]).round().to(torch.int8)
        self.register_buffer("bias", bias)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(self.outputs, dtype=torch.int64))
        self.register_buffer("packed", torch.ops.onednn.qlinear_prepack(quantised, None))

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O), of the type of x."""
        with torch.autocast(x.device.type, enabled=False):
            rows = x.reshape(-1, self.inputs).float()
            largest = rows.abs().amax(1, keepdim=True).clamp_min(TINY)
            # Shifted by half a step, because the conversion to integers truncates. Values from 1 to 127 have the same
            # bits in int8 and uint8, and torch converts to int8 five times as fast.
            shifted = (rows * (ACTIVATIONS / largest)).add_(ZERO + 0.5).to(torch.int8).view(torch.uint8)
            products = torch.ops.onednn.qlinear_pointwise(
                shifted, 1.0, ZERO, self.packed, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )
            outputs = products.mul_(largest / ACTIVATIONS)
            outputs = outputs if self.bias is None else outputs.add_(self.bias)
            return outputs.to(x.dtype).view(*x.shape[:-1], self.outputs)


def why_not_quantised(encoder: LanguageModel) -> str:
    """Why `converted` cannot quantise an encoder, as the end of a sentence about it; empty if it can."""
    if encoder.attention == "none":
        return "is not a Transformer"
    if not torch.backends.mkldnn.is_available():
        return "cannot be quantised, because this build of torch has no oneDNN"
    return ""


def converted(model: TaskModel, *, bf16: bool = False, int8: bool = False) -> TaskModel:
    """A copy of the model in evaluation mode that shares all weights which are not converted: with `bf16` those of all
    `Linear` and LSTM layers (same answers under `predictor.computing` in bf16), with `int8` the `Linear` layers of
    the encoder."""
    replaced: dict[int, object] = {}
    of_encoder = set(model.encoder.modules()) if int8 else set()
    # All other weights are shared, and so is a tokenizer of words, which has ids for words that it has seen.
    shared: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        if isinstance(module, Linear) and (bf16 or module in of_encoder):
            weight, bias = (None if each is None else each.detach() for each in (module.weight, module.bias))
            assert weight is not None
            if module in of_encoder:
                replaced[id(module)] = Int8Linear(weight, bias)
            else:
                replaced[id(module)] = CastLinear(weight.bfloat16(), None if bias is None else bias.bfloat16())
        elif isinstance(module, LSTM | ProjectedLSTM) and bf16:
            for parameter in module.parameters(recurse=False):
                replaced[id(parameter)] = nn.Parameter(parameter.detach().bfloat16(), requires_grad=False)
        owners = [getattr(value, "__self__", value) for value in vars(module).values()]
        shared |= {id(owner): owner for owner in owners if isinstance(owner, Tokenizer)}
    return copy.deepcopy(model, shared | replaced).eval()
