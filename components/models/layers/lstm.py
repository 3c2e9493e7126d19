"""LSTM layers over a window.

Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000):

    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)    g = tanh(...)
    c_t = f * c_{t-1} + i * g                       h_t = o * tanh(c_t)

A projected layer has narrower outputs r_t (Sak, Senior and Beaufays 2014); Peters et al. 2018 clip cells and outputs:

    c_t = clip(f * c_{t-1} + i * g)                 r_t = clip(W_r (o * tanh(c_t))), with r_{t-1} in place of h_{t-1}

Shape suffixes: T time, B batch rows, N positions of all steps (see `ragged`), I input width, H hidden width
(cells), P projection width, G = 4 H (gates in the order i, f, g, o).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.chunks import State, Texts, joined, run_in_chunks, turn, turned
from components.models.layers.dropout import WeightDropout
from components.models.layers.linear import compute_dtype
from components.models.layers.lstm_kernels import ProjectedRecurrence, ragged, run_lstm


def cell(gates_BG: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor]:
    """h and c (B, H) after one step from the pre-activation gates (B, G), for decoders whose input depends on h."""
    i_BH, f_BH, g_BH, o_BH = gates_BG.chunk(4, dim=-1)
    c_BH = f_BH.sigmoid() * c_BH + i_BH.sigmoid() * g_BH.tanh()
    return o_BH.sigmoid() * c_BH.tanh(), c_BH


class LSTM(nn.Module):
    """One layer, one direction.

    Args:
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
        """Compute a window from `state`, (h, c) of (B, H) each, or from zeros: the outputs (T, B, H), and h and c after
        the last step, detached; undefined at padding. `texts`: lengths of the rows and their chunks; None: no
        padding."""
        dtype = compute_dtype(x_TBI)
        weights = (self.weight_ih.to(dtype), self.weight_drop(self.weight_hh.to(dtype)), self.bias.to(dtype))

        def window(x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
            h_BH, c_BH = (
                (part.to(dtype) for part in state) if state else x_TBI.new_zeros(2, x_TBI.shape[1], self.hidden)
            )
            out_TBH, h_BH, c_BH = run_lstm(x_TBI, h_BH, c_BH, weights, texts)
            return out_TBH, (h_BH.detach(), c_BH.detach())

        return run_in_chunks(window, x_TBI.to(dtype), state, texts)


class BiLSTM(nn.Module):
    """One layer in both directions; the outputs of both are concatenated (Huang, Xu and Yu 2015)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = LSTM(inputs, hidden)
        self.back = LSTM(inputs, hidden)

    def forward(self, x_BTI: Tensor, texts: Texts) -> Tensor:
        """(B, T, I) -> (B, T, 2 H)."""
        turned_BT = turned(texts.lengths, x_BTI.shape[1])
        ahead_TBH, _ = self.ahead(x_BTI.transpose(0, 1), texts=texts)
        back_TBH, _ = self.back(turn(x_BTI, turned_BT).transpose(0, 1), texts=texts)
        return joined(ahead_TBH.transpose(0, 1), back_TBH.transpose(0, 1), turned_BT)


class ProjectedLSTM(nn.Module):
    """One projected layer, one direction; parameters have the names and shapes of `nn.LSTM` with `proj_size`.

    Args:
        clip: maximum absolute value of cells and outputs; infinity for none.
    """

    def __init__(self, inputs: int, cells: int, projection: int, *, clip: float = 3.0) -> None:
        super().__init__()
        self.cells, self.projection, self.clip = cells, projection, clip
        # torch.compile would unroll the loop. Disabled here and not at module level, because `disable` loads the
        # compiler.
        self._recurrence = torch.compiler.disable(ProjectedRecurrence.apply)
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, projection))
        self.weight_hr = nn.Parameter(torch.empty(projection, cells))
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        bound = 1 / math.sqrt(projection)
        for weight in (self.weight_ih, self.weight_hh, self.weight_hr):
            nn.init.uniform_(weight, -bound, bound)
        # Forget bias 1, so that gradients reach far back from the first step (Jozefowicz et al. 2015).
        with torch.no_grad():
            self.bias[cells : 2 * cells] = 1

    def forward(self, x_TBI: Tensor, state: State = (), *, texts: Texts | None = None) -> tuple[Tensor, State]:
        """The same as `LSTM.forward`, with outputs and r (B, P) in place of h, and c in float32."""
        return run_in_chunks(self._window, x_TBI, state, texts)

    def _window(self, x_TBI: Tensor, state: State, texts: Texts | None) -> tuple[Tensor, State]:
        dtype = compute_dtype(x_TBI)
        rows = x_TBI.shape[1]
        if state:
            r_BP, c_BH = state[0].to(dtype), state[1].float()
        else:
            r_BP = x_TBI.new_zeros(rows, self.projection, dtype=dtype)
            c_BH = x_TBI.new_zeros(rows, self.cells, dtype=torch.float32)
        packed = ragged(x_TBI, texts)
        # The input part of the gates is one matrix product for the whole window.
        preactivations_NG = F.linear(packed.values.to(dtype), self.weight_ih.to(dtype), self.bias.to(dtype))
        out_NP, cells_NH = self._recurrence(
            preactivations_NG,
            self.weight_hh.to(dtype),
            self.weight_hr.to(dtype),
            packed.sort_rows(r_BP),
            packed.sort_rows(c_BH),
            self.clip,
            packed.counts,
        )
        return packed.unpack(out_NP), (out_NP[packed.last].detach(), cells_NH[packed.last])
