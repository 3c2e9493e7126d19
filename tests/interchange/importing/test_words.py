"""Import of word vectors."""

import numpy as np

from components.interchange.importing import import_encoder, read_published
from components.interchange.vectors import read_vectors, write_vectors
from components.models.encoder import load_encoder
from components.models.static import StaticVectors
from components.registry.exports.champion import export_encoder
from components.tokenization.special import SPECIAL_PIECES


def test_word_vectors_round_trip_through_an_encoder(tmp_path):
    vectors = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
    write_vectors(tmp_path / "glove.txt", ["king", "<unk>", "café", "well-known", "</s>"], vectors)
    log = import_encoder(tmp_path / "glove.txt", output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    assert isinstance(encoder.model, StaticVectors)
    assert encoder.tokenizer.pieces == [*SPECIAL_PIECES, "king", "café", "well-known"]
    table = encoder.model.vectors().numpy()
    np.testing.assert_array_equal(table[5:], vectors[[0, 2, 3]])
    np.testing.assert_array_equal(table[1], vectors[1])
    np.testing.assert_array_equal(table[3], vectors[4])
    assert not table[[0, 2, 4]].any()
    # Accents are kept, because the words have them.
    assert encoder.tokenizer.encode_batch(["KING CAFÉ queen"])[0].tolist() == [5, 6, 1]
    assert "2 of the first 3 words can occur in tokenized text; the others are never used" in log[-1]
    export_encoder(tmp_path / "encoder", output=tmp_path / "out", form="vectors")
    read = read_vectors(tmp_path / "out" / "vectors.txt")
    assert read.words == ["king", "café", "well-known"]
    np.testing.assert_array_equal(read.vectors, table[5:])


def test_thai_text_is_segmented_before_the_look_up(tmp_path):
    write_vectors(tmp_path / "thai.vec", ["ภาษา", "ไทย"], np.ones((2, 2), dtype=np.float32))
    tokenizer = read_published(tmp_path / "thai.vec").tokenizer
    assert tokenizer.segmentation.name == "auto"
    assert 1 not in tokenizer.encode_batch(["ภาษา ไทย"])[0].tolist()
