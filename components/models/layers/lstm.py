"""One LSTM layer over a window, fast on processors.

Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000):

    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)    g = tanh(...)
    c_t = f * c_{t-1} + i * g                       h_t = o * tanh(c_t)

Shape suffixes: T time, B batch rows, I input width, H hidden width, G = 4 H (gates in the order i, f, o, g).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from components.models.layers.dropout import WeightDropout
from components.models.layers.precision import compute_dtype

State = tuple[Tensor, Tensor]


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
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1/sqrt(H); the forget gates start open (bias 1), so that a gradient reaches back at once
        (Jozefowicz et al. 2015)."""
        bound = 1 / math.sqrt(self.hidden)
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.bias[self.hidden : 2 * self.hidden] = 1

    def forward(self, x_TBI: Tensor, state: State) -> tuple[Tensor, State]:
        """Run a window; `state` is (h, c), each (B, H). Returns the outputs (T, B, H) and the state after the last."""
        dtype = compute_dtype(x_TBI)
        h_BH, c_BH = state
        weights = (self.weight_ih.to(dtype), self.weight_drop(self.weight_hh).to(dtype), self.bias.to(dtype))
        run = _cudnn if x_TBI.is_cuda else lstm_window
        out_TBH, h_BH, c_BH = run(x_TBI.to(dtype), h_BH.to(dtype), c_BH, *weights)
        return out_TBH, (h_BH, c_BH)


def zero_state(lstm: nn.Module, x_TBI: Tensor) -> State:
    """The state before a first window: h and c, each (B, H)."""
    assert isinstance(lstm, LSTM)
    zeros_BH = torch.zeros(x_TBI.shape[1], lstm.hidden, device=x_TBI.device)
    return zeros_BH, zeros_BH


def lstm_window(
    x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, w_GI: Tensor, w_GH: Tensor, b_G: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, B, H), last h and last c (float32). No gradient reaches the initial state: windows are truncated."""
    out_TBH, c_BH = _Window.apply(x_TBI, h_BH, c_BH, w_GI, w_GH, b_G)
    return out_TBH, out_TBH[-1].detach(), c_BH


def _cudnn(
    x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, w_GI: Tensor, w_GH: Tensor, b_G: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same on a GPU, where the vendor's kernel fuses the whole window; its gates come as i, f, g, o."""
    hidden = w_GH.shape[1]
    order = torch.arange(4 * hidden, device=x_TBI.device).view(4, hidden)[[0, 1, 3, 2]].flatten()
    weights = [w_GI[order], w_GH[order], b_G[order], torch.zeros_like(b_G)]
    state = (h_BH.unsqueeze(0), c_BH.to(h_BH.dtype).unsqueeze(0))
    out_TBH, h_1BH, c_1BH = torch._VF.lstm(x_TBI, state, weights, True, 1, 0.0, False, False, False)
    return out_TBH, h_1BH[0].detach(), c_1BH[0].detach()


