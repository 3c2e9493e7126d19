"""Value embeddings: exact attention, states carried from call to call, padding, changes of vocabulary, training."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from components.errors import ArtifactError, ConfigError
from components.interchange.huggingface.gpt import to_huggingface
from components.models.base import LanguageModel
from components.models.gpt import GPT
from components.models.layers.attention import SelfAttention, Values
from components.models.layers.values import ValueEmbeddings, ValueModel
from components.training.groups import decayed
from tests.models.layers.tiny import families_with, tiny_model

#: Families with the key `value_embeddings`.
WITH = families_with("value_embeddings")
built = partial(tiny_model, value_embeddings=1)


def filled(model: LanguageModel) -> LanguageModel:
    """With a table that is not zero, and factors that differ."""
    assert isinstance(model, ValueModel) and model.values is not None
    generator = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.values.tables[0], generator=generator)
    torch.nn.init.normal_(model.values.scales, mean=1.0, std=0.3, generator=generator)
    return model


def test_the_families() -> None:
    assert WITH == ["albert", "bert", "electra", "gpt", "roberta"]


def test_attention_of_mixed_values() -> None:
    """One head, identity projections: two positions see each other equally where their scores are equal."""
    attention = SelfAttention(2, 1, dropout=0.0)
    with torch.no_grad():
        attention.query_key_value.weight.copy_(torch.cat([torch.zeros(4, 2), torch.eye(2)]))
        attention.query_key_value.bias.zero_()
        attention.output.weight.copy_(torch.eye(2))
        attention.output.bias.zero_()
    x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    values = Values(torch.tensor([[[10.0, 0.0], [30.0, 4.0]]]), torch.tensor([0.5, 0.25]))
    # Queries and keys are zero: the mean of 0.5 x + 0.25 u.
    expected = torch.tensor([0.5 * 2 + 0.25 * 20, 0.5 * 4 + 0.25 * 2]).expand(1, 2, 2)
    torch.testing.assert_close(attention(x, None, None, values), expected)


def test_the_first_and_the_last_blocks_share_the_tables() -> None:
    module = ValueEmbeddings(2, 3, layers=5, vocabulary=4)
    with torch.no_grad():
        for number, table in enumerate(module.tables):
            table.copy_(torch.arange(12.0).view(4, 3) + 100 * number)
        module.scales.copy_(torch.arange(8.0).view(4, 2))
    found = module(torch.tensor([[3, 0, 7]]))
    assert [values is None for values in found] == [False, False, True, False, False]
    kept = [values for values in found if values is not None]
    # The piece 7 is beyond the vocabulary.
    assert kept[0].rows.tolist() == kept[2].rows.tolist() == [[[9, 10, 11], [0, 1, 2], [0, 0, 0]]]
    assert kept[1].rows.tolist() == kept[3].rows.tolist() == [[[109, 110, 111], [100, 101, 102], [0, 0, 0]]]
    assert [values.scales.tolist() for values in kept] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_too_few_blocks() -> None:
    with pytest.raises(ConfigError, match="value_embeddings 2 needs 4 layers: .*; layers is 2"):
        built("bert", value_embeddings=2)


@pytest.mark.parametrize("family", WITH)
def test_a_model_begins_as_one_without_and_learns(family: str) -> None:
    tokens, lengths = torch.randint(5, 40, (2, 9)), torch.tensor([9, 6])
    plain = built(family, value_embeddings=0).hidden_states(tokens, lengths)
    model = built(family)
    found = model.hidden_states(tokens, lengths)
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one[0], other[0])
    assert isinstance(model, ValueModel) and model.values is not None
    assert {id(part) for part in model.values.parameters()} <= {id(part) for part in model.layer_groups()[0]}
    top = found[-1]
    (top[0, :, 0].sum() + top[1, :6, 0].sum()).backward()
    gradient = model.values.tables[0].grad
    assert gradient is not None
    touched = set(gradient.abs().sum(1).nonzero().flatten().tolist())
    assert touched == {*tokens[0].tolist(), *tokens[1, :6].tolist()}
    assert not torch.allclose(filled(model).hidden_states(tokens, lengths)[-1][0], plain[-1][0])
    assert len(decayed(model.parameters())) == 2


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


def test_values_of_earlier_calls_are_kept() -> None:
    model = filled(built("gpt"))
    tokens = torch.randint(5, 40, (2, 10))
    with torch.no_grad():
        whole, _ = model.predict(tokens)
        first, carry = model.predict(tokens[:, :4])
        second, _ = model.predict(tokens[:, 4:], carry)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", WITH)
def test_the_vocabulary_changes(family: str) -> None:
    model = filled(built(family))
    assert isinstance(model, ValueModel) and model.values is not None
    before = model.values.tables[0].detach().clone()
    tokens, lengths = torch.tensor([[5, 6, 7, 8]]), torch.tensor([4])
    states = model.hidden_states(tokens, lengths)[-1]
    rows = torch.tensor([0, 1, 2, 3, 4, 8, -1, 7, 6, 5])
    model.remap_vocabulary(rows)
    after = model.values.tables[0].detach()
    np.testing.assert_array_equal(after[[5, 7, 8, 9]], before[[8, 7, 6, 5]])
    torch.testing.assert_close(after[6], before.mean(0))
    torch.testing.assert_close(model.hidden_states(torch.tensor([[9, 8, 7, 5]]), lengths)[-1], states)


def test_tokens_of_tasks_have_no_rows() -> None:
    model = filled(built("gpt"))
    model.add_task_tokens()
    tokens = torch.tensor([model.special_tokens([5, 6])])
    assert int(tokens.max()) >= 40
    assert torch.isfinite(model.hidden_states(tokens, torch.tensor([4]))[-1]).all()


def test_gpt_is_not_exported() -> None:
    model = built("gpt", band=0)
    assert isinstance(model, GPT)
    with pytest.raises(ArtifactError, match=r"value embeddings \(model.value_embeddings\) have no counterpart"):
        to_huggingface(model)
