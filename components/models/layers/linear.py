"""Linear layers with a fast backward pass in bfloat16 on the CPU, layer norm, and the data type of both.

Shape suffixes: N rows, I input width, O output width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type in which a layer computes: autocast's on the tensor's device if it is enabled, else the tensor's own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class Linear(nn.Linear):
    """y = x W^T + b, as `nn.Linear`; b may be absent.

    On the CPU in bfloat16 the weights are cast once, and the gradient of the bias is a product with ones, because
    summing the columns of a bfloat16 matrix takes longer than a matrix product."""

    def forward(self, x: Tensor) -> Tensor:
        dtype = compute_dtype(x)
        if x.is_cuda or dtype != torch.bfloat16:
            return super().forward(x)
        return _Linear.apply(x.to(dtype), self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        cast_OI = weight_OI.to(x.dtype)
        ctx.save_for_backward(x, cast_OI)
        ctx.dtype = weight_OI.dtype
        return F.linear(x, cast_OI, None if bias_O is None else bias_O.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, weight_OI = ctx.saved_tensors
        grad = gradients[0].contiguous()
        grad_NO, x_NI = grad.view(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        grad_x = grad_weight = grad_bias = None
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        if needs_x:
            grad_x = (grad_NO @ weight_OI).view(x.shape)
        if needs_weight:
            # With the narrower matrix first, oneDNN transposes less and is a third faster.
            narrow = weight_OI.shape[0] <= weight_OI.shape[1]
            product = F.linear(grad_NO.t(), x_NI.t()) if narrow else F.linear(x_NI.t(), grad_NO.t()).t()
            grad_weight = product.to(ctx.dtype).contiguous()
        if needs_bias:
            grad_bias = (grad_NO.new_ones(1, len(grad_NO)) @ grad_NO)[0].to(ctx.dtype)
        return grad_x, grad_weight, grad_bias


class RMSNorm(nn.RMSNorm):
    """y = x / sqrt(mean of x^2 + eps) * w over the last dimension (Zhang and Sennrich 2019), with the type of the
    input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    """y = (x - mean) / sqrt(variance + eps) * w + b over the last dimension (Ba, Kiros and Hinton 2016), in float32,
    with the type of the input. Autocast on CUDA lets layer norm return float32 for bfloat16, autocast on the CPU
    does not; the residual stream would then be in float32 on a GPU only."""

    def forward(self, x: Tensor) -> Tensor:
        normed = super().forward(x)
        return normed if normed.dtype == x.dtype else normed.to(x.dtype)
