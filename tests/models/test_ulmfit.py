"""The AWD-LSTM: its loss against the equations, causality, dropout and penalties."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.models.layers.dropout import keep_mask
from components.models.ulmfit import AWDLSTM
from components.tokenization.special import END

VOCABULARY = 30


def small(**settings: Any) -> AWDLSTM:
    return build_model("ulmfit", vocabulary=VOCABULARY, settings={"embedding": 6, "hidden": 8, "layers": 3} | settings)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    stream = torch.randint(0, VOCABULARY, (4, 11))
    return {"tokens": stream[:, :-1], "targets": stream[:, 1:]}


def by_hand(model: AWDLSTM, batch: dict[str, Tensor]) -> Tensor:
    """The loss by the papers' equations, step by step. Masks are sampled in the order of the model, with the shapes of
    the papers: one value per word of the vocabulary, per row (for all its steps), and per hidden-to-hidden weight (for
    the whole window)."""
    config = model.config
    rows, steps = batch["tokens"].shape

    def mask(shape: tuple[int, ...], rate: float) -> Tensor:
        return keep_mask(shape, rate, torch.ones(())) if rate else torch.ones(shape)

    words_V1 = mask((config.vocabulary, 1), config.dropout_embedding)
    into_BD = mask((rows, config.embedding), config.dropout_input)
    x = [(model.embedding * words_V1)[batch["tokens"][:, t]] * into_BD for t in range(steps)]
    for index, lstm in enumerate(model.lstms):
        recurrent = lstm.weight_hh * mask(tuple(lstm.weight_hh.shape), config.dropout_weight)
        h = c = torch.zeros(rows, lstm.hidden)
        outputs = []
        for t in range(steps):
            i, f, g, o = (x[t] @ lstm.weight_ih.T + h @ recurrent.T + lstm.bias).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        top = index + 1 == len(model.lstms)
        between_BH = torch.ones(1) if top else mask((rows, lstm.hidden), config.dropout_hidden)
        x = [h * between_BH for h in outputs]
    out_BD = mask((rows, config.embedding), config.dropout_output)
    nats = torch.zeros(())
    for t in range(steps):
        log_probabilities = ((x[t] * out_BD) @ model.embedding.T + model.bias).log_softmax(dim=1)
        nats = nats - log_probabilities.gather(1, batch["targets"][:, t : t + 1]).sum()
    loss = nats / (rows * steps)
    # AR on the input of the softmax, TAR on the output before dropout (Merity et al. 2017b, equations 2 and 3).
    loss = loss + config.activation * torch.stack([h * out_BD for h in x]).square().mean()
    return loss + config.slowness * torch.stack([x[t + 1] - x[t] for t in range(steps - 1)]).square().mean()


DROPOUTS = ["embedding", "input", "weight", "hidden", "output"]


@pytest.mark.parametrize("dropouts", [[], *([name] for name in DROPOUTS), DROPOUTS], ids="-".join)
def test_loss_and_gradients_are_those_of_the_equations(dropouts, batch):
    model = small(activation=2.0, slowness=3.0, **{f"dropout_{name}": 0.5 for name in dropouts}).train()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    without = small(activation=2.0, slowness=3.0).train()
    without.load_state_dict(model.state_dict())
    torch.manual_seed(5)
    loss = model.losses(batch).loss
    torch.manual_seed(5)
    expected = by_hand(model, batch)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, list(model.parameters())), atol=1e-5, rtol=1e-5)
    assert (abs(loss.item() - without.losses(batch).loss.item()) > 1e-3) == bool(dropouts)


def test_a_backward_model_is_a_forward_model_of_the_reversed_text():
    forward, backward = small().eval(), small(direction="backward").eval()
    backward.load_state_dict(forward.state_dict())
    tokens, lengths = torch.randint(5, VOCABULARY, (2, 7)), torch.tensor([7, 4])
    states = backward.hidden_states(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        turned = forward.hidden_states(tokens[row : row + 1, :length].flip(1), torch.tensor([length]))
        torch.testing.assert_close([layer[row, :length] for layer in states], [layer[0].flip(0) for layer in turned])
        torch.testing.assert_close(backward.summary(states[-1], lengths)[row], turned[-1][0, -1])
    assert (forward.special_tokens([7, 8]), backward.special_tokens([7, 8])) == ([END, 7, 8], [7, 8, END])


def test_a_backward_model_does_not_predict():
    with pytest.raises(ConfigError, match="direction: a backward model predicts the piece before a text; use the forw"):
        small(direction="backward").predict(torch.tensor([[7]]))


def test_activation_regularisation_of_texts_is_of_fastai_and_leaves_padding_out():
    model = small(activation=2.0, slowness=3.0, dropout_output=0.5).train()
    lengths = torch.tensor([4, 2, 1])
    torch.manual_seed(3)
    states = torch.randn(3, 5, 6)
    real = [states[row, :length] for row, length in enumerate(lengths.tolist())]
    # RNNRegularizer of fastai: alpha * out.pow(2).mean() + beta * (raw[:, 1:] - raw[:, :-1]).pow(2).mean().
    changes = torch.cat([text[1:] - text[:-1] for text in real])
    expected = 2.0 * torch.cat(real).square().mean() + 3.0 * changes.square().mean()
    torch.testing.assert_close(model.activation_penalty([states], lengths), expected)
    alone = model.activation_penalty([states[2:]], lengths[2:])
    torch.testing.assert_close(alone, 2.0 * states[2, :1].square().mean())
    # The last layer's states of a text have no dropout of the output: it belongs to the softmax.
    tokens = torch.randint(5, VOCABULARY, (3, 5))
    torch.testing.assert_close(
        model.hidden_states(tokens, lengths)[-1], model.eval().hidden_states(tokens, lengths)[-1]
    )


def test_summary_is_the_last_real_state():
    hidden = torch.arange(24.0).view(2, 4, 3)
    assert small().summary(hidden, torch.tensor([4, 2])).tolist() == [[9, 10, 11], [15, 16, 17]]
