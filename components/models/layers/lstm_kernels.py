"""Kernels for a window of an LSTM layer; the only module that chooses between the libraries' kernels and our own.

| layer          | device | kernel                                                                                |
|----------------|--------|---------------------------------------------------------------------------------------|
| LSTM           | CUDA   | cuDNN                                                                                 |
| LSTM           | CPU    | oneDNN; `StepwiseLSTM` where a large layer learns in bfloat16 (`suits_steps`)          |
| projected LSTM | any    | `ProjectedRecurrence`: neither library clips cells and outputs                        |

Our kernels compute step by step, without padding (`ragged`), and compute each weight's gradient in one matrix
product over all steps.

Shape suffixes: T time, B batch rows, N positions of all steps that hold pieces, I input width, H hidden width (cells),
P projection width, G = 4 H (gates in the order i, f, g, o).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from components.models.layers.chunks import Texts
from components.models.layers.host import move
from components.models.layers.packing import worth_leaving_out


@dataclass(frozen=True)
class Ragged:
    """The positions of a window, step by step.

    Attributes:
        counts: rows per step, non-increasing.
        shape: T and B of the window.
        packed: torch's packed sequence; None if the window keeps its padding.
        last: (B,) index of each row's last position among N, rows in the order of the batch.
    """

    values: Tensor
    counts: list[int]
    shape: tuple[int, int]
    packed: PackedSequence | None
    last: Tensor

    def sort_rows(self, x_BD: Tensor) -> Tensor:
        """Values of the batch's rows, sorted as in the steps."""
        return x_BD if self.packed is None else x_BD[self.packed.sorted_indices]

    def unpack(self, x_ND: Tensor) -> Tensor:
        """(N, D) -> (T, B, D), 0 at padding that was left out."""
        if self.packed is None:
            return x_ND.view(*self.shape, -1)
        out_TBD, _ = pad_packed_sequence(self.packed._replace(data=x_ND), total_length=self.shape[0])
        return out_TBD


def ragged(x_TBD: Tensor, texts: Texts | None) -> Ragged:
    """A window without its padding; with it if there is little (`packing.worth_leaving_out`)."""
    steps, rows = x_TBD.shape[:2]
    if texts is None or not worth_leaving_out(texts.lengths, steps):
        last_B = torch.arange((steps - 1) * rows, steps * rows, device=x_TBD.device)
        return Ragged(x_TBD.flatten(0, 1), [rows] * steps, (steps, rows), None, last_B)
    # Packed sequences require a length of at least 1; the output of texts that ended before this window is not used.
    lengths_B = texts.lengths.clamp(1, steps)
    packed = pack_padded_sequence(x_TBD, lengths_B, enforce_sorted=False)
    starts_T = packed.batch_sizes.cumsum(0) - packed.batch_sizes
    assert packed.unsorted_indices is not None  # for type checkers
    last_B = starts_T[lengths_B - 1] + packed.unsorted_indices
    return Ragged(packed.data, packed.batch_sizes.tolist(), (steps, rows), packed, last_B)


def by_step(counts: list[int], *tables: Tensor) -> list[tuple[Tensor, ...]]:
    """Tables (N, ...) split by step: one tuple per step with the step's part of each table."""
    return list(zip(*(table.split(counts) for table in tables), strict=True))


def previous_step(first_BD: Tensor, x_ND: Tensor, counts: list[int]) -> Tensor:
    """(N, D): for each position, the value of the same row at the previous step; `first_BD` at the first step."""
    counts_T = torch.tensor(counts)
    earlier = torch.arange(counts[0], len(x_ND)) - counts_T[:-1].repeat_interleave(counts_T[1:])
    return torch.cat([first_BD, x_ND[move(earlier, x_ND.device)]])


#: Input to hidden (G, I), hidden to hidden (G, H), bias (G,).
Weights = tuple[Tensor, Tensor, Tensor]
#: Outputs (T, B, H), and h and c (B, H) after the last step.
Window = tuple[Tensor, Tensor, Tensor]