class _Window(torch.autograd.Function):
    """A window with its gradient written out.

    Against the step-by-step graph: the input's part of the gates is one matrix product for the whole window, and so
    is every weight gradient; only the recurrence itself runs step by step, on data that stays in the cache. Cell
    state and gate arithmetic are float32 whatever the weights are.
    """

    @staticmethod
    def forward(
        ctx: Any, x_TBI: Tensor, h0_BH: Tensor, c0_BH: Tensor, w_GI: Tensor, w_GH: Tensor, b_G: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, rows, inputs = x_TBI.shape
        hidden = w_GH.shape[1]
        gates_TBG = torch.addmm(b_G, x_TBI.reshape(-1, inputs), w_GI.t()).view(steps, rows, 4 * hidden)
        h_TBH = x_TBI.new_empty(steps + 1, rows, hidden)
        c_TBH = x_TBI.new_empty(steps + 1, rows, hidden, dtype=torch.float32)
        h_TBH[0] = h0_BH
        c_TBH[0] = c0_BH
        w_HG = w_GH.t()
        work_BG = torch.empty(rows, 4 * hidden, dtype=torch.float32)
        tanh_BH = torch.empty(rows, hidden, dtype=torch.float32)
        sigmoids = work_BG[:, : 3 * hidden]
        i, f, o, g = work_BG.split(hidden, dim=1)
        for t in range(steps):
            gates_BG = gates_TBG[t].addmm_(h_TBH[t], w_HG)
            work_BG.copy_(gates_BG)
            sigmoids.sigmoid_()
            g.tanh_()
            c_BH = torch.mul(f, c_TBH[t], out=c_TBH[t + 1])
            c_BH.addcmul_(i, g)
            torch.tanh(c_BH, out=tanh_BH)
            h_TBH[t + 1] = tanh_BH.mul_(o)
            gates_BG.copy_(work_BG)
        ctx.save_for_backward(x_TBI, w_GI, w_GH, gates_TBG, h_TBH, c_TBH)
        return h_TBH[1:], c_TBH[-1].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        grad_TBH = gradients[0]
        x_TBI, w_GI, w_GH, gates_TBG, h_TBH, c_TBH = ctx.saved_tensors
        steps, rows, inputs = x_TBI.shape
        hidden = w_GH.shape[1]
        grad_TBG = torch.empty_like(gates_TBG)
        work_BG = torch.empty(rows, 4 * hidden, dtype=torch.float32)
        i, f, o, g = work_BG.split(hidden, dim=1)
        ifo = work_BG[:, : 3 * hidden]
        pre_BG = torch.empty_like(work_BG)
        dc_pre = pre_BG.view(rows, 4, hidden)
        dh_BH = torch.zeros(rows, hidden, dtype=torch.float32)
        dc_BH = torch.zeros(rows, hidden, dtype=torch.float32)
        tanh_BH = torch.empty_like(dh_BH)
        part_BH = torch.empty_like(dh_BH)
        recurrent_BH = torch.zeros_like(h_TBH[0])
        for t in range(steps - 1, -1, -1):
            work_BG.copy_(gates_TBG[t])
            torch.add(grad_TBH[t], recurrent_BH, out=dh_BH)
            torch.tanh(c_TBH[t + 1], out=tanh_BH)
            # dc += dh o (1 - tanh(c)^2)
            torch.mul(dh_BH, o, out=part_BH)
            dc_BH.add_(part_BH)
            dc_BH.addcmul_(part_BH.mul_(tanh_BH), tanh_BH, value=-1)
            # Gradients of i, f, o, g, each then times the slope of its own nonlinearity.
            torch.mul(dc_BH, g, out=dc_pre[:, 0])
            torch.mul(dc_BH, c_TBH[t], out=dc_pre[:, 1])
            torch.mul(dh_BH, tanh_BH, out=dc_pre[:, 2])
            torch.mul(dc_BH, i, out=dc_pre[:, 3])
            dc_BH.mul_(f)
            pre_ifo = pre_BG[:, : 3 * hidden].mul_(ifo)
            pre_ifo.addcmul_(pre_ifo, ifo, value=-1)
            part_BH.copy_(g).mul_(g)
            dc_pre[:, 3].addcmul_(dc_pre[:, 3], part_BH, value=-1)
            grad_BG = grad_TBG[t]
            grad_BG.copy_(pre_BG)
            torch.mm(grad_BG, w_GH, out=recurrent_BH)
        flat_NG = grad_TBG.view(-1, 4 * hidden)
        grad_x = torch.mm(flat_NG, w_GI).view_as(x_TBI) if ctx.needs_input_grad[0] else None
        grad_w_GI = torch.mm(flat_NG.t(), x_TBI.reshape(-1, inputs))
        grad_w_GH = torch.mm(flat_NG.t(), h_TBH[:-1].reshape(-1, hidden))
        return grad_x, None, None, grad_w_GI, grad_w_GH, flat_NG.sum(0)
