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

from components.models.layers.chunks import State, Texts, run_in_chunks
from components.models.layers.dropout import WeightDropout
from components.models.layers.precision import compute_dtype
from components.models.layers.ragged import a_step_earlier, by_step, ragged

#: From these sizes on, of the weights in float32 and of what each gate reads (I + H), a processor goes step by step
#: through a layer that learns in bfloat16 (see `_Steps`). By AVX512, with one thread, 30 steps and 16 or 64 rows
#: (`benchmarks/steps.py`, two runs): 0.5 to 1.0 of the kernel's time from 9.8 MB on, 1.1 to 1.2 at 640 inputs and 320
#: wide (4.9 MB): ULMFiT's last layer, which would else be a third of its products with all of the padding. At 100 and
#: 512 1.2 to 1.35, in float32 1.8 and more: those are left to the kernel, padding and all.
STEPS_BYTES = 4.5 * 2**20
STEPS_INPUTS = 800
#: Most rows of a step: of labelled texts, of which every thread has some of its own, and of other windows, where all
#: threads are at work on one.
STEPS_ROWS_OF_TEXTS, STEPS_ROWS = 64, 16


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

    def forward(self, x_TBI: Tensor, state: State = (), *, texts: Texts | None = None) -> tuple[Tensor, State]:
        """Run a window from `state`, (h, c) of (B, H) each, or from zeros.

        Args:
            texts: where pieces stand, and the chunks in which they are read; None: everywhere, and as one piece.

        Returns:
            The outputs (T, B, H), anything at padding, and h and c after the last step (at padding, anything),
            detached: a gradient never leaves its window.
        """
        dtype = compute_dtype(x_TBI)
        weights = (
            self.weight_ih.to(dtype),
            self.weight_drop(self.weight_hh.to(dtype)),
            self.bias.to(dtype),
        )

        def window(x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
            h_BH, c_BH = (
                (part.to(dtype) for part in state) if state else x_TBI.new_zeros(2, x_TBI.shape[1], self.hidden)
            )
            learned = torch.is_grad_enabled() and any(part.requires_grad for part in (x_TBI, *weights))
            run = _by_steps if learned and self._suits_steps(x_TBI, texts) else _by_kernel
            out_TBH, h_BH, c_BH = run(x_TBI, h_BH, c_BH, weights, texts)
            return out_TBH, (h_BH.detach(), c_BH.detach())

        return run_in_chunks(window, x_TBI.to(dtype), state, texts)

    def _suits_steps(self, x_TBI: Tensor, texts: Texts | None) -> bool:
        inputs = self.weight_ih.shape[1] + self.hidden
        large = inputs >= STEPS_INPUTS and 4 * inputs * len(self.bias) >= STEPS_BYTES
        if x_TBI.device.type != "cpu" or x_TBI.dtype != torch.bfloat16 or not large:
            return False
        # With AMX products take less of a step: more rows than have been timed there are left to the kernel.
        many = texts is not None and not torch.cpu._is_amx_tile_supported()
        return x_TBI.shape[1] <= (STEPS_ROWS_OF_TEXTS if many else STEPS_ROWS)


Weights = tuple[Tensor, Tensor, Tensor]


def _by_kernel(
    x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, texts: Texts | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, B, H), h and c after them, by the vendors' kernels (oneDNN, cuDNN), which fuse the whole window and
    read its padding as well.

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
        torch.is_grad_enabled(),
        False,
        False,
    )
    return out_TBH, h_1BH[0], c_1BH[0]


