"""Import of flair's character models."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import import_encoder, read_published
from components.models.encoder import load_encoder
from components.serving.generation import fill_between

ITEMS = ["<unk>", "a", "b", "\n", "ab", " "]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "news"
    path.mkdir()
    for name in ("forward", "backward"):
        rnn = torch.nn.LSTM(4, 6, num_layers=2)
        state = {f"rnn.{key}": value.detach() for key, value in rnn.state_dict().items()}
        state |= {
            "encoder.weight": torch.randn(6, 4),
            "decoder.weight": torch.randn(6, 6),
            "decoder.bias": torch.randn(6),
        }
        save_file(state, path / f"{name}.safetensors")
    (path / "characters.json").write_text(json.dumps(ITEMS))
    return path


def test_states_and_predictions_are_those_of_the_files(folder, tmp_path):
    import_encoder(folder, output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    model = encoder.model
    assert encoder.tokenizer.pieces[5:] == ["a", "b", " "]
    (ids,) = encoder.tokenizer.encode_batch(["ab cb"])
    theirs = [ITEMS.index(character) for character in ("a", "b", " ", "<unk>", "b")]
    expected = []
    for name, order in (("forward", theirs), ("backward", theirs[::-1])):
        state = load_file(folder / f"{name}.safetensors")
        rnn = torch.nn.LSTM(4, 6, num_layers=2)
        rnn.load_state_dict({key.removeprefix("rnn."): value for key, value in state.items() if key.startswith("rnn.")})
        outputs, _ = rnn(state["encoder.weight"][order][:, None])
        expected.append((outputs[:, 0], state))
    tokens, lengths = torch.tensor([ids.tolist()]), torch.tensor([len(ids)])
    with torch.no_grad():
        actual = model.hidden_states(tokens, lengths)[-1][0]
        (ahead, state), (back, _) = expected
        torch.testing.assert_close(actual, torch.cat([ahead, back.flip(0)], -1))
        logits = ahead @ state["decoder.weight"].t() + state["decoder.bias"]
        chosen = [ITEMS.index(item) for item in ("<unk>", "\n", "a", "b", " ")]
        ours = model.predict(tokens)[0][0]
        torch.testing.assert_close(ours[:, [1, 3, 5, 6, 7]], logits[:, chosen])
        # Pieces without a counterpart have no probability.
        assert (ours.softmax(-1)[:, [0, 2, 4]] < 1e-15).all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "backward.safetensors").unlink(), "backward.safetensors"),
        (lambda path: (path / "forward.safetensors").write_bytes(b"x"), "not readable as safetensors"),
        (lambda path: save_file({"a": torch.zeros(1)}, path / "forward.safetensors"), "not a language model of flair"),
        (lambda path: (path / "characters.json").write_text("[1]"), "expected a list of characters"),
        (lambda path: (path / "characters.json").write_text("{"), "characters.json: not readable as JSON"),
        (lambda path: (path / "characters.json").write_text('["a", "a"]'), "an item occurs twice"),
        (
            lambda path: (path / "characters.json").write_text(json.dumps(ITEMS[:5])),
            r"do not fit characters.json, or are another model's: .*encoder.weight is \(6, 4\), expected \(5, 4\)",
        ),
    ],
)
def test_damaged_folders(folder, damage, message):
    damage(folder)
    with pytest.raises(ArtifactError, match=message):
        read_published(folder)


def test_directions_of_different_sizes_and_another_family(folder):
    with pytest.raises(ConfigError, match="not supported by the family 'elmo'; known: flair"):
        read_published(folder, family="elmo")
    state = load_file(folder / "forward.safetensors")
    save_file({key: value for key, value in state.items() if not key.endswith("_l1")}, folder / "forward.safetensors")
    with pytest.raises(ArtifactError, match="the sizes of the two directions differ"):
        read_published(folder)


def test_a_gap_is_filled_without_frequencies(folder):
    published = read_published(folder)
    candidates = fill_between(published.model, published.tokenizer, "a ___ b", count=9)
    assert sorted(piece for piece, _ in candidates) == [" ", "a", "b"]
    assert sum(probability for _, probability in candidates) == pytest.approx(1)
