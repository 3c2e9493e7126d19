"""One LSTM layer over a window.

Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000):

    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)    g = tanh(...)
    c_t = f * c_{t-1} + i * g                       h_t = o * tanh(c_t)

Shape suffixes: T time, B batch rows, I input width, H hidden width, G = 4 H (gates in the order i, f, g, o).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from components.models.layers.chunks import Chunks, State, run_in_chunks
from components.models.layers.dropout import WeightDropout
from components.models.layers.precision import compute_dtype

#: From this size on, and with so few rows, a processor sums the gradients of the weights once (see `_FewRows`): with 16
#: rows, 30 steps and one thread 0.5 of oneDNN's time at 320 inputs and 640 wide (9.4 MB), 0.9 at 288 and 576 (7.6 MB);
#: with 32 rows 0.85 at the former, and with two threads and 64 steps 1.1.
SUMS_BYTES = 8 * 2**20
FEW_ROWS = 16


def cell(gates_BG: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor]:
    """One step for gates before their nonlinearities, for loops that no window kernel can run; returns h and c."""
    i_BH, f_BH, g_BH, o_BH = gates_BG.chunk(4, dim=-1)
    c_BH = f_BH.sigmoid() * c_BH + i_BH.sigmoid() * g_BH.tanh()
    return o_BH.sigmoid() * c_BH.tanh(), c_BH


class LSTM(nn.Module):
    """One layer, one direction.

    Args:
        inputs: I.
        hidden: H.
        weight_drop: DropConnect on the hidden-to-hidden weights, one mask a window (Merity et al. 2017, section 2).
    """

    def __init__(self, inputs: int, hidden: int, *, weight_drop: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        self.weight_drop = WeightDropout(weight_drop)
        bound = 1 / math.sqrt(hidden)
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        nn.init.zeros_(self.bias)
        # Forget gates start open, so that a gradient reaches far back from the first step (Jozefowicz et al. 2015).
        with torch.no_grad():
            self.bias[hidden : 2 * hidden] = 1

    def forward(self, x_TBI: Tensor, state: State = (), *, chunks: Chunks | None = None) -> tuple[Tensor, State]:
        """Run a window from `state`, (h, c) of (B, H) each, or from zeros; in `chunks` where there are some.

        Returns:
            The outputs (T, B, H), and h and c after the last step, detached: a gradient never leaves its window.
        """
        dtype = compute_dtype(x_TBI)
        weights = (
            self.weight_ih.to(dtype),
            self.weight_drop(self.weight_hh.to(dtype)),
            self.bias.to(dtype),
        )

        def window(x_TBI: Tensor, state: State) -> tuple[Tensor, State]:
            h_BH, c_BH = (
                (part.to(dtype) for part in state) if state else x_TBI.new_zeros(2, x_TBI.shape[1], self.hidden)
            )
            if torch.is_grad_enabled() and self._sums_once(x_TBI):
                out_TBH, h_BH, c_BH = _FewRows.apply(x_TBI, h_BH, c_BH, *weights)
            else:
                out_TBH, h_BH, c_BH = _whole_window(x_TBI, h_BH, c_BH, weights, training=self.training)
            return out_TBH, (h_BH.detach(), c_BH.detach())

        return run_in_chunks(window, x_TBI.to(dtype), state, chunks)

    def _sums_once(self, x_TBI: Tensor) -> bool:
        size = self.weight_ih.numel() + self.weight_hh.numel()
        return not x_TBI.is_cuda and x_TBI.shape[1] <= FEW_ROWS and 4 * size >= SUMS_BYTES


Weights = tuple[Tensor, Tensor, Tensor]


def _whole_window(
    x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, *, training: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, B, H), h and c after them, by the vendors' kernels (oneDNN, cuDNN), which fuse the whole window.

    Args:
        weights: input to hidden (G, I), hidden to hidden (G, H), bias (G,).
    """
    w_GI, w_GH, bias_G = weights
    # They take two biases, of which one is enough.
    out_TBH, h_1BH, c_1BH = torch._VF.lstm(
        x_TBI,
        (h_BH.unsqueeze(0), c_BH.unsqueeze(0)),
        [w_GI, w_GH, bias_G, torch.zeros_like(bias_G)],
        True,
        1,
        0.0,
        training,
        False,
        False,
    )
    return out_TBH, h_1BH[0], c_1BH[0]


