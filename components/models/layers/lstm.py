"""One LSTM layer over a window.

Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000):

    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)    g = tanh(...)
    c_t = f * c_{t-1} + i * g                       h_t = o * tanh(c_t)

Shape suffixes: T time, B batch rows, I input width, H hidden width, G = 4 H (gates in the order i, f, g, o).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from components.models.layers.chunks import Chunks, State, run_in_chunks
from components.models.layers.dropout import WeightDropout
from components.models.layers.precision import compute_dtype


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
        # The vendors' kernels (oneDNN, cuDNN) fuse the whole window. They take two biases, of which one is enough.
        bias_G = self.bias.to(dtype)
        weights = [
            self.weight_ih.to(dtype),
            self.weight_drop(self.weight_hh.to(dtype)),
            bias_G,
            torch.zeros_like(bias_G),
        ]

        def window(x_TBI: Tensor, state: State) -> tuple[Tensor, State]:
            if state:
                h_1BH, c_1BH = (part.to(dtype).unsqueeze(0) for part in state)
            else:
                h_1BH = c_1BH = x_TBI.new_zeros(1, x_TBI.shape[1], self.hidden)
            out_TBH, h_1BH, c_1BH = torch._VF.lstm(
                x_TBI, (h_1BH, c_1BH), weights, True, 1, 0.0, self.training, False, False
            )
            return out_TBH, (h_1BH[0].detach(), c_1BH[0].detach())

        return run_in_chunks(window, x_TBI.to(dtype), state, chunks)
