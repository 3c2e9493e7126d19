"""One LSTM layer whose output is a narrow projection of its cells, clipped as in ELMo.

Sak, Senior and Beaufays 2014 (LSTM with recurrent projection); Peters et al. 2018 clip cell and projection:

    i, f, o = sigmoid(W_x x_t + W_h r_{t-1} + b)        g = tanh(...)
    c_t = clip(f * c_{t-1} + i * g)                     r_t = clip(W_r (o * tanh(c_t)))

Shape suffixes: T time, B batch rows, I input width, H cells, P projection width, G = 4 H (gates i, f, g, o).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.chunks import Chunks, State, run_in_chunks
from components.models.layers.precision import compute_dtype


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

    def forward(self, x_TBI: Tensor, state: State = (), *, chunks: Chunks | None = None) -> tuple[Tensor, State]:
        """Run a window from `state`, (r, c) of (B, P) and (B, H), or from zeros; in `chunks` where there are some.

        Returns:
            The outputs (T, B, P), and r and c (float32) after the last step, detached.
        """
        return run_in_chunks(self._window, x_TBI, state, chunks)

    def _window(self, x_TBI: Tensor, state: State) -> tuple[Tensor, State]:
        dtype = compute_dtype(x_TBI)
        rows = x_TBI.shape[1]
        if state:
            r_BP, c_BH = state[0].to(dtype), state[1].float()
        else:
            r_BP = x_TBI.new_zeros(rows, self.projection, dtype=dtype)
            c_BH = x_TBI.new_zeros(rows, self.cells, dtype=torch.float32)
        # What the inputs bring to the gates is one product for the whole window; only the recurrence goes step by step.
        gates_TBG = F.linear(x_TBI.to(dtype), self.weight_ih.to(dtype), self.bias.to(dtype))
        out_TBP, c_BH = self._recurrence(
            gates_TBG, self.weight_hh.to(dtype), self.weight_hr.to(dtype), r_BP, c_BH, self.clip
        )
        return out_TBP, (out_TBP[-1].detach().clone(), c_BH)


class _Recurrence(torch.autograd.Function):
    """The steps of a window with a gradient of its own: products of all steps' gradients are taken once, at the end,
    and nothing is recorded a step."""

    @staticmethod
    def forward(
        ctx: Any, gates_TBG: Tensor, w_hh_GP: Tensor, w_hr_PH: Tensor, r_BP: Tensor, c_BH: Tensor, clip: float
    ) -> tuple[Tensor, Tensor]:
        steps, rows, _ = gates_TBG.shape
        dtype = gates_TBG.dtype
        projection, cells = w_hr_PH.shape
        kept_TBG = torch.empty(gates_TBG.shape, dtype=torch.float32, device=gates_TBG.device)
        c_TBH = torch.empty(steps + 1, rows, cells, dtype=torch.float32, device=gates_TBG.device)
        m_TBH = torch.empty(steps, rows, cells, dtype=dtype, device=gates_TBG.device)
        r_TBP = torch.empty(steps + 1, rows, projection, dtype=dtype, device=gates_TBG.device)
        c_TBH[0], r_TBP[0] = c_BH, r_BP
        turned_PG, turned_HP = w_hh_GP.t(), w_hr_PH.t()
        for t in range(steps):
            act_BG = kept_TBG[t]
            act_BG.copy_(torch.addmm(gates_TBG[t], r_TBP[t], turned_PG))
            act_BG[:, : 2 * cells].sigmoid_()
            act_BG[:, 2 * cells : 3 * cells].tanh_()
            act_BG[:, 3 * cells :].sigmoid_()
            i, f, g, o = act_BG.chunk(4, 1)
            c_new = torch.mul(f, c_TBH[t], out=c_TBH[t + 1])
            c_new.addcmul_(i, g).clamp_(-clip, clip)
            m_TBH[t] = o * c_new.tanh()
            r_new = torch.mm(m_TBH[t], turned_HP, out=r_TBP[t + 1])
            r_new.clamp_(-clip, clip)
        ctx.save_for_backward(kept_TBG, c_TBH, m_TBH, r_TBP, w_hh_GP, w_hr_PH)
        ctx.clip = clip
        c_last = c_TBH[-1].clone()
        ctx.mark_non_differentiable(c_last)
        return r_TBP[1:], c_last

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        act_TBG, c_TBH, m_TBH, r_TBP, w_hh_GP, w_hr_PH = ctx.saved_tensors
        grad_TBP = gradients[0]
        clip = ctx.clip
        grad_gates_TBG = torch.empty(act_TBG.shape, dtype=w_hh_GP.dtype, device=act_TBG.device)
        grad_r_TBP = torch.empty_like(r_TBP[1:])
        dc_BH = torch.zeros_like(c_TBH[0])
        dr_BP = torch.zeros_like(r_TBP[0])
        work_BG = torch.empty_like(act_TBG[0])
        for t in reversed(range(len(act_TBG))):
            i, f, g, o = act_TBG[t].chunk(4, 1)
            # Nothing flows through a value that was clipped.
            dr_now = torch.add(grad_TBP[t], dr_BP, out=grad_r_TBP[t])
            dr_now.mul_(r_TBP[t + 1].abs() < clip)
            dm_BH = torch.mm(dr_now, w_hr_PH).float()
            tanh_c = c_TBH[t + 1].tanh()
            dc_BH.add_(dm_BH * o * (1 - tanh_c * tanh_c)).mul_(c_TBH[t + 1].abs() < clip)
            di, df, dg, do = work_BG.chunk(4, 1)
            torch.mul(dc_BH, g, out=di).mul_(i).mul_(1 - i)
            torch.mul(dc_BH, c_TBH[t], out=df).mul_(f).mul_(1 - f)
            torch.mul(dc_BH, i, out=dg).mul_(1 - g * g)
            torch.mul(dm_BH, tanh_c, out=do).mul_(o).mul_(1 - o)
            grad_gates_TBG[t] = work_BG
            dr_BP = grad_gates_TBG[t] @ w_hh_GP
            dc_BH.mul_(f)
        grad_hh_GP = grad_gates_TBG.flatten(0, 1).t() @ r_TBP[:-1].flatten(0, 1)
        grad_hr_PH = grad_r_TBP.flatten(0, 1).t() @ m_TBH.flatten(0, 1)
        return grad_gates_TBG, grad_hh_GP, grad_hr_PH, None, None, None
