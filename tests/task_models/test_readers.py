"""biLSTM and convolutions between states and head: exact values, and independence of padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from components.errors import ConfigError
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.task_models.base import Encoded
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.task_models.readers import BiLSTMReader, ConvolutionReader
from components.task_models.sampler import collate


def settings(**changes: object) -> FinetuneSettings:
    return FinetuneSettings(
        reader_hidden=5, layers="last", training=Training(rate=0.1, batch_size=2), **{"reader": "cnn", **changes}
    )


def test_convolutions_of_a_short_and_a_long_text() -> None:
    """One filter of width 2 with the weights 1 and 2: the windows of (3, -1) are (0, 3), (3, -1) and (-1, 0)."""
    reader = ConvolutionReader(1, 1, widths=[2])
    with torch.no_grad():
        reader.filters[0].weight.copy_(torch.tensor([[1.0, 2.0]]))
        reader.filters[0].bias.zero_()
    states = torch.tensor([[[3.0], [-1.0], [0.0]], [[-4.0], [0.0], [0.0]]])
    # 0 + 2 * 3 = 6; all windows of the second text are negative.
    assert reader(states, torch.tensor([2, 1])).flatten().tolist() == [6, 0]


def test_convolutions_equal_conv1d() -> None:
    reader = ConvolutionReader(4, 3, widths=[3, 5])
    states = torch.randn(2, 7, 4)
    expected = []
    for width, layer in zip((3, 5), reader.filters, strict=True):
        convolution = nn.Conv1d(4, 3, width, padding=width - 1)
        with torch.no_grad():
            convolution.weight.copy_(layer.weight.view(3, width, 4).transpose(1, 2))
            convolution.bias.copy_(layer.bias)
        expected.append(convolution(states.transpose(1, 2)).relu().amax(2))
    torch.testing.assert_close(reader(states, torch.tensor([7, 7])), torch.cat(expected, dim=1))


@pytest.mark.parametrize(
    "reader", [ConvolutionReader(4, 3, widths=[2, 3]), BiLSTMReader(4, 3, pooling="concat", dropout=0)]
)
def test_padding_does_not_change_a_vector(reader: nn.Module) -> None:
    states = torch.randn(3, 6, 4)
    lengths = torch.tensor([6, 2, 1])
    padded = states.masked_fill(torch.arange(6)[None, :, None] >= lengths[:, None, None], 0)
    together = reader(padded, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = reader(states[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(alone[0], together[row], atol=1e-6, rtol=1e-5)


def test_the_summary_of_a_bilstm_is_the_end_of_each_direction() -> None:
    reader = BiLSTMReader(2, 3, pooling="summary", dropout=0)
    states = torch.randn(1, 4, 2)
    outputs = reader.lstm(states, torch.tensor([4]))
    assert torch.equal(reader(states, torch.tensor([4]))[0], torch.cat([outputs[0, -1, :3], outputs[0, 0, 3:]]))


def test_gradients_reach_the_word_vectors() -> None:
    encoder = build_model("word2vec", vocabulary=9, settings=FAMILIES["word2vec"].tiny)
    model = TaskModel(encoder, task=find_task("classification"), settings=settings(), labels=["a", "b"])
    rows = [Encoded.of_texts([[5, 6, 7]]).with_units(), Encoded.of_texts([[8]]).with_units()]
    batch = collate(rows, [np.asarray([0.0]), np.asarray([1.0])])
    model.losses(batch).loss.backward()
    assert encoder.input.grad is not None
    assert encoder.input.grad.any(1).tolist() == [False] * 5 + [True] * 4


def test_windows_of_long_texts_are_refused() -> None:
    encoder = build_model("bert", vocabulary=9, settings=FAMILIES["bert"].tiny)
    with pytest.raises(ConfigError, match="reader: cnn reads a text as one sequence.*remove chunk"):
        TaskModel(encoder, task=find_task("classification"), settings=settings(chunk=8), labels=["a", "b"])
