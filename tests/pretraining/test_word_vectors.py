"""Embedding tables that start from a file of word vectors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from components.core.artifacts import digest_files, read_manifest
from components.core.errors import ArtifactError, ConfigError
from components.interchange.vectors import WordVectors, write_vectors
from components.models.encoder import load_encoder
from components.tokenization import Tokenizer, load_tokenizer
from components.tokenization.special import FIRST_ORDINARY
from components.training.pretraining.pretrain import pretrain
from components.training.pretraining.word_vectors import match, prepare_vectors, start_from_vectors
from tests.tokenizers import make_tokenizer
from tests.training.helpers import (
    lm_settings,
    metrics_of,
    pretrain_job,
    tokenizer_of,
)

PIECES = ["Cat", "dog", "##ing", "sun", "##s"]


def tokenizer(**options: object) -> Tokenizer:
    return make_tokenizer("wordpiece", PIECES, lowercase=False, **options)


def test_pieces_are_matched_with_words_and_counted():
    """ "##ing" is not the word "ing", but "##s" is in the file as a piece; "Cat" is there in lower case only."""
    counts = np.asarray([0, 9, 0, 5, 0, 4, 3, 2, 1, 0])
    read = WordVectors(["ing", "cat", "dog", "##s", "<unk>"], np.eye(5, dtype=np.float32))
    actual = match(tokenizer(frequencies=counts), read)
    assert actual.rows.tolist() == [-1, 4, -1, -1, -1, 1, 2, -1, -1, 3]
    assert actual.numbers() == {"vectors_pieces": 0.6, "vectors_occurrences": 0.7}


@pytest.mark.parametrize("keep_scale", [True, False])
def test_vectors_are_copied_to_the_rows_of_their_pieces(tmp_path, keep_scale):
    """Narrower vectors fill the first columns; the scale of the table is kept or that of the vectors."""
    write_vectors(tmp_path / "v.vec", ["dog", "sun"], np.asarray([[1, -1], [3, 1]], dtype=np.float32))
    prepare_vectors(tmp_path / "v.vec", tokenizer(), digest=None, output=tmp_path / "ready")
    table = nn.Parameter(torch.randn(10, 3))
    before = table.detach().clone()
    present = start_from_vectors(table, tmp_path / "ready", keep_scale=keep_scale)
    assert present.nonzero()[0].tolist() == [6, 8]
    factor = 1.0 if keep_scale else float(before.std() / torch.tensor([1.0, -1, 3, 1]).std())
    torch.testing.assert_close(table[[6, 8], :2], factor * torch.tensor([[1.0, -1.0], [3.0, 1.0]]))
    assert torch.equal(table[:, 2], before[:, 2]) and torch.equal(table[~torch.from_numpy(present)], before[~present])


def vocabulary(inputs: Path, family: str) -> Tokenizer:
    return load_tokenizer(inputs / "tokenizer" / f"general-{tokenizer_of(family)}")


def vectors_file(inputs: Path, folder: Path, *, width: int, family: str = "bert") -> Path:
    """Vectors of half of the pieces of the inputs."""
    pieces = [piece for piece in vocabulary(inputs, family).pieces[FIRST_ORDINARY::2] if not piece.isspace()]
    values = np.random.default_rng(0).normal(size=(len(pieces), width)).astype(np.float32)
    folder.mkdir(exist_ok=True)
    write_vectors(folder / "vectors.vec", pieces, values)
    return folder / "vectors.vec"


@pytest.mark.parametrize("family", ["bert", "word2vec"])
def test_a_model_starts_from_vectors_and_reports_their_coverage(inputs, tmp_path, family):
    file = vectors_file(inputs, tmp_path, width=40, family=family)
    job = pretrain_job(inputs, family, tmp_path / "run", training=lm_settings(tokens=32, rate=1e-9))
    job = job.model_copy(update={"vectors": file, "vectors_digest": digest_files([file])})
    output = pretrain(job)
    numbers = metrics_of(output)
    assert numbers["vectors_pieces"] == pytest.approx(0.5, abs=0.02) and 0 < numbers["vectors_occurrences"] < 1
    assert read_manifest(output).facts["vectors"] == digest_files([file])
    model = load_encoder(output).model
    table = model.piece_embedding().detach()
    with torch.no_grad():
        expected = nn.Parameter(table.clone())
        prepare_vectors(file, vocabulary(inputs, family), digest=None, output=tmp_path / "ready")
        present = start_from_vectors(expected, tmp_path / "ready", keep_scale=family == "word2vec")
    similarity = torch.cosine_similarity(table[present], expected[present])
    assert float(similarity.min()) > 0.999


def test_wrong_vectors_are_refused(inputs, tmp_path):
    write_vectors(tmp_path / "v.vec", ["nothing-of-this"], np.ones((1, 4), dtype=np.float32))
    with pytest.raises(ConfigError, match="none of its 1 words is a piece of the vocabulary"):
        prepare_vectors(tmp_path / "v.vec", tokenizer(), digest=None, output=tmp_path / "ready")
    with pytest.raises(ArtifactError, match="expected 123 \\(vectors_digest\\)"):
        prepare_vectors(tmp_path / "v.vec", tokenizer(), digest="123", output=tmp_path / "ready")
    file = vectors_file(inputs, tmp_path, width=8, family="flair")
    job = pretrain_job(inputs, "flair", tmp_path / "run", training=lm_settings(tokens=32))
    with pytest.raises(ConfigError, match="flair reads characters and has no table of pieces.*set model.static"):
        pretrain(job.model_copy(update={"vectors": file}))
    static = job.model_copy(update={"model": {**job.model, "static": 9}})
    with pytest.raises(ConfigError, match="have 8 numbers, but model.static is 9; set model.static to 8"):
        pretrain(static.model_copy(update={"vectors": file}))


def test_cove_on_fixed_word_vectors(inputs, tmp_path):
    """[GloVe(w); CoVe(w)]: training leaves the vectors of the file in the table."""
    file = vectors_file(inputs, tmp_path, width=6, family="cove")
    model = {"embedding": 6, "hidden": 8, "fixed_words": True}
    encoder = load_encoder(pretrain(pretrain_job(inputs, "cove", tmp_path, model=model, vectors=file)))
    prepare_vectors(file, encoder.tokenizer, digest=None, output=tmp_path / "ready")
    table = encoder.model.piece_embedding()
    expected = nn.Parameter(table.detach().clone())
    present = start_from_vectors(expected, tmp_path / "ready", keep_scale=True)
    ratio = table.detach()[present] / expected.detach()[present]
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-3, atol=1e-3)
    tokens = torch.tensor([[*np.flatnonzero(present)[:3].tolist()]])
    (_, *_, top) = encoder.model.hidden_states(tokens, torch.tensor([3]))
    torch.testing.assert_close(top[..., :6], table[tokens])
