"""Layer norm whose result has the type of its input, on every device.

Ba, Kiros and Hinton 2016: y = (x - mean) / sqrt(variance + eps) * w + b, over the last dimension.
"""

from __future__ import annotations

from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """As `nn.LayerNorm`, computed in float32.

    Autocast on CUDA lets layer norm return float32 for bfloat16; autocast on the CPU does not. The residual stream
    would then be in float32 on a GPU only, with twice the memory traffic and other rounding.
    """

    def forward(self, x: Tensor) -> Tensor:
        normed = super().forward(x)
        return normed if normed.dtype == x.dtype else normed.to(x.dtype)