class _FewRows(torch.autograd.Function):
    """A window whose gradients of the weights are summed once instead of step by step; none leaves it by the state.

    oneDNN's backward pass adds to those sums at every step. Where they no longer lie in the cache and a step has few
    rows, that takes longer than all products together. Here the gates of all steps are computed again from the outputs
    in one product, what a step must know of the next one goes back step by step, and the weights' gradients are one
    product over all steps.
    """

    @staticmethod
    def forward(
        ctx: Any, x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, w_GI: Tensor, w_GH: Tensor, bias_G: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        out_TBH, last_BH, c_last_BH = _whole_window(x_TBI, h_BH, c_BH, (w_GI, w_GH, bias_G), training=False)
        ctx.save_for_backward(x_TBI, h_BH, c_BH, w_GI, w_GH, bias_G, out_TBH)
        ctx.mark_non_differentiable(last_BH, c_last_BH)
        return out_TBH, last_BH, c_last_BH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_TBI, h_BH, c_BH, w_GI, w_GH, bias_G, out_TBH = ctx.saved_tensors
        steps, rows, hidden = out_TBH.shape
        x_NI = x_TBI.flatten(0, 1)
        before_NH = torch.cat([h_BH.unsqueeze(0), out_TBH[:-1]]).flatten(0, 1)
        slope_NG = _slopes(
            torch.addmm(bias_G, x_NI, w_GI.t()).addmm_(before_NH, w_GH.t()).view(steps, rows, 4, hidden),
            c_BH,
            gradients[0],
            w_GH,
        )
        wants_x, _, _, wants_w_GI, wants_w_GH, wants_bias = ctx.needs_input_grad
        return (
            (slope_NG @ w_GI).view_as(x_TBI) if wants_x else None,
            None,
            None,
            slope_NG.t() @ x_NI if wants_w_GI else None,
            slope_NG.t() @ before_NH if wants_w_GH else None,
            # A product with ones: summing the columns of a bfloat16 matrix is many times slower.
            (slope_NG.new_ones(1, len(slope_NG)) @ slope_NG)[0] if wants_bias else None,
        )


def _slopes(gates_TB4H: Tensor, c_BH: Tensor, slope_TBH: Tensor, w_GH: Tensor) -> Tensor:
    """The loss's derivatives after the gates before their nonlinearities, (T B, G) in their type.

    Args:
        gates_TB4H: before their nonlinearities.
        c_BH: cells before the first step.
        slope_TBH: the loss's derivatives after the outputs, as far as they go by no later step.
        w_GH: hidden to hidden.
    """
    steps, rows, _, hidden = gates_TB4H.shape
    # At least float32, whatever the products are computed in.
    gates_TB4H = gates_TB4H.to(torch.promote_types(gates_TB4H.dtype, torch.float32))
    g_TBH = gates_TB4H[:, :, 2].tanh()
    i_TBH, f_TBH, _, o_TBH = gates_TB4H.sigmoid_().unbind(2)
    new_TBH = i_TBH * g_TBH
    cells_UBH = new_TBH.new_empty(steps + 1, rows, hidden)  # U = T + 1
    cells_UBH[0] = c_BH
    for step in range(steps):
        torch.addcmul(new_TBH[step], f_TBH[step], cells_UBH[step], out=cells_UBH[step + 1])
    shown_TBH = cells_UBH[1:].tanh()
    # What the derivative after the cell is multiplied with for i, f and g, and that after the output for c and for o.
    inner_TB3H = new_TBH.new_empty(steps, rows, 3, hidden)
    torch.mul(new_TBH, 1 - i_TBH, out=inner_TB3H[:, :, 0])
    torch.mul(cells_UBH[:-1] * f_TBH, 1 - f_TBH, out=inner_TB3H[:, :, 1])
    torch.addcmul(i_TBH, new_TBH, g_TBH, value=-1, out=inner_TB3H[:, :, 2])
    outer_TBH = shown_TBH * o_TBH * (1 - o_TBH)
    to_cell_TBH = torch.addcmul(o_TBH, o_TBH * shown_TBH, shown_TBH, value=-1)
    found_TB4H = slope_TBH.new_empty(steps, rows, 4, hidden)
    found_TBG = found_TB4H.view(steps, rows, 4 * hidden)
    later_BH = torch.zeros_like(cells_UBH[0])
    for step in reversed(range(steps)):
        slope_BH = slope_TBH[step]
        if step + 1 < steps:
            slope_BH = torch.addmm(slope_BH, found_TBG[step + 1], w_GH)
        cell_BH = torch.addcmul(later_BH, slope_BH, to_cell_TBH[step])
        torch.mul(cell_BH.unsqueeze(1), inner_TB3H[step], out=found_TB4H[step, :, :3])
        torch.mul(slope_BH, outer_TBH[step], out=found_TB4H[step, :, 3])
        later_BH = cell_BH * f_TBH[step]
    return found_TBG.flatten(0, 1)
