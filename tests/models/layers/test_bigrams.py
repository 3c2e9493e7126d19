"""Hashed bigram embeddings: buckets, states carried from window to window, packed rows, changes of vocabulary."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from components.models.base import LanguageModel
from components.models.layers.bigrams import Bigrams
from components.tokenization.special import END
from tests.models.layers.tiny import families_with, tiny_model

#: Families with the key `bigrams`.
WITH = families_with("bigrams")
built = partial(tiny_model, bigrams=97)


def filled(model: LanguageModel) -> LanguageModel:
    """With a table that is not zero."""
    bigrams = model.get_submodule("bigrams")
    torch.nn.init.normal_(bigrams.get_parameter("table"), generator=torch.Generator().manual_seed(1))
    return model


def test_a_bucket_depends_on_both_pieces_in_their_order() -> None:
    bigrams = Bigrams(10_007, 2, vocabulary=50)
    pairs = {
        (first, second): int(bigrams.buckets(torch.tensor([[first, second]]))[0, 1])
        for first in range(50)
        for second in range(50)
    }
    assert all(0 <= bucket < 10_007 for bucket in pairs.values())
    # 2,500 pairs in 10,007 buckets: 2,213 distinct buckets are expected of a random function.
    assert 2_100 < len(set(pairs.values())) < 2_350
    assert pairs[7, 9] != pairs[9, 7]
    assert int(bigrams.buckets(torch.tensor([[9]]))[0, 0]) == pairs[END, 9]
    assert int(bigrams.buckets(torch.tensor([[9]]), torch.tensor([7]))[0, 0]) == pairs[7, 9]


def test_packed_texts_begin_after_an_end() -> None:
    bigrams = Bigrams(97, 3, vocabulary=50)
    torch.nn.init.normal_(bigrams.table)
    packed = bigrams(torch.tensor([[7, 8, 9, 10]]), positions_BT=torch.tensor([[0, 1, 0, 1]]))
    assert torch.equal(packed[0, 2:], bigrams(torch.tensor([[9, 10]]))[0])


def test_the_vocabulary_changes_and_rows_keep_their_meaning() -> None:
    class Spelt:
        def __init__(self, pieces: list[str]) -> None:
            self.pieces = pieces

    bigrams = Bigrams(10_007, 2, vocabulary=8)
    bigrams.bind(Spelt(["", "", "", "", "[END]", "the", "old", "bridge"]))  # type: ignore[arg-type]
    before = bigrams.buckets(torch.tensor([[5, 6, 7]]))
    bigrams.remap(torch.tensor([0, 1, 2, 3, 4, 7, 5, -1, 6]))
    assert torch.equal(bigrams.buckets(torch.tensor([[6, 8, 5]])), before)
    bigrams.bind(Spelt(["", "", "", "", "[END]", "bridge", "the", "new", "old"]))  # type: ignore[arg-type]
    assert torch.equal(bigrams.buckets(torch.tensor([[6, 8, 5]])), before)


@pytest.mark.parametrize("family", WITH)
def test_a_model_begins_as_one_without(family: str) -> None:
    tokens, lengths = torch.randint(5, 40, (2, 9)), torch.tensor([9, 6])
    plain = built(family, bigrams=0).hidden_states(tokens, lengths)
    table = built(family)
    for one, other in zip(plain, table.hidden_states(tokens, lengths), strict=True):
        assert torch.equal(one[0], other[0])
    changed = filled(table).hidden_states(tokens, lengths)
    assert not torch.allclose(changed[0][0], plain[0][0])
    assert any(parameter is table.get_parameter("bigrams.table") for parameter in table.layer_groups()[0])


@pytest.mark.parametrize("family", WITH)
def test_states_do_not_depend_on_padding_or_other_texts(family: str) -> None:
    model = filled(built(family))
    tokens = torch.randint(5, 40, (3, 12))
    lengths = torch.tensor([12, 3, 5])
    together = model.hidden_states(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model.hidden_states(tokens[row : row + 1, :length], lengths[row : row + 1])
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[row, :length], other[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["ulmfit", "gpt"])
def test_the_piece_before_a_window_is_carried(family: str) -> None:
    model = filled(built(family))
    tokens = torch.randint(5, 40, (2, 10))
    with torch.no_grad():
        whole, _ = model.predict(tokens)
        first, carry = model.predict(tokens[:, :4])
        second, _ = model.predict(tokens[:, 4:], carry)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, atol=1e-5, rtol=1e-4)


def test_a_bigram_is_learned_at_once() -> None:
    """The pairs (7, 8) and (9, 10) alternate; the gradient of the table is zero at other buckets."""
    model = built("ulmfit")
    tokens = torch.tensor([[7, 8, 9, 10, 7, 8]])
    model.losses({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}).loss.backward()
    bigrams = model.get_submodule("bigrams")
    assert isinstance(bigrams, Bigrams) and bigrams.table.grad is not None
    touched = set(bigrams.table.grad.abs().sum(1).nonzero().flatten().tolist())
    assert touched == set(bigrams.buckets(tokens[:, :-1]).flatten().tolist())
