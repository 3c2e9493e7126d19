"""Long texts in chunks: states equal those of the whole text, gradients flow through the last chunks only."""

import pytest
import torch
from torch import Tensor

from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.models.layers.chunks import Chunking, Texts
from components.models.layers.lstm import LSTM, ProjectedLSTM
from components.tokenization.special import FIRST_ORDINARY
from tests.models.conftest import VOCABULARY

CARRYING = [name for name in FAMILIES if FAMILIES[name].build.carries_state]
Padded = tuple[Tensor, Tensor]


@pytest.fixture
def long_texts() -> Padded:
    """Three texts of 50, 23 and 7 pieces."""
    lengths = torch.tensor([50, 23, 7])
    tokens = torch.randint(FIRST_ORDINARY, VOCABULARY, (3, 50))
    return tokens.masked_fill(torch.arange(50) >= lengths[:, None], 0), lengths


def states(model: LanguageModel, texts: Padded) -> list[Tensor]:
    inside = (torch.arange(texts[0].shape[1]) < texts[1][:, None])[..., None]
    torch.manual_seed(4)
    return [state.detach() * inside for state in model.hidden_states(*texts)]


def whole(model: LanguageModel) -> None:
    """Give Transformer-XL a memory that holds the whole text."""
    if hasattr(model, "set_memory"):
        model.config = model.config.model_copy(update={"memory": 64})
        model.set_memory(64)


@pytest.mark.parametrize(("length", "training"), [(8, True), (23, False)])
@pytest.mark.parametrize("name", CARRYING)
def test_states_in_chunks_are_those_of_the_whole_text(build, name, length, training, long_texts):
    model = build().train(training)
    whole(model)
    if name == "transformer-xl":
        model.set_dropout(0)  # Masks are sampled per chunk.
    expected = states(model, long_texts)
    model.set_chunks(length, learned=1)
    actual = states(model, long_texts)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layer", [LSTM(3, 4), ProjectedLSTM(3, 6, 4)], ids=["lstm", "projected"])
def test_gradients_reach_the_last_chunks_of_each_row_and_do_not_cross_chunks(layer):
    torch.manual_seed(2)
    lengths = torch.tensor([11, 5, 8])
    inside = (torch.arange(11)[:, None] < lengths)[..., None]
    x = torch.randn(11, 3, 3, requires_grad=True)
    outputs, _ = layer(x, texts=Texts(lengths, Chunking(4, 2)))
    (outputs * inside).sum().backward()
    reached = x.grad.abs().sum(2).t() > 0
    # Chunks of 4: the row of 11 has three and learns in the last two; the rows of 5 and 8 learn in all.
    assert [row.nonzero().flatten().tolist() for row in reached] == [list(range(4, 11)), list(range(5)), list(range(8))]

    x.grad = None
    outputs, _ = layer(x, texts=Texts(lengths, Chunking(4, 2)))
    (outputs * inside)[4:8].sum().backward()
    reached = x.grad.abs().sum(2).t() > 0
    assert [row.nonzero().flatten().tolist() for row in reached] == [[4, 5, 6, 7], [4], [4, 5, 6, 7]]


def test_transformer_xl_attends_to_its_memory(long_texts):
    model = build_model("transformer-xl", vocabulary=VOCABULARY, settings={"memory": 8, "layers": 1}).eval()
    model.set_chunks(8, learned=1)
    tokens, lengths = long_texts
    with torch.no_grad():
        actual = model.hidden_states(tokens, lengths)[-1]
        # Reference: each chunk attends to the eight pieces before it.
        by_hand = [model._run(tokens[:, :8], ())]
        for start in range(8, 50, 8):
            memory = model._run(tokens[:, start - 8 : start], ())[0]
            by_hand.append(model._run(tokens[:, start : start + 8], (memory,)))
    torch.testing.assert_close(actual, torch.cat([outputs[-1] for outputs in by_hand], dim=1))
