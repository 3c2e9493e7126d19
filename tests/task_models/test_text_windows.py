"""Windows of long texts: splitting, pooling, and gradients."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError
from components.learners.task_models.predictor import Predictor
from components.learners.task_models.inputs import WindowPooling, states_of_windows, window_size, windows
from components.learners.task_models.kinds import classification
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import collate
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings
from components.tokenization.special import END, START

LONG = "the apple is red here and there a pear a plum very old iron zinc gold"
TEXTS = [(LONG,), ("red apple",), (f"{LONG} {LONG}",)]
#: Families of each kind, and their special pieces.
FRAMES = {"bert": 2, "gpt": 1, "xlnet": 2}
POOLINGS = ("concat", "mean", "max", "lead", "summary")

Make = Callable[..., Path]


@pytest.fixture
def encoder(make_encoder: Make, request: pytest.FixtureRequest) -> Encoder:
    return load_encoder(make_encoder(request.param))


def model_of(encoder: Encoder, settings: FinetuneSettings) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(encoder.model, task=classification.TASK, settings=settings, labels=["a", "b", "c"]).eval()


def test_a_text_is_split_into_windows_with_special_pieces(make_encoder):
    model = load_encoder(make_encoder("bert")).model
    actual = windows([7, 8, 9, 10, 11, 12, 13], size=5, encoder=model)
    assert [window.tolist() for window in actual] == [
        [START, 7, 8, 9, END],
        [START, 10, 11, 12, END],
        [START, 13, END],
    ]


def test_windows_are_no_longer_than_the_positions_and_recurrent_families_have_none(make_encoder, settings):
    bert = load_encoder(make_encoder("bert")).model
    assert window_size(settings.model_copy(update={"max_length": 24}), bert) is None
    assert window_size(settings.model_copy(update={"max_length": 25}), bert) == 24, "without chunk"
    assert window_size(settings.model_copy(update={"max_length": 25, "layers": "mix"}), bert) is None
    chunked = settings.model_copy(update={"chunk": 70})
    assert window_size(chunked, bert) == 24
    assert window_size(chunked, load_encoder(make_encoder("xlnet")).model) == 70
    for family in ("ulmfit", "flair", "elmo", "cove", "transformer-xl", "word2vec"):
        assert window_size(chunked, load_encoder(make_encoder(family)).model) is None


@pytest.mark.parametrize("encoder", sorted(FRAMES), indirect=True)
def test_the_whole_text_is_read_up_to_the_limit(encoder, settings):
    frame = FRAMES[encoder.family]
    chunked = settings.model_copy(update={"chunk": 8, "max_length": 1000})
    encoded = classification.encode(TEXTS, encoder.tokenizer, encoder.model, chunked)
    pieces = [len(encoder.tokenizer.encode_batch([text])[0]) for (text,) in TEXTS]
    assert [sum(len(window) - frame for window in row.pieces) for row in encoded] == pieces
    assert [len(row.pieces) for row in encoded] == [-(-count // (8 - frame)) for count in pieces]
    limited = classification.encode(
        TEXTS, encoder.tokenizer, encoder.model, chunked.model_copy(update={"max_length": 12})
    )
    assert [sum(len(window) - frame for window in row.pieces) for row in limited] == [
        min(count, 12 - frame) for count in pieces
    ]


@pytest.mark.parametrize(
    ("encoder", "pooling"),
    [*(("bert", pooling) for pooling in POOLINGS), ("gpt", "summary"), ("xlnet", "concat"), ("ulmfit", "max")],
    indirect=["encoder"],
)
def test_one_chunk_that_holds_the_text_is_the_whole_computation(encoder, settings, pooling):
    settings = settings.model_copy(update={"pooling": pooling, "max_length": 24})
    chunked = settings.model_copy(update={"chunk": 24})
    actual = []
    for chosen in (settings, chunked):
        model = model_of(encoder, chosen)
        encoded = classification.encode(TEXTS[:2], encoder.tokenizer, encoder.model, chosen)
        losses = model.losses(collate(encoded, [np.asarray([1.0]), np.asarray([2.0])]))
        model.zero_grad()
        losses.loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        actual.append(gradients | {"loss": losses.loss.detach()})
    assert actual[0].keys() == actual[1].keys()
    for name, value in actual[0].items():
        torch.testing.assert_close(value, actual[1][name], msg=name)


def test_windows_are_pooled_like_their_pieces(settings):
    # Two layers of width 1: [summary, max, mean] each; windows of rows 0, 0, 1.
    features = torch.tensor([[1.0, 2, 3, 4, 5, 6], [3.0, 0, 5, 8, -5, 0], [7.0, 7, 7, 7, 7, 7]])
    rows = torch.tensor([0, 0, 1])
    expected = {
        "concat": [[2.0, 2, 4, 6, 5, 3], [7.0] * 6],
        "mean": [[2.0, 1, 4, 6, 0, 3], [7.0] * 6],
        "summary": [[2.0, 1, 4, 6, 0, 3], [7.0] * 6],
        "lead": [[2.0, 1, 4, 6, 0, 3], [7.0] * 6],
        "max": [[3.0, 2, 5, 8, 5, 6], [7.0] * 6],
    }
    for pooling, vectors in expected.items():
        pool = WindowPooling(settings.model_copy(update={"pooling": pooling}), width=1)
        assert pool(features, rows).tolist() == vectors
    # A last window of 3 pieces has the weight of 3 of 256 + 3.
    pool = WindowPooling(settings.model_copy(update={"pooling": "mean"}), width=1)
    actual = pool(features, rows, torch.tensor([256, 3, 9]))
    torch.testing.assert_close(actual, torch.stack([(256 * features[0] + 3 * features[1]) / 259, features[2]]))
    assert torch.equal(actual[1], features[2]), "one window: exactly its vector"
    # Negative maxima are not replaced by 0.
    assert (
        WindowPooling(settings.model_copy(update={"pooling": "max"}), width=1)(-features, rows)[1].tolist() == [-7] * 6
    )


@pytest.mark.parametrize("encoder", ["bert"], indirect=True)
def test_a_text_is_the_mean_of_its_pieces_in_training_and_in_prediction(encoder, settings):
    chunked = settings.model_copy(update={"pooling": "mean", "layers": "last", "chunk": 8, "max_length": 1000})
    model = model_of(encoder, chunked)
    encoded = classification.encode([(LONG,)], encoder.tokenizer, encoder.model, chunked)
    sizes = [len(window) for window in encoded[0].pieces]
    assert len(set(sizes)) > 1, "the last window is shorter"
    with torch.no_grad():
        states = [
            encoder.model.hidden_states(torch.from_numpy(window)[None], torch.tensor([len(window)]))[-1][0]
            for window in encoded[0].pieces
        ]
        expected = torch.cat(states).mean(0)
        torch.testing.assert_close(model.vectors(collate(encoded))[0], expected, atol=1e-5, rtol=1e-4)
    (vector,) = Predictor(model).table(encoded).matrix()
    torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match="layers: mix reads a text as one sequence"):
        model_of(encoder, chunked.model_copy(update={"layers": "mix"}))


@pytest.mark.parametrize("encoder", sorted(FRAMES), indirect=True)
def test_gradients_go_through_the_last_windows_of_each_row(encoder, settings):
    chunked = settings.model_copy(update={"chunk": 8, "max_length": 1000, "chunks_learned": 2})
    batch = collate(classification.encode(TEXTS, encoder.tokenizer, encoder.model, chunked))
    rows = batch["rows"].tolist()
    assert len(rows) > 8
    model = encoder.model
    learns = [index for index in range(len(rows)) if rows[index + 1 : index + 3] != [rows[index]] * 2]
    plain = model.hidden_states(batch["tokens"], batch["lengths"])
    # Values at padding are arbitrary.
    inside = torch.arange(batch["tokens"].shape[1]) < batch["lengths"][:, None]
    weights = [torch.randn_like(layer) * inside.unsqueeze(-1) for layer in plain]

    def gradient(states, indices):
        model.zero_grad()
        sum((layer * weight)[indices].sum() for layer, weight in zip(states, weights, strict=True)).backward()
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]

    expected = gradient(plain, learns)
    states = states_of_windows(model, batch, learned=2)
    for layer, other in zip(plain, states, strict=True):
        torch.testing.assert_close(layer[inside], other[inside])
    for left, right in zip(expected, gradient(states, list(range(len(rows)))), strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)
