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

from components.models.layers.chunks import State, Texts, run_in_chunks
from components.models.layers.dropout import WeightDropout
from components.models.layers.lstm_kernels import run_lstm
from components.models.layers.precision import compute_dtype


def cell(gates_BG: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor]:
    """h and c (B, H) after one step from the pre-activation gates (B, G), for decoders whose input depends on h."""
    i_BH, f_BH, g_BH, o_BH = gates_BG.chunk(4, dim=-1)
    c_BH = f_BH.sigmoid() * c_BH + i_BH.sigmoid() * g_BH.tanh()
    return o_BH.sigmoid() * c_BH.tanh(), c_BH


class LSTM(nn.Module):
    """One layer, one direction.

    Args:
        inputs: I.
        hidden: H.
        weight_drop: DropConnect rate of the hidden-to-hidden weights, one mask per window (Merity et al. 2017, section
            2).
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
        # Forget bias 1, so that gradients reach far back from the first step (Jozefowicz et al. 2015).
        with torch.no_grad():
            self.bias[hidden : 2 * hidden] = 1

    def forward(self, x_TBI: Tensor, state: State = (), *, texts: Texts | None = None) -> tuple[Tensor, State]:
        """Compute a window from `state`, (h, c) of (B, H) each, or from zeros.

        Args:
            texts: lengths of the rows, and the chunks in which they are read; None: no padding, one chunk.

        Returns:
            The outputs (T, B, H), undefined at padding, and h and c after the last step (undefined at padding),
            detached: gradients do not leave a window.
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
            out_TBH, h_BH, c_BH = run_lstm(x_TBI, h_BH, c_BH, weights, texts)
            return out_TBH, (h_BH.detach(), c_BH.detach())

        return run_in_chunks(window, x_TBI.to(dtype), state, texts)