#: Minimum sizes for `StepwiseLSTM`: bytes of the weights in float32, and inputs per gate (I + H). Measured with AVX512,
#: as a fraction of oneDNN's time: 0.5 to 1.0 from 9.8 MB on; 1.1 to 1.2 at I = 640, H = 320 (4.9 MB), ULMFiT's last
#: layer, where padding would otherwise be a third of the products; 1.2 to 1.35 at I = 100, H = 512.
STEPS_BYTES = 4.5 * 2**20
STEPS_INPUTS = 800
#: Maximum number of rows for `StepwiseLSTM`: in windows of labelled texts, whose rows are divided among threads, and in
#: other windows, which all threads compute together.
STEPS_ROWS_OF_TEXTS, STEPS_ROWS = 64, 16


def run_lstm(x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, texts: Texts | None) -> Window:
    """Compute one window with the kernel that suits device, type and size."""
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x_TBI, *weights))
    run = by_steps if learns and suits_steps(x_TBI, weights, texts) else by_library
    return run(x_TBI, h_BH, c_BH, weights, texts)


def suits_steps(x_TBI: Tensor, weights: Weights, texts: Texts | None) -> bool:
    """Whether `StepwiseLSTM` is faster than oneDNN, by device, type and size."""
    w_GI, w_GH, bias_G = weights
    inputs = w_GI.shape[1] + w_GH.shape[1]
    large = inputs >= STEPS_INPUTS and 4 * inputs * len(bias_G) >= STEPS_BYTES
    if x_TBI.device.type != "cpu" or x_TBI.dtype != torch.bfloat16 or not large:
        return False
    # With AMX, matrix products are a smaller part of a step; larger numbers of rows have not been measured there.
    many = texts is not None and not torch.cpu._is_amx_tile_supported()
    return x_TBI.shape[1] <= (STEPS_ROWS_OF_TEXTS if many else STEPS_ROWS)


def by_library(x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, texts: Texts | None) -> Window:
    """Compute the window with the library of the device, which also computes padding, in the type of the inputs.
    Autocast would convert them to float16 on a GPU (torch: aten/src/ATen/cudnn/AutocastRNN.cpp)."""
    w_GI, w_GH, bias_G = weights
    # The libraries take two biases.
    parameters = [w_GI, w_GH, bias_G, torch.zeros_like(bias_G)]
    state = (h_BH.unsqueeze(0), c_BH.unsqueeze(0))
    with torch.autocast("cuda", enabled=False) if x_TBI.is_cuda else nullcontext():
        out_TBH, h_1BH, c_1BH = torch._VF.lstm(
            x_TBI, state, parameters, True, 1, 0.0, torch.is_grad_enabled(), False, False
        )
    return out_TBH, h_1BH[0], c_1BH[0]


def by_steps(x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Weights, texts: Texts | None) -> Window:
    packed = ragged(x_TBI, texts)
    out_NH, cells_NH = StepwiseLSTM.apply(
        packed.values, packed.sort_rows(h_BH), packed.sort_rows(c_BH), *weights, packed.counts
    )
    return packed.unpack(out_NH), out_NH[packed.last], cells_NH[packed.last].to(c_BH.dtype)


