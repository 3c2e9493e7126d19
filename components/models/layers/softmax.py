"""Cross entropy over a large vocabulary without all logits in memory at once; look-up in tables with one row per piece,
and re-mapping of such tables to another vocabulary.

Shape suffixes: N targets, D width, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.linear import compute_dtype


def looked_up(tokens: Tensor, table_VD: Tensor) -> Tensor:
    """(...) ids -> (..., D). On the CPU the result has the memory layout of the ids; on a GPU the backward pass of an
    index adds up the rows one after the other."""
    return F.embedding(tokens, table_VD) if tokens.is_cuda else table_VD[tokens]


def remapped(table: Tensor, rows: Tensor) -> nn.Parameter:
    """The table (new V, ...) whose row i is row `rows[i]` of the old one (V, ...), or the mean of all its rows where
    `rows[i]` is -1 (Howard and Ruder 2018)."""
    with torch.no_grad():
        rows = rows.to(table.device)
        mean = table.float().mean(0).to(table.dtype)
        kept = (rows >= 0).view(-1, *[1] * (table.dim() - 1))
        return nn.Parameter(torch.where(kept, table[rows.clamp_min(0)], mean))


#: Rows per chunk on the CPU, the least on a GPU: small enough for the cache, large enough for a fast matrix product.
CHUNK_ROWS = 1024
#: Largest number of logits of a chunk on a GPU, unless CHUNK_ROWS need more: 1 GiB in bf16.
CHUNK_LOGITS = 2**29
#: A GPU multiplies matrices several times faster if their rows have multiples of 16 bytes.
ALIGNED_PIECES = 8


def linear_cross_entropy(x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    """Sum over N of -log softmax(x W^T + b)[target], in nats, as a float32 scalar. The gradient is computed together
    with the loss, chunk by chunk: one softmax instead of two, and memory for a chunk instead of N x V."""
    dtype = compute_dtype(x_ND)
    if x_ND.is_cuda:
        weight_VD, bias_V = aligned(weight_VD, bias_V)
    return _LinearCrossEntropy.apply(
        x_ND.to(dtype), weight_VD.to(dtype), bias_V.to(dtype), targets_N, torch.is_grad_enabled()
    )


def aligned(weight_VD: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor]:
    """The table and the biases with further pieces of probability 0, so that V is a multiple of ALIGNED_PIECES."""
    more = -len(weight_VD) % ALIGNED_PIECES
    if not more:
        return weight_VD, bias_V
    return F.pad(weight_VD, (0, 0, 0, more)), F.pad(bias_V, (0, more), value=-math.inf)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, targets_N: Tensor, with_gradient: bool
    ) -> Tensor:
        rows, size = len(x_ND), max(CHUNK_ROWS, CHUNK_LOGITS // len(weight_VD)) if x_ND.is_cuda else CHUNK_ROWS
        losses_N = torch.empty(rows, dtype=torch.float32, device=x_ND.device)
        tiny = torch.finfo(torch.float32).tiny
        logits = x_ND.new_empty(min(size, rows), len(weight_VD))
        if with_gradient:
            ones_1C = x_ND.new_ones(1, len(logits))
            grad_x_ND = torch.empty_like(x_ND)
            grad_w_VD = torch.zeros(weight_VD.shape, dtype=torch.float32, device=x_ND.device)
            grad_b_V = torch.zeros(len(bias_V), dtype=torch.float32, device=x_ND.device)
        for start in range(0, rows, size):
            part = slice(start, min(start + size, rows))
            x_CD = x_ND[part]
            p_CV = torch.addmm(bias_V, x_CD, weight_VD.t(), out=logits[: len(x_CD)])
            torch.softmax(p_CV, -1, out=p_CV)
            indices_C = torch.arange(len(x_CD), device=x_ND.device) * p_CV.shape[1] + targets_N[part]
            p_C = p_CV.view(-1)[indices_C]
            losses_N[part] = -p_C.float().clamp_min(tiny).log()
            if with_gradient:
                p_CV.view(-1)[indices_C] = p_C - 1
                torch.mm(p_CV, weight_VD, out=grad_x_ND[part])
                grad_w_VD += p_CV.t() @ x_CD
                # A product with ones: summing the columns of a bfloat16 matrix is many times slower.
                grad_b_V += (ones_1C[:, : len(x_CD)] @ p_CV)[0]
        if with_gradient:
            ctx.save_for_backward(grad_x_ND, grad_w_VD.to(weight_VD.dtype), grad_b_V.to(bias_V.dtype))
        return losses_N.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        grad_x_ND, grad_w_VD, grad_b_V = ctx.saved_tensors
        return (
            grad_x_ND * scale.to(grad_x_ND.dtype),
            grad_w_VD * scale.to(grad_w_VD.dtype),
            grad_b_V * scale.to(grad_b_V.dtype),
            None,
            None,
        )
