"""Binary word vectors: the layouts of word2vec and fastText, words outside the file, and invalid files."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.segmenters import Segmentation
from components.interchange import vectors
from components.interchange.importing import import_encoder, read_published
from components.interchange.vectors import MAGIC, read_vectors
from components.models.encoder import load_encoder
from components.models.fasttext import FastTextConfig, ngram_buckets
from components.settings.tokenizer import WordSettings
from components.tokenization.word import train_word
from components.training.pretraining.word_vectors import FILE, prepare_vectors

WORDS = ["</s>", "king", "queen", "caf\u00e9"]
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
GRAMS = np.arange(30, dtype=np.float32).reshape(10, 3) / 11


def word2vec(path: Path, *, feed: bytes = b"") -> Path:
    rows = (word.encode() + b" " + row.tobytes() + feed for word, row in zip(WORDS, VECTORS, strict=True))
    path.write_bytes(b"4 3\n" + b"".join(rows))
    return path


def fasttext(
    path: Path, *, version: int = 12, longest: int = 5, quantised: bool = False, rows: int = 14, words: int = 4
) -> Path:
    settings = struct.pack("<2i12id", MAGIC, version, 3, 5, 5, 1, 5, 1, 2, 2, 10, 3, longest, 100, 1e-4)
    labels = ["__label__a"]
    entries = b"".join(word.encode() + b"\0" + struct.pack("<qb", 9, 0) for word in [*WORDS, *labels])
    dictionary = struct.pack("<3i2q", 5, words, 1, 99, -1) + entries
    table = np.vstack([VECTORS, GRAMS]).astype("<f4").tobytes()
    path.write_bytes(settings + dictionary + bytes([quantised]) + struct.pack("<2q", rows, 3) + table + b"\0")
    return path


def composed(word: str, row: int | None) -> np.ndarray:
    buckets = ngram_buckets(word, FastTextConfig(vocabulary=1, shortest=3, longest=5, buckets=10))
    parts = [*([] if row is None else [VECTORS[row]]), *GRAMS[buckets]]
    return np.mean(parts, 0)


@pytest.mark.parametrize("feed", [b"", b"\n"])
def test_word2vec(tmp_path, feed):
    read = read_vectors(word2vec(tmp_path / "v.bin", feed=feed))
    assert read.words == WORDS
    np.testing.assert_array_equal(read.vectors, VECTORS)
    published = read_published(tmp_path / "v.bin")
    assert published.family == "word2vec"
    np.testing.assert_array_equal(published.model.vectors()[[5, 6, 7]].detach(), VECTORS[1:])


def test_fasttext_composes_all_words(tmp_path):
    read = read_vectors(fasttext(tmp_path / "v.bin"))
    assert read.words == WORDS
    expected = [VECTORS[0], *(composed(word, row) for row, word in enumerate(WORDS) if row)]
    np.testing.assert_allclose(read.take(np.arange(4)), expected, rtol=1e-6)
    np.testing.assert_allclose(read.unseen("kings"), composed("kings", None), rtol=1e-6)
    assert read.unseen("") is None
    import_encoder(tmp_path / "v.bin", output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    assert (encoder.family, encoder.tokenizer.kind) == ("fasttext", "open_word")
    (ids,) = encoder.tokenizer.encode_batch(["queen kings"])
    state = encoder.model.hidden_states(torch.tensor([ids.tolist()]), torch.tensor([2]))[0][0]
    np.testing.assert_allclose(state.detach(), [composed("queen", 2), composed("kings", None)], rtol=1e-5)


def test_rare_words_of_fasttext_are_composed_of_ngrams(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "MOST_WORDS", 2)
    published = read_published(fasttext(tmp_path / "v.bin"))
    assert published.tokenizer.vocab_size == 6
    np.testing.assert_allclose(published.model.vector("queen"), composed("queen", None), rtol=1e-5)


def test_fasttext_without_ngrams_and_as_word2vec(tmp_path):
    plain = read_published(fasttext(tmp_path / "v.bin", longest=0))
    assert plain.family == "word2vec"
    np.testing.assert_array_equal(plain.model.vectors()[5].detach(), VECTORS[1])
    static = read_published(fasttext(tmp_path / "v.bin"), family="word2vec")
    np.testing.assert_allclose(static.model.vectors()[5].detach(), composed("king", 1), rtol=1e-6)
    with pytest.raises(ConfigError, match="not supported by the family 'bert'; known: fasttext, word2vec"):
        read_published(tmp_path / "v.bin", family="bert")


def test_pieces_outside_the_file_start_from_their_ngrams(tmp_path):
    tokenizer = train_word(
        ["king kingdom"] * 3, settings=WordSettings(vocabulary=7, min_frequency=1), segmentation=Segmentation("none")
    )
    prepare_vectors(fasttext(tmp_path / "v.bin"), tokenizer, digest=None, output=tmp_path / "out")
    stored = load_file(tmp_path / "out" / FILE)
    by_piece = dict(zip(stored["pieces"].tolist(), stored["vectors"].numpy(), strict=True))
    assert [tokenizer.pieces[piece] for piece in by_piece] == ["king", "kingdom"]
    np.testing.assert_allclose(list(by_piece.values()), [composed("king", 1), composed("kingdom", None)], rtol=1e-6)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.write_bytes(b"\x00\x01\x02"), "neither a file of fastText nor of word2vec"),
        (lambda path: path.write_bytes(b"4 3\nking " + b"\0" * 7), "truncated; download it again"),
        (lambda path: path.write_bytes(b"1 1\n" + b"k" * 20_000), "word 1 of 1 does not end"),
        (lambda path: path.write_bytes(b"1 1\nking " + struct.pack("<f", np.nan)), "'king' has a number that is not"),
        (lambda path: path.write_bytes(b"0 3\n"), "has no vectors"),
        (lambda path: fasttext(path, version=9), "version 9 of fastText's format"),
        (lambda path: fasttext(path, quantised=True), r"a quantised model \(.ftz\); save the model without quantize"),
        (lambda path: fasttext(path, rows=13), "a table of 13 rows for 4 words and 10 n-grams"),
        (lambda path: path.write_bytes(fasttext(path).read_bytes()[:-30]), "truncated; download it again"),
        (lambda path: None, "does not exist"),
    ],
)
def test_invalid_files(tmp_path, prepare, message):
    prepare(tmp_path / "v.bin")
    with pytest.raises((DataError, ArtifactError), match=message):
        read_vectors(tmp_path / "v.bin")