class StepwiseLSTM(torch.autograd.Function):
    """One window: (x, h, c, weights, rows per step) -> outputs (N, H) and cells (N, H). The state has no gradient.

    oneDNN's backward pass accumulates the weights' gradients at every step, which takes long if they do not fit into
    the cache. Here, only what depends on the following step is computed step by step."""

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
        # Pre-activations from the inputs; each step adds the recurrent part.
        preactivations_NG = torch.addmm(bias_G, x_NI, w_GI.t())
        # Gates and cells are kept in float32 or wider, whatever the type of the products.
        dtype = torch.promote_types(x_NI.dtype, torch.float32)
        gates_NG = preactivations_NG.new_empty(preactivations_NG.shape, dtype=dtype)
        cells_NH, tanh_NH = gates_NG.new_empty(2, len(x_NI), hidden)
        out_NH = x_NI.new_empty(len(x_NI), hidden)
        i_NH, f_NH, g_NH, o_NH = gates_NG.view(-1, 4, hidden).unbind(1)
        previous_BH, cell_BH = h_BH, c_BH.to(dtype)
        w_HG = w_GH.t()
        for preactivations, gates, i, f, g, o, cell, tanh, out in by_step(
            counts, preactivations_NG, gates_NG, i_NH, f_NH, g_NH, o_NH, cells_NH, tanh_NH, out_NH
        ):
            rows = len(preactivations)
            gates.copy_(preactivations.addmm_(previous_BH[:rows], w_HG))
            # tanh(x) = 2 sigmoid(2 x) - 1; torch's tanh takes three times as long as its sigmoid.
            g.mul_(2)
            gates.sigmoid_()
            g.mul_(2).sub_(1)
            torch.mul(f, cell_BH[:rows], out=cell).addcmul_(i, g)
            torch.mul(cell, 2, out=tanh).sigmoid_().mul_(2).sub_(1)
            out.copy_(o * tanh)
            previous_BH, cell_BH = out, cell
        ctx.counts = counts
        ctx.save_for_backward(x_NI, h_BH, c_BH, w_GI, w_GH, gates_NG, cells_NH, tanh_NH, out_NH)
        ctx.mark_non_differentiable(cells_NH)
        return out_NH, cells_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, h_BH, c_BH, w_GI, w_GH, gates_NG, cells_NH, tanh_NH, out_NH = ctx.saved_tensors
        counts: list[int] = ctx.counts
        previous_NH = previous_step(h_BH, out_NH, counts)
        previous_cells_NH = previous_step(c_BH.to(cells_NH.dtype), cells_NH, counts)
        grad_NG = _preactivation_gradient(gates_NG, previous_cells_NH, tanh_NH, gradients[0], w_GH, counts)
        wants_x, _, _, wants_w_GI, wants_w_GH, wants_bias, _ = ctx.needs_input_grad
        return (
            grad_NG @ w_GI if wants_x else None,
            None,
            None,
            grad_NG.t() @ x_NI if wants_w_GI else None,
            grad_NG.t() @ previous_NH if wants_w_GH else None,
            # A product with ones: summing the columns of a bfloat16 matrix is many times slower.
            (grad_NG.new_ones(1, len(grad_NG)) @ grad_NG)[0] if wants_bias else None,
            None,
        )


def _preactivation_gradient(
    gates_NG: Tensor, previous_cells_NH: Tensor, tanh_NH: Tensor, grad_out_NH: Tensor, w_GH: Tensor, counts: list[int]
) -> Tensor:
    """Gradient w.r.t. the pre-activation gates, (N, G) in the type of `grad_out_NH`."""
    hidden = tanh_NH.shape[1]
    i_NH, f_NH, g_NH, o_NH = gates_NG.view(-1, 4, hidden).unbind(1)
    # Local derivatives: of the cell w.r.t. the pre-activations of i, f and g; of the output w.r.t. the pre-activation
    # of o and w.r.t. the cell.
    local_N3H = gates_NG.new_empty(len(gates_NG), 3, hidden)
    torch.addcmul(i_NH, i_NH, i_NH, value=-1, out=local_N3H[:, 0]).mul_(g_NH)
    torch.addcmul(f_NH, f_NH, f_NH, value=-1, out=local_N3H[:, 1]).mul_(previous_cells_NH)
    torch.mul(g_NH, g_NH, out=local_N3H[:, 2]).neg_().add_(1).mul_(i_NH)
    out_NH = o_NH * tanh_NH
    local_o_NH = torch.addcmul(out_NH, out_NH, o_NH, value=-1)
    local_cell_NH = torch.addcmul(o_NH, out_NH, tanh_NH, value=-1)
    result_NG = grad_out_NH.new_empty(gates_NG.shape)
    grad_out_NH = grad_out_NH.to(gates_NG.dtype, copy=True)
    work_B4H = gates_NG.new_empty(counts[0], 4, hidden)
    # From the following time step: gradient w.r.t. its pre-activations, and w.r.t. the cell that it reads.
    next_BG, next_cell_BH = result_NG[:0], tanh_NH[:0]
    for grad_out, local_cell, local_o, local, f, result in reversed(
        by_step(counts, grad_out_NH, local_cell_NH, local_o_NH, local_N3H, f_NH, result_NG)
    ):
        work = work_B4H[: len(grad_out)]
        if len(next_BG):
            grad_out[: len(next_BG)].add_(next_BG @ w_GH)
        grad_cell_BH = grad_out * local_cell
        grad_cell_BH[: len(next_cell_BH)].add_(next_cell_BH)
        torch.mul(grad_cell_BH.unsqueeze(1), local, out=work[:, :3])
        torch.mul(grad_out, local_o, out=work[:, 3])
        result.view_as(work).copy_(work)
        next_BG, next_cell_BH = result, grad_cell_BH.mul_(f)
    return result_NG


