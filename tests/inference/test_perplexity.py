"""`headstart try --file`: per word and per character, for several families and file formats."""

import json
import math
from pathlib import Path

import pytest
import torch

from components.core.artifacts import writing
from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.models.encoder import Encoder, build_model, save_encoder
from components.serving.likelihood import measure_file, measure_texts, pseudo_log_probs, text_log_probs
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, SPECIAL_PIECES
from components.tokenization.word import WordTokenizer

NONE = Segmentation("none")
WORDS = WordTokenizer([*SPECIAL_PIECES, "the", "old", "goat"], segmentation=NONE, lowercase=True, strip_accents=True)
CHARACTERS = CharTokenizer([*SPECIAL_PIECES, *"abcdefghijklmnopqrstuvwxyz "], segmentation=NONE)
TEXTS = ["the old goat", "the new goat sings"]
SIZES = {
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "flair": {"embedding": 6, "hidden": 8},
    "bert": {"width": 16, "layers": 2, "heads": 2, "positions": 16},
    "word2vec": {"width": 8},
}


def encoder_of(family: str) -> Encoder:
    torch.manual_seed(0)
    tokenizer = CHARACTERS if family == "flair" else WORDS
    model = build_model(family, vocabulary=tokenizer.vocab_size, settings=SIZES[family]).eval()
    model.bind(tokenizer)
    return Encoder(family, model, tokenizer)


def saved(family: str, folder: Path) -> Path:
    """The directory of an encoder of `encoder_of`."""
    WORDS.save(folder / "tokenizer")
    with writing(folder / "encoder", kind="encoder") as draft:
        save_encoder(draft.path, family=family, model=encoder_of(family).model, tokenizer=folder / "tokenizer")
        draft.facts["trained"] = True
    return folder / "encoder"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A ULMFiT encoder on disk."""
    return saved("ulmfit", tmp_path)


def test_a_causal_model_predicts_every_piece_and_end():
    encoder = encoder_of("ulmfit")
    answer = measure_texts(encoder, TEXTS)
    assert (answer.documents, answer.words, answer.characters, answer.pieces, answer.unknown) == (2, 7, 30, 9, 2)
    stream = [5, 6, 7, END, 5, 1, 7, 1, END]
    assert answer.nats == pytest.approx(-text_log_probs(encoder.model, stream).sum())
    assert answer.per_word == pytest.approx(math.exp(answer.nats / 7))
    assert answer.per_piece == pytest.approx(math.exp(answer.nats / 9))
    assert answer.bits_per_character == pytest.approx(answer.nats / 30 / math.log(2))


def test_a_masked_model_is_measured_by_the_pseudo_likelihood():
    encoder = encoder_of("bert")
    answer = measure_texts(encoder, TEXTS)
    expected = -sum(float(pseudo_log_probs(encoder.model, ids).sum()) for ids in ([5, 6, 7], [5, 1, 7, 1]))
    assert answer.nats == pytest.approx(expected)
    assert answer.pieces == 7


def test_files_of_several_formats(directory, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in [*TEXTS, " "]))
    answer = measure_file(directory, tmp_path / "a.jsonl", text="body")
    assert answer == measure_texts(encoder_of("ulmfit"), TEXTS)
    (tmp_path / "b.txt").write_text("the old goat\n")
    assert measure_file(directory, tmp_path / "b.txt").pieces == 4
    (tmp_path / "c.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"c.txt: contains no text that the vocabulary covers"):
        measure_file(directory, tmp_path / "c.txt")
    with pytest.raises(DataError, match="d.txt"):
        measure_file(directory, tmp_path / "d.txt")
