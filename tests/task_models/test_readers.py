"""biLSTM and convolutions between states and head: exact values, and independence of padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from components.errors import ConfigError
from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.task_models.base import Encoded
from components.task_models.biattentive import Biattention, Maxout
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.task_models.readers import BiLSTMReader, ConvolutionReader, ReadingHead
from components.task_models.sampler import collate
from components.tasks.examples import read_split


@pytest.fixture
def load_rows(make_encoder, make_task):
    """load_rows(family, kind) -> an encoder, and the fields and targets of four rows."""

    def load(family: str, kind: str):
        split = read_split(make_task(kind), "train").take(range(4))
        return load_encoder(make_encoder(family)), split.fields, split.targets

    return load


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


def rows_of(*lengths: int, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Random states, 0 at padding, and their lengths."""
    states = torch.randn(len(lengths), max(lengths), width)
    return states * (torch.arange(max(lengths))[None, :, None] < torch.tensor(lengths)[:, None, None]), torch.tensor(
        lengths
    )


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_biattention_by_its_definition(pairs: bool, symmetric: bool) -> None:
    torch.manual_seed(0)
    network = Biattention(4, 3, dropout=0.0, pairs=pairs, symmetric=symmetric).eval()
    states, lengths = rows_of(5, 3, 2, 4)
    pooled = []
    for first in range(0, 4, 2) if pairs else range(4):
        texts = [first, first + 1] if pairs else [first, first]
        encoded = [
            network.lstm(network.feed(states[text : text + 1, : lengths[text]]).relu(), lengths[text : text + 1])[0]
            for text in texts
        ]
        sides = []
        for side in (0, 1):
            own, other = encoded[side], encoded[1 - side]
            summary = (own @ other.T).softmax(-1) @ other
            integrator = network.integrators[0 if symmetric else side]
            inputs = torch.cat([own, own - summary, own * summary], -1)[None]
            found = integrator.lstm(inputs, torch.tensor([len(own)]))[0]
            attended = integrator.scores(found).softmax(0).T @ found
            sides.append(torch.cat([found.amax(0), found.mean(0), found.amin(0), attended[0]]))
        pooled += (sides if pairs else sides[:1]) if symmetric else [torch.cat(sides)]
    vectors = torch.stack(pooled)
    for norm, _, maxout in network.layers:
        normed = norm(vectors)
        functions = normed @ maxout.weight.T + maxout.bias
        vectors = torch.stack([functions[:, unit : unit + 4].amax(1) for unit in range(0, functions.shape[1], 4)], 1)
    torch.testing.assert_close(network(states, lengths), network.norm(vectors), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["classification", "pair", "similarity", "choice", "multilabel"])
@pytest.mark.parametrize("family", ["cove", "bert"])
def test_the_biattentive_network_of_every_kind(family: str, kind: str, load_rows) -> None:
    encoder, fields, targets = load_rows(family, kind)
    task = find_task(kind)
    chosen = settings(reader="biattentive")
    model = TaskModel(encoder.model, task=task, settings=chosen, labels=["fruit", "metal", "animal", "even", "odd"])
    assert isinstance(model.head, ReadingHead) and isinstance(model.head.head.output, Maxout)
    assert isinstance(model.head.reader, Biattention)
    assert model.head.reader.pairs == (kind in ("pair", "similarity"))
    encoded = task.encode_rows(fields, encoder.tokenizer, encoder.model, chosen)
    assert all(len(row.pieces) == 2 for row in encoded) == (kind in ("pair", "similarity"))
    model.head.prepare(targets)
    model.train()
    model.losses(collate(encoded, targets)).loss.backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())
    assert encoder.model.layer_groups()[0][0].grad is not None
    model.eval()
    with torch.inference_mode():
        together = model.head.answers(model(collate(encoded)), collate(encoded))
        alone = [model.head.answers(model(collate([row])), collate([row]))[0] for row in encoded]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        if kind == "similarity":
            turned = task.encode_rows([(b, a) for a, b in fields], encoder.tokenizer, encoder.model, chosen)
            torch.testing.assert_close(model(collate(turned)), model(collate(encoded)), atol=1e-5, rtol=1e-4)


def test_the_biattentive_network_overfits_a_pair_task_that_needs_both_texts(load_rows) -> None:
    """Whether both texts name the same thing: no vector of one text decides it."""
    encoder, _, _ = load_rows("cove", "pair")
    words = ["apple", "iron", "horse", "gold"]
    fields = [(f"the {one}", f"a {other}") for one in words for other in words]
    targets = [np.asarray([float(one.split()[1] == other.split()[1])]) for one, other in fields]
    task = find_task("pair")
    chosen = settings(reader="biattentive", head_dropout=0.0, head_norm="none")
    torch.manual_seed(0)
    model = TaskModel(encoder.model, task=task, settings=chosen, labels=["no", "yes"])
    batch = collate(task.encode_rows(fields, encoder.tokenizer, encoder.model, chosen), targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(40):
        optimizer.zero_grad()
        loss = model.losses(batch).loss
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