def _by_steps(
    x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, texts: Texts | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same step by step, without padding."""
    found = ragged(x_TBI, texts)
    out_NH, cells_NH = _Steps.apply(found.places, found.rows(h_BH), found.rows(c_BH), *weights, found.counts)
    return found.window(out_NH), out_NH[found.last], cells_NH[found.last].to(c_BH.dtype)


class _Steps(torch.autograd.Function):
    """A window in which every step has the rows that still go on; no gradient leaves it by the state.

    oneDNN's backward pass adds to the sums of the weights' gradients at every step. Where they do not lie in the cache,
    that takes longer than all products together, the more so the fewer rows a step has. Here only what a step must know
    of the next one goes back step by step, and the weights' gradients are one product over all places.

    Shape suffix: N places of all steps, the first step's first (see `layers.ragged`).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_NI: Tensor,
        h_BH: Tensor,
        c_BH: Tensor,
        w_GI: Tensor,
        w_GH: Tensor,
        bias_G: Tensor,
        counts: list[int],
    ) -> tuple[Tensor, Tensor]:
        hidden = w_GH.shape[1]
        # Before their nonlinearities; steps add what the outputs before them bring.
        gates_NG = torch.addmm(bias_G, x_NI, w_GI.t())
        # At least float32, whatever the products are computed in.
        dtype = torch.promote_types(x_NI.dtype, torch.float32)
        after_NG = gates_NG.new_empty(gates_NG.shape, dtype=dtype)
        cells_NH, shown_NH = after_NG.new_empty(2, len(x_NI), hidden)
        out_NH = x_NI.new_empty(len(x_NI), hidden)
        i_NH, f_NH, g_NH, o_NH = after_NG.view(-1, 4, hidden).unbind(1)
        before_BH, cell_BH = h_BH, c_BH.to(dtype)
        w_HG = w_GH.t()
        for gates, after, i, f, g, o, cell, shown, out in by_step(
            counts, gates_NG, after_NG, i_NH, f_NH, g_NH, o_NH, cells_NH, shown_NH, out_NH
        ):
            rows = len(gates)
            after.copy_(gates.addmm_(before_BH[:rows], w_HG))
            # tanh(x) = 2 sigmoid(2 x) - 1, and torch takes three times as long for a tanh as for a sigmoid.
            g.mul_(2)
            after.sigmoid_()
            g.mul_(2).sub_(1)
            torch.mul(f, cell_BH[:rows], out=cell).addcmul_(i, g)
            torch.mul(cell, 2, out=shown).sigmoid_().mul_(2).sub_(1)
            out.copy_(o * shown)
            before_BH, cell_BH = out, cell
        ctx.counts = counts
        ctx.save_for_backward(x_NI, h_BH, c_BH, w_GI, w_GH, after_NG, cells_NH, shown_NH, out_NH)
        ctx.mark_non_differentiable(cells_NH)
        return out_NH, cells_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, h_BH, c_BH, w_GI, w_GH, after_NG, cells_NH, shown_NH, out_NH = ctx.saved_tensors
        counts: list[int] = ctx.counts
        before_NH = a_step_earlier(h_BH, out_NH, counts)
        cells_before_NH = a_step_earlier(c_BH.to(cells_NH.dtype), cells_NH, counts)
        slope_NG = _slopes(after_NG, cells_before_NH, shown_NH, gradients[0], w_GH, counts)
        wants_x, _, _, wants_w_GI, wants_w_GH, wants_bias, _ = ctx.needs_input_grad
        return (
            slope_NG @ w_GI if wants_x else None,
            None,
            None,
            slope_NG.t() @ x_NI if wants_w_GI else None,
            slope_NG.t() @ before_NH if wants_w_GH else None,
            # A product with ones: summing the columns of a bfloat16 matrix is many times slower.
            (slope_NG.new_ones(1, len(slope_NG)) @ slope_NG)[0] if wants_bias else None,
            None,
        )


def _slopes(
    after_NG: Tensor,
    cells_before_NH: Tensor,
    shown_NH: Tensor,
    slope_NH: Tensor,
    w_GH: Tensor,
    counts: list[int],
) -> Tensor:
    """The loss's derivatives after the gates before their nonlinearities, (N, G) in the type of `slope_NH`.

    Args:
        after_NG: gates after their nonlinearities.
        cells_before_NH: the cells that each step begins with.
        shown_NH: tanh of the cells that it ends with.
        slope_NH: the loss's derivatives after the outputs, as far as they go by no later step.
        w_GH: hidden to hidden.
        counts: rows of each step.
    """
    hidden = shown_NH.shape[1]
    i_NH, f_NH, g_NH, o_NH = after_NG.view(-1, 4, hidden).unbind(1)
    # What the derivative after the cell is multiplied with for i, f, g, and that after the output for o and the cell.
    inner_N3H = after_NG.new_empty(len(after_NG), 3, hidden)
    torch.addcmul(i_NH, i_NH, i_NH, value=-1, out=inner_N3H[:, 0]).mul_(g_NH)
    torch.addcmul(f_NH, f_NH, f_NH, value=-1, out=inner_N3H[:, 1]).mul_(cells_before_NH)
    torch.mul(g_NH, g_NH, out=inner_N3H[:, 2]).neg_().add_(1).mul_(i_NH)
    out_NH = o_NH * shown_NH
    outer_NH = torch.addcmul(out_NH, out_NH, o_NH, value=-1)
    to_cell_NH = torch.addcmul(o_NH, out_NH, shown_NH, value=-1)
    found_NG = slope_NH.new_empty(after_NG.shape)
    slope_NH = slope_NH.to(after_NG.dtype, copy=True)
    work_B4H = after_NG.new_empty(counts[0], 4, hidden)
    later_BG, later_BH = found_NG[:0], shown_NH[:0]
    for slope, to_cell, outer, inner, f, found in reversed(
        by_step(counts, slope_NH, to_cell_NH, outer_NH, inner_N3H, f_NH, found_NG)
    ):
        work = work_B4H[: len(slope)]
        if len(later_BG):
            slope[: len(later_BG)].add_(later_BG @ w_GH)
        cell_BH = slope * to_cell
        cell_BH[: len(later_BH)].add_(later_BH)
        torch.mul(cell_BH.unsqueeze(1), inner, out=work[:, :3])
        torch.mul(slope, outer, out=work[:, 3])
        found.view_as(work).copy_(work)
        later_BG, later_BH = found, cell_BH.mul_(f)
    return found_NG
