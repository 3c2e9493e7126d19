"""ELMo and FLAIR: what each direction predicts, their loss, and static vectors beside their states.

Their states and forward predictions are compared with independent computations in tests/interchange/importing.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from components.models.bidirectional import BidirectionalModel
from components.models.encoder import build_model
from components.models.layers.text_words import packed
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES
from tests.models.conftest import VOCABULARY
from tests.tokenizers import make_tokenizer

both = pytest.mark.parametrize("name", ["elmo", "flair"])


@pytest.fixture
def wild(model: BidirectionalModel) -> BidirectionalModel:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


@both
def test_each_direction_predicts_from_its_half(wild):
    tokens = torch.randint(FIRST_ORDINARY, VOCABULARY, (2, 6))
    ahead, back = wild.hidden_states(tokens, torch.tensor([6, 6]))[-1].chunk(2, -1)
    whole, carry = wild.predict(tokens)
    logits = wild.predict_backward(tokens)
    for actual, states, side in ((whole, ahead, wild.forwards), (logits, back, wild.backwards)):
        layer = wild if hasattr(wild, "output") else side
        torch.testing.assert_close(actual, F.linear(states, layer.output, layer.bias))
    first, middle = wild.predict(tokens[:, :2])
    second, last = wild.predict(tokens[:, 2:], middle)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, carry)
    # The backward model reads the later pieces only.
    torch.testing.assert_close(wild.predict_backward(tokens[:, 2:]), logits[:, 2:])


@both
def test_the_loss_is_the_sum_of_both_directions(wild):
    stream, back = torch.randint(FIRST_ORDINARY, VOCABULARY, (2, 3, 7))
    batch = {"tokens": stream[:, :-1], "targets": stream[:, 1:]}
    result = wild.losses(batch | {"backward_tokens": back[:, :-1], "backward_targets": back[:, 1:]})
    ahead, carry = wild.predict(stream[:, :-1])
    behind = wild.predict_backward(back.flip(1)[:, 1:]).flip(1)
    parts = [
        F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        for logits, text in ((ahead, stream), (behind, back))
    ]
    torch.testing.assert_close(result.loss, sum(parts))
    expected = {"tokens": (sum(parts) * 18, 36), "forward": (parts[0] * 18, 18), "backward": (parts[1] * 18, 18)}
    for key, (total, count) in result.sums.items():
        torch.testing.assert_close(total, expected[key][0])
        assert int(count) == expected[key][1]
    torch.testing.assert_close(result.carry[: len(carry)], carry)
    assert len(result.carry) == 2 * len(carry)


@both
def test_summary_is_between_the_special_pieces(model):
    hidden = torch.arange(40.0).view(1, 5, 8)
    # Forward half at the last but one position, backward half at the second.
    assert model.summary(hidden, torch.tensor([5])).tolist() == [[24, 25, 26, 27, 12, 13, 14, 15]]


def test_a_word_vector_is_stacked_with_the_states_of_a_word():
    """[GloVe(w); forward state after the word; backward state before it]; a word outside of the table has zeros."""
    sizes = {"embedding": 5, "hidden": 6}
    model = build_model("flair", vocabulary=20, settings=sizes).eval()
    stacked = build_model("flair", vocabulary=20, settings={**sizes, "static": 3, "words": 4}).eval()
    table, words = torch.randn(4, 3), packed(["ab", "c", "", ""])
    stacked.load_state_dict({**model.state_dict(), "static": table, "words": words})
    pieces = [*SPECIAL_PIECES, *"ab cdefghijklmn"]
    stacked.bind(make_tokenizer("char", pieces[FIRST_ORDINARY:]))
    tokens = torch.tensor([[END, *map(pieces.index, "ab c d"), END]])
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
