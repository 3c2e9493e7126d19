"""FLAIR: two directions, the backward one from the last character of each text."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from components.data.segmenters import Segmentation
from components.models.encoder import build_model
from components.models.flair import FLAIR, Direction
from components.models.layers.text_words import packed
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, SPECIAL_PIECES

VOCABULARY = 20


@pytest.fixture
def model() -> FLAIR:
    model = build_model("flair", vocabulary=VOCABULARY, settings={"embedding": 5, "hidden": 6})
    assert isinstance(model, FLAIR)
    return model.eval()


def run(direction: Direction, tokens_T: torch.Tensor) -> torch.Tensor:
    """States (T, H) of one text, with torch's own layers."""
    (layer,) = direction.lstms
    reference = nn.LSTM(5, 6)
    values = (layer.weight_ih, layer.weight_hh, layer.bias, torch.zeros_like(layer.bias))
    with torch.no_grad():
        for parameter, value in zip(reference.parameters(), values, strict=True):
            parameter.copy_(value)
    states: torch.Tensor = reference(F.embedding(tokens_T, direction.embedding).unsqueeze(1))[0][:, 0]
    return states


def test_hidden_states_of_each_direction(model):
    tokens, lengths = torch.randint(5, VOCABULARY, (2, 7)), torch.tensor([7, 4])
    lowest, top = model.hidden_states(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        text = tokens[row, :length]
        embedded = torch.cat([model.forwards.embedding[text], model.backwards.embedding[text]], dim=-1)
        torch.testing.assert_close(lowest[row, :length], embedded)
        torch.testing.assert_close(top[row, :length, :6], run(model.forwards, text))
        torch.testing.assert_close(top[row, :length, 6:], run(model.backwards, text.flip(0)).flip(0))


def test_backward_prediction_uses_the_backward_model(model):
    tokens = torch.randint(5, VOCABULARY, (2, 6))
    back = model.hidden_states(tokens, torch.tensor([6, 6]))[-1][..., 6:]
    expected = F.linear(back, model.backwards.output, model.backwards.bias)
    torch.testing.assert_close(model.predict_backward(tokens), expected)


def test_loss_is_the_sum_of_both_directions(model):
    stream, back = torch.randint(0, VOCABULARY, (3, 6)), torch.randint(0, VOCABULARY, (3, 6))
    result = model.losses(
        {
            "tokens": stream[:, :-1],
            "targets": stream[:, 1:],
            "backward_tokens": back[:, :-1],
            "backward_targets": back[:, 1:],
        }
    )
    parts = []
    for direction, text in ((model.forwards, stream), (model.backwards, back)):
        logits = torch.stack([F.linear(run(direction, row[:-1]), direction.output, direction.bias) for row in text])
        parts.append(F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()))
    torch.testing.assert_close(result.loss, parts[0] + parts[1])
    torch.testing.assert_close(result.sums["forward"][0], parts[0] * 15)
    torch.testing.assert_close(result.sums["tokens"][0], (parts[0] + parts[1]) * 15)
    assert int(result.sums["tokens"][1]) == 30
    assert [tuple(part.shape) for part in result.carry] == [(3, 6)] * 4


def test_a_word_vector_is_stacked_with_the_states_of_a_word(model):
    """[GloVe(w); forward state after the word; backward state before it]; a word outside of the table has zeros."""
    stacked = build_model(
        "flair", vocabulary=VOCABULARY, settings={"embedding": 5, "hidden": 6, "static": 3, "words": 4}
    )
    assert isinstance(stacked, FLAIR)
    table, words = torch.randn(4, 3), packed(["ab", "c", "", ""])
    stacked.load_state_dict({**model.state_dict(), "static": table, "words": words})
    pieces = [*SPECIAL_PIECES, *"ab cdefghijklmn"]
    stacked.bind(CharTokenizer(pieces, segmentation=Segmentation("none")))
    stacked.eval()
    tokens = torch.tensor([[END, *(pieces.index(character) for character in "Ab c d".lower()), END]])
    units, lengths = torch.tensor([[[1, 2], [4, 4], [6, 6]]]), torch.tensor([8])
    plain, states = model.hidden_states(tokens, lengths), stacked.hidden_states(tokens, lengths)
    expected = torch.stack([table[0], table[1], torch.zeros(3)])
    for before, layer in zip(plain, states, strict=True):
        torch.testing.assert_close(layer[..., 3:], before)
        contextual = model.unit_states(before, units)[0]
        torch.testing.assert_close(stacked.unit_states(layer, units)[0], torch.cat([expected, contextual], dim=-1))
    mean = torch.cat([(2 * table[0] + table[1]) / 6, model.summary(plain[-1], lengths)[0]])
    torch.testing.assert_close(stacked.summary(states[-1], lengths)[0], mean)
    assert stacked.static_vectors() is stacked.static and not stacked.static.requires_grad


def test_summary_is_between_the_special_pieces(model):
    hidden = torch.arange(40.0).view(1, 5, 8)
    # Forward half at the last but one position, backward half at the second.
    assert model.summary(hidden, torch.tensor([5])).tolist() == [[24, 25, 26, 27, 12, 13, 14, 15]]
