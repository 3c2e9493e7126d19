"""Pooling and heads, by exact values."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.learners.task_models.heads import BlockNorm, ClassificationHead, FixedNorm, Statistics, TextHead
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.pooling import Features, ScalarMix, masked_max, masked_mean
from components.models import FAMILIES
from components.models.base import at_columns
from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

# Two texts of two pieces and one; the values at padding must have no influence.
HIDDEN = torch.tensor([[[1.0, -2.0], [3.0, -4.0]], [[-5.0, 6.0], [99.0, 99.0]]])
LENGTHS = torch.tensor([2, 1])


def last(hidden: Tensor, lengths: Tensor) -> Tensor:
    return hidden[torch.arange(len(hidden)), lengths - 1]


def at_units(hidden: Tensor, units: Tensor) -> Tensor:
    return at_columns(hidden, units[..., 0])


def features(layers: str, pooling: str = "mean", widths: tuple[int, ...] = (2, 2, 2)) -> Features:
    return Features(layers=layers, pooling=pooling, widths=widths, summary=last, unit_states=at_units)


def test_masked_pooling_leaves_padding_out():
    assert masked_mean(HIDDEN, LENGTHS).tolist() == [[2.0, -3.0], [-5.0, 6.0]]
    assert masked_max(HIDDEN, LENGTHS).tolist() == [[3.0, -2.0], [-5.0, 6.0]]


def test_lead_pooling_weights_the_beginning_more():
    hidden = torch.tensor([[[12.0], [24.0], [100.0]], [[5.0], [7.0], [9.0]]])
    # Weights 1/3 and 1/4 for two real pieces, 1/3 for one.
    expected = (12 / 3 + 24 / 4) / (1 / 3 + 1 / 4)
    pooled = features("last", "lead")([hidden] * 3, torch.tensor([2, 1]))
    assert pooled.flatten().tolist() == pytest.approx([expected, 5.0])


def test_unit_length_scales_each_layer_and_pool():
    scaled = features("all", "mean", widths=(2, 2))
    scaled.unit_length = True
    actual = scaled([HIDDEN, 10 * HIDDEN], LENGTHS)
    single, other = [2 / 13**0.5, -3 / 13**0.5], [-5 / 61**0.5, 6 / 61**0.5]
    torch.testing.assert_close(actual, torch.tensor([single * 2, other * 2]))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("first", [1.0]),
        ("last", [32.0]),
        ("second_to_last", [16.0]),
        ("sum", [2.0 + 4 + 8 + 16 + 32]),
        ("sum_last_four", [4.0 + 8 + 16 + 32]),
        ("concat_last_four", [4.0, 8.0, 16.0, 32.0]),
        ("all", [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
        ("mix", [63 / 6]),
    ],
)
def test_layer_choices(layers, expected):
    # Embedding and five layers, one number wide: 1, 2, 4, 8, 16, 32.
    hidden = [torch.full((1, 3, 1), 2.0**depth) for depth in range(6)]
    pooled = features(layers, widths=(1,) * 6)(hidden, torch.tensor([3]))
    assert pooled[0].tolist() == pytest.approx(expected)


def test_layers_of_different_widths_cannot_be_added():
    with pytest.raises(ConfigError, match=r"layers: 'sum' adds up layers, but they are 512, 256 wide; choose all"):
        features("sum", widths=(256, 512, 256))
    features("all", widths=(256, 512, 256))


@pytest.mark.parametrize("layers", ["second_to_last", "sum", "sum_last_four", "concat_last_four"])
def test_word_vectors_have_no_layers_above(layers):
    with pytest.raises(ConfigError, match=f"^layers: '{layers}' needs layers above the embedding, and there are none"):
        features(layers, widths=(4,))


def test_scalar_mix_is_elmos_formula():
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, torch.tensor(3.0).log()]))
        mix.gamma.fill_(2.0)
    # softmax(0, ln 3) = (1/4, 3/4): 2 (1/4 * 4 + 3/4 * 8) = 14.
    assert mix([torch.full((1, 1, 1), 4.0), torch.full((1, 1, 1), 8.0)]).item() == pytest.approx(14.0)


def test_fixed_norm_standardises_and_leaves_constants_finite():
    norm = FixedNorm(2)
    norm.fit(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
    assert norm(torch.tensor([[3.0, 7.0], [5.0, 8.0]])).tolist() == [[1.0, 0.0], [3.0, 1.0]]


def test_each_linear_layer_of_a_head_has_its_dropout():
    training = Training(rate=0.1, batch_size=2)
    settings = FinetuneSettings(training=training, head_hidden=5, head_dropout=[0.4, 0.1])
    head = ClassificationHead.of(settings, 3, 2)
    assert isinstance(head.hidden, nn.Sequential) and isinstance(head.hidden[-1], nn.Dropout)
    assert (head.dropout.p, head.hidden[-1].p) == (0.4, 0.1)
    both = ClassificationHead.of(settings.model_copy(update={"head_dropout": 0.3}), 3, 2)
    assert isinstance(both.hidden, nn.Sequential) and isinstance(both.hidden[-1], nn.Dropout)
    assert (both.dropout.p, both.hidden[-1].p) == (0.3, 0.3)
    with pytest.raises(
        ValidationError, match="head_dropout has 2 rates, but with head_hidden 0 the head has 1 linear layer;"
    ):
        FinetuneSettings(training=training, head_dropout=[0.4, 0.1])


# Normalisations of the head's input: exact values, blocks of features, the stored choice.


#: Blocks of widths 2 and 1; variances 1 and 7, and 4: stds 2 and 2.
ROWS = torch.tensor([[0.0, 0.0, 5.0], [2.0, 2 * 7**0.5, 9.0]])


def fitted(kind: Statistics, rows: Tensor = ROWS) -> BlockNorm:
    norm = BlockNorm(3, kind=kind)
    norm.blocks = [2, 1]
    norm.fit(rows)
    return norm


def test_a_block_has_one_std():
    norm = fitted("block")
    torch.testing.assert_close(norm.mean, torch.tensor([1.0, 7**0.5, 7.0]))
    torch.testing.assert_close(norm.deviation, torch.tensor([2.0, 2.0, 2.0]))
    torch.testing.assert_close(norm(torch.tensor([[5.0, 7**0.5, 3.0]])), torch.tensor([[2.0, 0.0, -2.0]]))
    assert fitted("block", torch.zeros(2, 3)).deviation.tolist() == [1, 1, 1]


def test_the_blocks_of_a_text_have_one_length():
    norm = fitted("length")
    # (2, 0) and (-2) become (sqrt 2, 0) and (-1); a zero vector stays zero.
    torch.testing.assert_close(norm(torch.tensor([[5.0, 7**0.5, 3.0]])), torch.tensor([[2**0.5, 0.0, -1.0]]))
    assert norm(norm.mean[None]).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "changes", "blocks"),
    [
        ("classification", {"layers": "all", "pooling": "concat"}, [32] * 9),
        ("classification", {"layers": "last", "pooling": "mean"}, [32]),
        ("classification", {"layers": "mix", "pooling": "concat"}, [32] * 3),
        ("pair", {"layers": "last", "pooling": "mean", "pairs": "apart"}, [32] * 4),
        ("tagging", {"layers": "all"}, [32] * 3),
    ],
)
def test_blocks_are_pooled_layers_and_parts_of_pairs(kind, changes, blocks):
    encoder = build_model("bert", vocabulary=20, settings=FAMILIES["bert"].tiny)
    settings = FinetuneSettings(head_norm="length", training=Training(rate=0.1, batch_size=4), **changes)
    labels = ["O", "B-a"] if kind == "tagging" else ["a", "b"]
    head = TaskModel(encoder, task=find_task(kind), settings=settings, labels=labels).head
    assert isinstance(head, TextHead) and isinstance(head.norm, BlockNorm)
    assert head.norm.blocks == blocks


def test_concat_pooling_is_last_max_mean():
    pooled = features("last", "concat")([HIDDEN] * 3, LENGTHS)
    assert pooled.tolist() == [[3.0, -4.0, 3.0, -2.0, 2.0, -3.0], [-5.0, 6.0, -5.0, 6.0, -5.0, 6.0]]


def test_a_unit_vector_concatenates_the_chosen_layers():
    hidden = [HIDDEN, 10 * HIDDEN, 100 * HIDDEN]
    units = torch.tensor([[[1, 1], [0, 0]], [[0, 0], [-1, -1]]])
    actual = features("all").of_units(hidden, units)
    assert actual.shape == (2, 2, 6)
    assert actual[0].tolist() == [[3, -4, 30, -40, 300, -400], [1, -2, 10, -20, 100, -200]]
    assert actual[1, 0].tolist() == [-5, 6, -50, 60, -500, 600]
    assert features("last").of_units(hidden, units)[0, 0].tolist() == [300, -400]
