"""The LSTM with projection: against torch's LSTM without clipping, against the equations with clipping."""

import pytest
import torch
from torch import Tensor, nn

from components.models.layers.chunks import Texts
from components.models.layers.lstm import ProjectedLSTM

STEPS, ROWS, INPUTS, CELLS, PROJECTION = 7, 3, 5, 8, 4
#: Clips about half of the values in these tests.
CLIP = 0.2

#: torch warns that it has no fast kernel for projections.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def layer_of(clip: float) -> ProjectedLSTM:
    layer = ProjectedLSTM(INPUTS, CELLS, PROJECTION, clip=clip)
    # Biases of 0 and 1 could hide errors.
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def by_hand(layer: ProjectedLSTM, x_TBI: Tensor, r_BP: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for x_BI in x_TBI:
        i, f, g, o = (x_BI @ layer.weight_ih.T + r_BP @ layer.weight_hh.T + layer.bias).chunk(4, dim=1)
        c_BH = (f.sigmoid() * c_BH + i.sigmoid() * g.tanh()).clamp(-layer.clip, layer.clip)
        r_BP = ((o.sigmoid() * c_BH.tanh()) @ layer.weight_hr.T).clamp(-layer.clip, layer.clip)
        outputs.append(r_BP)
    return torch.stack(outputs), r_BP, c_BH


def test_without_clipping_it_equals_torch():
    layer = layer_of(float("inf"))
    reference = nn.LSTM(INPUTS, CELLS, proj_size=PROJECTION)
    weights = {"weight_ih_l0": layer.weight_ih, "weight_hh_l0": layer.weight_hh, "weight_hr_l0": layer.weight_hr}
    reference.load_state_dict(weights | {"bias_ih_l0": layer.bias, "bias_hh_l0": torch.zeros(4 * CELLS)})
    x, state = torch.randn(STEPS, ROWS, INPUTS), (torch.randn(ROWS, PROJECTION), torch.randn(ROWS, CELLS))
    direction = torch.randn(STEPS, ROWS, PROJECTION)

    output, (r, c) = layer(x, state)
    expected, (expected_r, expected_c) = reference(x, tuple(part.unsqueeze(0) for part in state))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close((r, c), (expected_r[0], expected_c[0]), atol=1e-5, rtol=1e-5)

    gradients = torch.autograd.grad(
        (output * direction).sum(), [layer.weight_ih, layer.weight_hh, layer.bias, layer.weight_hr]
    )
    wanted = [reference.weight_ih_l0, reference.weight_hh_l0, reference.bias_ih_l0, reference.weight_hr_l0]
    expected_gradients = torch.autograd.grad((expected * direction).sum(), wanted)
    torch.testing.assert_close(gradients, expected_gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("clip", [CLIP, 3.0])
def test_rows_that_end_early_equal_separate_rows(clip):
    layer, lengths = layer_of(clip), [2, STEPS, 4]
    x = torch.randn(STEPS, ROWS, INPUTS, requires_grad=True)
    inside = torch.arange(STEPS)[:, None] < torch.tensor(lengths)
    state = (torch.randn(ROWS, PROJECTION), torch.randn(ROWS, CELLS))
    direction = torch.randn(STEPS, ROWS, PROJECTION)
    inputs = [x, *layer.parameters()]

    # Padding is not computed.
    padded = x.where(inside[..., None], float("nan"))
    output, (r, c) = layer(padded, state, texts=Texts(torch.tensor(lengths)))
    alone = [by_hand(layer, x[:length], *state) for length in lengths]
    torch.testing.assert_close(
        output[inside], torch.stack([alone[row][0][step, row] for step, row in inside.nonzero().tolist()])
    )
    for row, (_, last_r, last_c) in enumerate(alone):
        torch.testing.assert_close([r[row], c[row]], [last_r[row], last_c[row]])
    gradients = torch.autograd.grad((output * direction)[inside].sum(), inputs)
    total = sum((alone[row][0][:, row] * direction[:length, row]).sum() for row, length in enumerate(lengths))
    expected = torch.autograd.grad(total, inputs)
    torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=1e-5)