class ProjectedRecurrence(torch.autograd.Function):
    """The recurrent part of a projected LSTM (`layers.lstm`): (input part of the gates, W_h, W_r, r, c, clip, rows per
    step) -> outputs (N, P) and cells (N, H). The state has no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        preactivations_NG: Tensor,
        w_hh_GP: Tensor,
        w_hr_PH: Tensor,
        r_BP: Tensor,
        c_BH: Tensor,
        clip: float,
        counts: list[int],
    ) -> tuple[Tensor, Tensor]:
        positions = len(preactivations_NG)
        projection, cells = w_hr_PH.shape
        gates_NG = preactivations_NG.new_empty(preactivations_NG.shape, dtype=torch.float32)
        cells_NH = gates_NG.new_empty(positions, cells)
        m_NH = preactivations_NG.new_empty(positions, cells)
        r_NP = preactivations_NG.new_empty(positions, projection)
        w_hh_PG, w_hr_HP = w_hh_GP.t(), w_hr_PH.t()
        previous_BP, cell_BH = r_BP, c_BH
        for preactivations, gates, cell, m, r in by_step(counts, preactivations_NG, gates_NG, cells_NH, m_NH, r_NP):
            rows = len(preactivations)
            gates.copy_(torch.addmm(preactivations, previous_BP[:rows], w_hh_PG))
            gates[:, : 2 * cells].sigmoid_()
            gates[:, 2 * cells : 3 * cells].tanh_()
            gates[:, 3 * cells :].sigmoid_()
            i, f, g, o = gates.chunk(4, 1)
            torch.mul(f, cell_BH[:rows], out=cell).addcmul_(i, g).clamp_(-clip, clip)
            m.copy_(o * cell.tanh())
            torch.mm(m, w_hr_HP, out=r).clamp_(-clip, clip)
            previous_BP, cell_BH = r, cell
        ctx.save_for_backward(r_BP, c_BH, gates_NG, cells_NH, m_NH, r_NP, w_hh_GP, w_hr_PH)
        ctx.clip, ctx.counts = clip, counts
        ctx.mark_non_differentiable(cells_NH)
        return r_NP, cells_NH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        r_BP, c_BH, gates_NG, cells_NH, m_NH, r_NP, w_hh_GP, w_hr_PH = ctx.saved_tensors
        clip, counts = ctx.clip, ctx.counts
        previous_NP = previous_step(r_BP, r_NP, counts)
        previous_cells_NH = previous_step(c_BH, cells_NH, counts)
        grad_NG = gates_NG.new_empty(gates_NG.shape, dtype=w_hh_GP.dtype)
        grad_NP = gradients[0].clone()
        work_BG = torch.empty_like(gates_NG[: counts[0]])
        # From the following time step: gradient w.r.t. its pre-activations, and w.r.t. the cell that it reads.
        next_BG, next_cell_BH = grad_NG[:0], cells_NH[:0]
        for grad_r, r, cell, previous_cell, gates, result in reversed(
            by_step(counts, grad_NP, r_NP, cells_NH, previous_cells_NH, gates_NG, grad_NG)
        ):
            i, f, g, o = gates.chunk(4, 1)
            work = work_BG[: len(grad_r)]
            grad_r[: len(next_BG)].add_(next_BG @ w_hh_GP)
            # The gradient of a clipped value is 0.
            grad_r.mul_(r.abs() < clip)
            grad_m_BH = torch.mm(grad_r, w_hr_PH).float()
            tanh_BH = cell.tanh()
            grad_cell_BH = grad_m_BH * o * (1 - tanh_BH * tanh_BH)
            grad_cell_BH[: len(next_cell_BH)].add_(next_cell_BH)
            grad_cell_BH.mul_(cell.abs() < clip)
            di, df, dg, do = work.chunk(4, 1)
            torch.mul(grad_cell_BH, g, out=di).mul_(i).mul_(1 - i)
            torch.mul(grad_cell_BH, previous_cell, out=df).mul_(f).mul_(1 - f)
            torch.mul(grad_cell_BH, i, out=dg).mul_(1 - g * g)
            torch.mul(grad_m_BH, tanh_BH, out=do).mul_(o).mul_(1 - o)
            result.copy_(work)
            next_BG, next_cell_BH = result, grad_cell_BH.mul_(f)
        return grad_NG, grad_NG.t() @ previous_NP, grad_NP.t() @ m_NH, None, None, None, None
