"""One LSTM layer whose output is a narrow projection of its cells, clipped as in ELMo.

Sak, Senior and Beaufays 2014 (LSTM with recurrent projection); Peters et al. 2018 clip cell and projection:

    i, f, o = sigmoid(W_x x_t + W_h r_{t-1} + b)        g = tanh(...)
    c_t = clip(f * c_{t-1} + i * g)                     r_t = clip(W_r (o * tanh(c_t)))

Shape suffixes: T time, B batch rows, N places of all steps (see `layers.ragged`), I input width, H cells, P projection
width, G = 4 H (gates i, f, g, o).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from components.models.layers.chunks import State, Texts, run_in_chunks
from components.models.layers.precision import compute_dtype
from components.models.layers.ragged import a_step_earlier, by_step, ragged


class ProjectedLSTM(nn.Module):
    """One layer, one direction; parameters are named and shaped as those of `nn.LSTM` with `proj_size`.

    Args:
        inputs: I.
        cells: H.
        projection: P.
        clip: largest absolute value of a cell and of an output; infinity for none.
    """

    def __init__(self, inputs: int, cells: int, projection: int, *, clip: float = 3.0) -> None:
        super().__init__()
        self.cells, self.projection, self.clip = cells, projection, clip
        # Left alone by torch.compile, which would lay out every step of the window. Said here and not beside the class,
        # because saying it loads the compiler.
        self._recurrence = torch.compiler.disable(_Recurrence.apply)
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, projection))
        self.weight_hr = nn.Parameter(torch.empty(projection, cells))
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        bound = 1 / math.sqrt(projection)
        for weight in (self.weight_ih, self.weight_hh, self.weight_hr):
            nn.init.uniform_(weight, -bound, bound)
        # Forget gates start open, so that a gradient reaches far back from the first step (Jozefowicz et al. 2015).
        with torch.no_grad():
            self.bias[cells : 2 * cells] = 1

    def forward(self, x_TBI: Tensor, state: State = (), *, texts: Texts | None = None) -> tuple[Tensor, State]:
        """Run a window from `state`, (r, c) of (B, P) and (B, H), or from zeros.

        Args:
            texts: where pieces stand, and the chunks in which they are read; None: everywhere, and as one piece.

        Returns:
            The outputs (T, B, P), anything at padding, and r and c (float32) after the last step (at padding,
            anything), detached.
        """
        return run_in_chunks(self._window, x_TBI, state, texts)

    def _window(self, x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
        dtype = compute_dtype(x_TBI)
        rows = x_TBI.shape[1]
        if state:
            r_BP, c_BH = state[0].to(dtype), state[1].float()
        else:
            r_BP = x_TBI.new_zeros(rows, self.projection, dtype=dtype)
            c_BH = x_TBI.new_zeros(rows, self.cells, dtype=torch.float32)
        # What the inputs bring to the gates is one product for the whole window; only the recurrence goes step by step.
        found = ragged(x_TBI, texts)
        gates_NG = F.linear(found.places.to(dtype), self.weight_ih.to(dtype), self.bias.to(dtype))
        out_NP, cells_NH = self._recurrence(
            gates_NG,
            self.weight_hh.to(dtype),
            self.weight_hr.to(dtype),
            found.rows(r_BP),
            found.rows(c_BH),
            self.clip,
            found.counts,
        )
        return found.window(out_NP), (out_NP[found.last].detach(), cells_NH[found.last])


class _Recurrence(torch.autograd.Function):
    """The steps of a window with a gradient of its own: products of all steps' gradients are taken once, at the end,
    and nothing is recorded a step."""

    @staticmethod
    def forward(
        ctx: Any,
        gates_NG: Tensor,
        w_hh_GP: Tensor,
        w_hr_PH: Tensor,
        r_BP: Tensor,
        c_BH: Tensor,
        clip: float,
        counts: list[int],
    ) -> tuple[Tensor, Tensor]:
        places = len(gates_NG)
        projection, cells = w_hr_PH.shape
        after_NG = gates_NG.new_empty(gates_NG.shape, dtype=torch.float32)
        cells_NH = after_NG.new_empty(places, cells)
        m_NH, r_NP = gates_NG.new_empty(places, cells), gates_NG.new_empty(places, projection)
        w_hh_PG, w_hr_HP = w_hh_GP.t(), w_hr_PH.t()
        before_BP, cell_BH = r_BP, c_BH
        for gates, after, cell, m, r in by_step(counts, gates_NG, after_NG, cells_NH, m_NH, r_NP):
            rows = len(gates)
            after.copy_(torch.addmm(gates, before_BP[:rows], w_hh_PG))
            after[:, : 2 * cells].sigmoid_()
            after[:, 2 * cells : 3 * cells].tanh_()
            after[:, 3 * cells :].sigmoid_()
            i, f, g, o = after.chunk(4, 1)
            torch.mul(f, cell_BH[:rows], out=cell).addcmul_(i, g).clamp_(-clip, clip)
            m.copy_(o * cell.tanh())
            torch.mm(m, w_hr_HP, out=r).clamp_(-clip, clip)
            before_BP, cell_BH = r, cell
        ctx.save_for_backward(r_BP, c_BH, after_NG, cells_NH, m_NH, r_NP, w_hh_GP, w_hr_PH)
        ctx.clip, ctx.counts = clip, counts
        ctx.mark_non_differentiable(cells_NH)
        return r_NP, cells_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        r_BP, c_BH, after_NG, cells_NH, m_NH, r_NP, w_hh_GP, w_hr_PH = ctx.saved_tensors
        clip, counts = ctx.clip, ctx.counts
        r_before_NP = a_step_earlier(r_BP, r_NP, counts)
        cells_before_NH = a_step_earlier(c_BH, cells_NH, counts)
        slope_NG = after_NG.new_empty(after_NG.shape, dtype=w_hh_GP.dtype)
        slope_NP = gradients[0].clone()
        work_BG = torch.empty_like(after_NG[: counts[0]])
        later_BG, later_BH = slope_NG[:0], cells_NH[:0]
        for slope, r, cell, cell_before, after, found in reversed(
            by_step(counts, slope_NP, r_NP, cells_NH, cells_before_NH, after_NG, slope_NG)
        ):
            i, f, g, o = after.chunk(4, 1)
            work = work_BG[: len(slope)]
            slope[: len(later_BG)].add_(later_BG @ w_hh_GP)
            # Nothing flows through a value that was clipped.
            slope.mul_(r.abs() < clip)
            m_slope_BH = torch.mm(slope, w_hr_PH).float()
            shown_BH = cell.tanh()
            cell_slope_BH = m_slope_BH * o * (1 - shown_BH * shown_BH)
            cell_slope_BH[: len(later_BH)].add_(later_BH)
            cell_slope_BH.mul_(cell.abs() < clip)
            di, df, dg, do = work.chunk(4, 1)
            torch.mul(cell_slope_BH, g, out=di).mul_(i).mul_(1 - i)
            torch.mul(cell_slope_BH, cell_before, out=df).mul_(f).mul_(1 - f)
            torch.mul(cell_slope_BH, i, out=dg).mul_(1 - g * g)
            torch.mul(m_slope_BH, shown_BH, out=do).mul_(o).mul_(1 - o)
            found.copy_(work)
            later_BG, later_BH = found, cell_slope_BH.mul_(f)
        return slope_NG, slope_NG.t() @ r_before_NP, slope_NP.t() @ m_NH, None, None, None, None
