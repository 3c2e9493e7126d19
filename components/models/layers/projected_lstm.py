"""One LSTM layer whose output is a projection of its cells to a smaller width, clipped as in ELMo.

Sak, Senior and Beaufays 2014 (LSTM with recurrent projection); Peters et al. 2018 clip cell and projection:

    i, f, o = sigmoid(W_x x_t + W_h r_{t-1} + b)        g = tanh(...)
    c_t = clip(f * c_{t-1} + i * g)                     r_t = clip(W_r (o * tanh(c_t)))

Shape suffixes: T time, B batch rows, N positions of all steps (see `layers.ragged`), I input width, H cells, P
projection width, G = 4 H (gates in the order i, f, g, o).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.chunks import State, Texts, run_in_chunks
from components.models.layers.lstm_kernels import ProjectedRecurrence
from components.models.layers.precision import compute_dtype
from components.models.layers.ragged import ragged


class ProjectedLSTM(nn.Module):
    """One layer, one direction; parameters have the names and shapes of those of `nn.LSTM` with `proj_size`.

    Args:
        inputs: I.
        cells: H.
        projection: P.
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
        """Compute a window from `state`, (r, c) of (B, P) and (B, H), or from zeros.

        Args:
            texts: lengths of the rows, and the chunks in which they are read; None: no padding, one chunk.

        Returns:
            The outputs (T, B, P), undefined at padding, and r and c (float32) after the last step (undefined at
            padding), detached.
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
