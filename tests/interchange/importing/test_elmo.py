"""Import of ELMo's weights, against the published computation by loops over words and gates."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from components.core.errors import ArtifactError, ConfigError
from components.interchange import elmo
from components.interchange.importing import import_encoder, read_published
from components.models.elmo import ELMo
from components.models.encoder import load_encoder
from components.serving.generation import Sampling, try_model

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[np.float32]]
CELLS, WIDTH, FILTERS = 5, 3, [[1, 2], [3, 4]]
OPTIONS: dict[str, Any] = {
    "lstm": {
        "use_skip_connections": True, "projection_dim": WIDTH, "cell_clip": 0.5, "proj_clip": 0.5, "dim": CELLS,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu", "filters": FILTERS, "n_highway": 2, "embedding": {"dim": 4}, "n_characters": 262,
        "max_characters_per_token": 50,
    },
}  # fmt: skip
#: The third is cut off after 48 bytes, within a character.
WORDS = ["The", "naïve", "ab" + "é" * 24, "cat", "."]


def published(options: dict[str, Any] = OPTIONS) -> Arrays:
    """Random arrays with the names and shapes of the published files."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "char_embed": (261, 4),
        "CNN_proj/W_proj": (6, WIDTH),
        "CNN_proj/b_proj": (WIDTH,),
    }
    for index, (width, count) in enumerate(FILTERS):
        shapes |= {f"CNN/W_cnn_{index}": (1, width, 4, count), f"CNN/b_cnn_{index}": (count,)}
    for index in range(2):
        shapes |= {f"CNN_high_{index}/W_{part}": (6, 6) for part in ("carry", "transform")}
        shapes |= {f"CNN_high_{index}/b_{part}": (6,) for part in ("carry", "transform")}
    for cell in (f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell" for side in range(2) for layer in range(2)):
        shapes |= {f"{cell}/W_0": (2 * WIDTH, 4 * CELLS), f"{cell}/B": (4 * CELLS,), f"{cell}/W_P_0": (CELLS, WIDTH)}
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    # With larger vectors of words, the gates would be saturated.
    arrays["CNN_proj/W_proj"] *= 0.05
    return arrays


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def vector(arrays: Arrays, characters: list[int]) -> Array:
    """A word's vector, from the published ids of its 50 characters."""
    x = arrays["char_embed"][characters].astype(np.float64)
    features = []
    for index, (width, _) in enumerate(FILTERS):
        weight, bias = arrays[f"CNN/W_cnn_{index}"][0], arrays[f"CNN/b_cnn_{index}"]
        windows = [np.einsum("wc,wcf->f", x[at : at + width], weight) + bias for at in range(50 - width + 1)]
        features.append(np.maximum(np.max(windows, axis=0), 0))
    y = np.concatenate(features)
    for index in range(2):
        name = f"CNN_high_{index}"
        carry = sigmoid(y @ arrays[f"{name}/W_carry"] + arrays[f"{name}/b_carry"])
        changed = np.maximum(y @ arrays[f"{name}/W_transform"] + arrays[f"{name}/b_transform"], 0)
        y = carry * changed + (1 - carry) * y
    return np.asarray(y @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"])


def spelt(text: bytes) -> list[int]:
    characters = [258, *text[:48], 259]
    return characters + [260] * (50 - len(characters))


def direction(arrays: Arrays, vectors: Array, side: int, skip: bool) -> list[Array]:
    """Outputs (T, WIDTH) of the LSTMs of one direction, as TensorFlow's LSTMCell computes them."""
    layers, inputs = [], vectors
    for layer in range(2):
        name = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        r, c, outputs = np.zeros(WIDTH), np.zeros(CELLS), []
        for x in inputs:
            i, new, f, o = np.split(np.concatenate([x, r]) @ arrays[f"{name}/W_0"] + arrays[f"{name}/B"], 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(new), -0.5, 0.5)
            r = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{name}/W_P_0"], -0.5, 0.5)
            outputs.append(r + x if skip and layer else r)
        inputs = np.stack(outputs)
        layers.append(inputs)
    return layers


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published pair of files; the arrays are given without HDF5."""
    path = tmp_path / "small_weights.hdf5"
    path.write_bytes(b"")
    (tmp_path / "small_options.json").write_text(json.dumps(OPTIONS))
    monkeypatch.setattr(elmo, "read_arrays", lambda path: published())
    return path


@pytest.mark.parametrize("skip", [True, False])
def test_states_equal_the_published_computation(skip, weights, tmp_path):
    options = OPTIONS | {"lstm": OPTIONS["lstm"] | {"use_skip_connections": skip}}
    (tmp_path / "small_options.json").write_text(json.dumps(options))
    log = import_encoder(weights, output=tmp_path / "encoder")
    assert log[-1] == "not in the file, initialised with zeros: softmax/W, softmax/b"
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    model = encoder.model
    assert isinstance(model, ELMo) and encoder.tokenizer.vocab_size == 5
    (ids,) = encoder.tokenizer.encode_batch([" ".join(WORDS)])
    tokens = torch.tensor([model.special_tokens(ids.tolist())])
    arrays = published()
    # Between <S> and </S>, each one character.
    rows = [[258, mark, 259, *[260] * 47] for mark in (256, 257)]
    spellings = [rows[0], *(spelt(word.encode()) for word in WORDS), rows[1]]
    vectors = np.stack([vector(arrays, characters) for characters in spellings])
    ahead = direction(arrays, vectors, 0, skip)
    back = [layer[::-1] for layer in direction(arrays, vectors[::-1], 1, skip)]
    pairs = [(vectors, vectors), *zip(ahead, back, strict=True)]
    with torch.no_grad():
        states = model.hidden_states(tokens, torch.tensor([7]))
    for ours, pair in zip(states, pairs, strict=True):
        np.testing.assert_allclose(ours[0].numpy(), np.concatenate(pair, axis=1), atol=1e-5, rtol=1e-5)
    # Cells and outputs are clipped, and neighbours differ.
    assert (np.abs(ahead[0]) == 0.5).any()
    assert min(np.abs(np.diff(layer, axis=0)).max(axis=1).min() for layer in (*ahead, *back)) > 0.01


def test_hdf5_is_read_by_h5py(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, array in published().items():
            file[name] = array
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    (tmp_path / "damaged_weights.hdf5").write_bytes(b"x" * 100)
    expected = elmo.from_elmo(OPTIONS, published()).tensors
    actual = read_published(tmp_path / "weights.hdf5").model.state_dict()
    torch.testing.assert_close(dict(actual), expected, rtol=0, atol=0)
    with pytest.raises(ArtifactError, match="damaged_weights.hdf5: not readable as HDF5"):
        read_published(tmp_path / "damaged_weights.hdf5")


def test_a_message_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match="weights.hdf5: reading HDF5 needs the package h5py: pip install h5py"):
        elmo.read_arrays(tmp_path / "weights.hdf5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda options: options.pop("char_cnn"), r"options.json: not the options of an ELMo that reads characters"),
        (lambda options: options["char_cnn"].update(activation="tanh"), "char_cnn.activation is 'tanh', only 'relu'"),
        (lambda options: options["lstm"].update(proj_clip=3), "lstm.proj_clip is 3, only 0.5 is supported"),
        (
            lambda options: options["lstm"].update(cell_clip=None, proj_clip=None),
            r"options.json: (?s:.*)clip: Input should",
        ),
        (lambda options: options["lstm"].update(n_layers=1), r"do not fit options.json: surplus RNN_0/.*/Cell1/"),
        (lambda options: options["char_cnn"].update(n_highway=3), "missing CNN_high_2/W_carry"),
        (lambda options: options["lstm"].update(dim=4), r"LSTMCell/B is \(20,\), expected \(16,\)"),
    ],
)
def test_options_that_do_not_fit(change, message, weights, tmp_path):
    options = json.loads(json.dumps(OPTIONS))
    change(options)
    (tmp_path / "small_options.json").write_text(json.dumps(options))
    with pytest.raises(ArtifactError, match=f"small_weights.hdf5: .*{message}"):
        read_published(weights)


def test_files_that_are_missing_or_damaged(weights, tmp_path):
    with pytest.raises(ConfigError, match="not supported by the family 'flair'; known: elmo"):
        read_published(weights, family="flair")
    (tmp_path / "small_options.json").write_text("{")
    with pytest.raises(ArtifactError, match="small_options.json: not readable as JSON"):
        read_published(weights)
    (tmp_path / "small_options.json").unlink()
    message = "its options are missing; put small_options.json or options.json beside it"
    with pytest.raises(ArtifactError, match=message):
        read_published(weights)


def test_there_is_no_output_layer_until_adaptation(weights, tmp_path):
    imported = read_published(weights)
    assert not imported.learned_output
    import_encoder(weights, output=tmp_path / "encoder")
    with pytest.raises(ConfigError, match="imported without its output layer"):
        try_model(tmp_path / "encoder", "a ___ b", length=1, count=1, sampling=Sampling(), seed=0)
    imported.model.remap_vocabulary(torch.tensor([*range(5), -1, -1]))
    logits, _ = imported.model.predict(torch.tensor([[2, 3]]))
    assert torch.equal(logits, torch.zeros(1, 2, 7))
