"""Encoder directories: saving and loading, and the error for each kind of inconsistency."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from components.core.errors import ArtifactError, ConfigError
from components.models import FAMILIES, family
from components.models.encoder import architecture_of, build_model, load_encoder, save_encoder
from components.models.sentence import Dense, Reading
from components.tokenization import load_tokenizer
from components.tokenization.wordpiece import WordPieceTokenizer
from tests.encoders import stored
from tests.models.conftest import VOCABULARY


@pytest.fixture
def encoder(tmp_path: Path, tokenizer_directory: Callable[..., Path]) -> Path:
    model = build_model("ulmfit", vocabulary=VOCABULARY, settings={"embedding": 8, "hidden": 12})
    return stored(tmp_path / "encoder", "ulmfit", model, tokenizer_directory("wordpiece"))


def test_how_a_sentence_encoder_reads_is_kept_with_another_vocabulary(tmp_path, tokenizer_directory):
    """As adaptation does: the encoder is loaded, gets the vocabulary of the domain, and is saved."""
    reading = Reading(pooling=("first", "last"), after=(Dense(inputs=64, outputs=5), "normalize"), prompt="a b ",
                      pool_prompt=False, max_length=20)  # fmt: skip
    settings = {**FAMILIES["bert"].tiny, "reading": reading}
    model = build_model("bert", vocabulary=VOCABULARY, settings=settings)
    directory = tokenizer_directory("wordpiece")
    tokenizer = load_tokenizer(directory)
    model.bind(tokenizer)
    expected = model.special_tokens(tokenizer.encode_batch(["dog"])[0].tolist())
    assert expected == [2, *tokenizer.encode_batch(["a b dog"])[0], 3]
    ids = torch.tensor([expected])
    vectors = model.eval().vectors_of(
        model.hidden_states(ids, torch.tensor([ids.shape[1]]))[-1], torch.tensor([ids.shape[1]])
    )
    assert vectors.shape == (1, 5) and model.max_tokens == 20
    # The same pieces in another order.
    order = [*range(5), *reversed(range(5, VOCABULARY))]
    model.remap_vocabulary(torch.tensor(order))
    turned = WordPieceTokenizer([tokenizer.pieces[index] for index in order], segmentation=tokenizer.segmentation,
                                lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents)  # fmt: skip
    model.bind(turned)
    turned.save(tmp_path / "turned")
    save_encoder(tmp_path / "encoder", family="bert", model=model, tokenizer=tmp_path / "turned")
    loaded = load_encoder(tmp_path / "encoder", part=True).model
    assert loaded.config.reading == reading and architecture_of(tmp_path / "encoder").prompt == loaded.prompt
    turned.lead = " "
    bare = architecture_of(tmp_path / "encoder")
    bare.prompt = loaded.prompt
    bare.config = bare.config.model_copy(update={"reading": None})
    bare.bind(turned)
    assert loaded.prompt and (bare.prompt, turned.lead) == ((), "")
    read = loaded.special_tokens(turned.encode_batch(["dog"])[0].tolist())
    assert read == [2, *turned.encode_batch(["a b dog"])[0], 3] != expected
    lengths = torch.tensor([len(read)])
    torch.testing.assert_close(
        loaded.vectors_of(loaded.hidden_states(torch.tensor([read]), lengths)[-1], lengths), vectors
    )


def test_tensors_that_do_not_fit_are_named(encoder):
    weights = load_file(encoder / "model.safetensors")
    weights["bias"] = weights["bias"][:-1].clone()
    weights["more"] = weights.pop("embedding")
    save_file(weights, encoder / "model.safetensors")
    with pytest.raises(ArtifactError) as caught:
        load_encoder(encoder, part=True)
    message = str(caught.value)
    assert f"bias is ({VOCABULARY - 1},), expected ({VOCABULARY},); missing embedding; surplus more" in message
    assert "model.safetensors: does not fit the model" in message


def cut_weights(encoder: Path) -> None:
    file = encoder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def other_tokenizer(encoder: Path) -> None:
    shutil.rmtree(encoder / "tokenizer")
    shutil.copytree(encoder.parent / "word-0", encoder / "tokenizer")


def edited(**values: Any) -> Callable[[Path], object]:
    def edit(encoder: Path) -> None:
        config = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps(config | values))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_weights, r"model\.safetensors: not readable as safetensors .*run the stage again"),
        (lambda encoder: (encoder / "model.safetensors").unlink(), r"model\.safetensors: does not exist"),
        (other_tokenizer, "not the tokenizer that this model was trained with"),
        (edited(family="ulmfot"), r"unknown family 'ulmfot'; did you mean 'ulmfit'\?"),
        (edited(model={"vocabulary": 24, "hiden": 3}), r"model.hiden: unknown key; did you mean 'hidden'\?"),
        (edited(model={}), r"damaged \(KeyError\('vocabulary'\)\)"),
        (edited(model={"vocabulary": 5, "embedding": 8, "hidden": 12}), "24 pieces for 5 rows"),
    ],
)
def test_damaged_directories(encoder, damage, message, tokenizer_directory):
    tokenizer_directory("word")
    damage(encoder)
    with pytest.raises(ArtifactError, match=message):
        load_encoder(encoder, part=True)


def test_a_tokenizer_of_another_size_is_not_saved(tmp_path, tokenizer_directory):
    model = build_model("flair", vocabulary=VOCABULARY, settings={"hidden": 8})
    with pytest.raises(ArtifactError, match="25 pieces, but the model has 24 rows"):
        save_encoder(tmp_path / "e", family="flair", model=model, tokenizer=tokenizer_directory("char", surplus=1))


def test_a_directory_without_an_encoder(tmp_path):
    with pytest.raises(ArtifactError, match="not a complete output"):
        load_encoder(tmp_path)
    with pytest.raises(ArtifactError, match=r"no encoder here \(config.json is missing\)"):
        load_encoder(tmp_path, part=True)


def test_all_invalid_settings_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        build_model("bert", vocabulary=10, settings={"layer": 2, "dropout": 2}, tokenizer="char")
    message = str(caught.value)
    assert "bert: 3 problem(s)" in message
    assert "tokenizer 'char' is not supported; choose wordpiece" in message
    assert "model.layer: unknown key; did you mean 'layers'?" in message
    assert "model.dropout: Input should be less than 1 (found 2)" in message


def test_unknown_names_and_sizes():
    with pytest.raises(ConfigError, match="unknown family 'brt'; did you mean 'bert'"):
        family("brt")
    with pytest.raises(ConfigError, match="width 250 is not a multiple of heads 4"):
        build_model("bert", vocabulary=10, settings={"width": 250, "heads": 4})
    with pytest.raises(ConfigError, match="bert: unknown preset '4x255'; did you mean '4x256'"):
        build_model("bert", vocabulary=10, preset="4x255")
