"""GloVe: the objective against the equations, and its minimum against the closed form."""

import math

import pytest
import torch

from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.models.glove import GloVe

VOCABULARY = 9


def make(**settings: object) -> GloVe:
    torch.manual_seed(0)
    return build_model("glove", vocabulary=VOCABULARY, settings=settings)


def test_the_loss_of_a_cell_is_that_of_the_paper():
    model = make(width=3)
    for table in model.parameters():
        torch.nn.init.normal_(table)
    cells = [(5, 6, 0.5), (6, 5, 30.0), (7, 7, 100.0), (8, 5, 4000.0)]
    expected = 0.0
    for i, j, count in cells:
        product = float(model.word.detach()[i] @ model.context.detach()[j])
        error = product + float((model.word_bias[i] + model.context_bias[j]).detach()) - math.log(count)
        expected += error**2
    rows, columns, counts = (torch.tensor(values).view(2, 2) for values in zip(*cells, strict=True))
    result = model.losses({"tokens": rows, "contexts": columns, "counts": counts})
    total, count = result.sums["tokens"]
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert (int(count), float(result.loss.detach())) == (4, pytest.approx(expected / 4, rel=1e-5))


def test_the_held_out_loss_does_not_depend_on_the_size_of_the_text():
    model = make(width=3)
    tokens, contexts = torch.randint(5, VOCABULARY, (2, 2, 8))
    counts = torch.rand(2, 8) * 50
    batch = {"tokens": tokens, "contexts": contexts, "counts": counts}
    smaller = batch | {"counts": counts / 100}
    training = [float(model.train().losses(given).loss.detach()) for given in (batch, smaller)]
    heldout = [float(model.eval().losses(given).loss.detach()) for given in (batch, smaller)]
    assert heldout[0] == pytest.approx(heldout[1], rel=1e-4)
    assert abs(training[0] - training[1]) > 0.5
    errors = counts.log() - (model.word[tokens] * model.context[contexts]).sum(-1)
    errors = errors - model.word_bias[tokens] - model.context_bias[contexts]
    assert heldout[0] == pytest.approx(float(errors.var(correction=0).detach()), rel=1e-4)


def test_a_word_is_the_sum_of_both_tables():
    model = make(width=3)
    (hidden,) = model.hidden_states(torch.tensor([[5, 8]]), torch.tensor([2]))
    torch.testing.assert_close(hidden[0], model.word[[5, 8]] + model.context[[5, 8]])
    torch.testing.assert_close(model.vectors(), (model.word + model.context).detach())


def test_invalid_weighting():
    with pytest.raises(ConfigError, match=r"model.x_max: Input should be greater than 0"):
        make(x_max=0)
