"""Import of fastai's files and word vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import import_encoder, read_published
from components.interchange.vectors import read_vectors, write_vectors
from components.models.encoder import build_model, load_encoder
from components.models.static import StaticVectors
from components.registry.exports.champion import export_encoder
from components.settings.training import LanguageModelTraining
from components.tokenization.special import SPECIAL_PIECES
from components.training.pretraining.pretrain import PretrainJob, pretrain


@pytest.fixture
def fastai_file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = build_model("ulmfit", vocabulary=8, settings={"embedding": 6, "hidden": 10, "layers": 2})
    weights = model.state_dict()
    # fastai's order of the special pieces: xxunk, xxpad, xxbos.
    rows = [1, 0, 3, 5, 6, 7]
    state = {"0.encoder.weight": weights["embedding"][rows], "1.decoder.bias": weights["bias"][rows]}
    for layer in range(2):
        for part in ("weight_ih", "weight_hh"):
            state[f"0.rnns.{layer}.module.{part}_l0"] = weights[f"lstms.{layer}.{part}"]
        state[f"0.rnns.{layer}.module.bias_ih_l0"] = weights[f"lstms.{layer}.bias"]
        state[f"0.rnns.{layer}.module.bias_hh_l0"] = torch.zeros_like(weights[f"lstms.{layer}.bias"])
    torch.save(state, tmp_path / "lm.pth")
    (tmp_path / "itos.json").write_text(json.dumps(["xxunk", "xxpad", "xxbos", "the", "film", "good"]))
    return tmp_path / "lm.pth"


def test_a_fastai_file_becomes_an_encoder(fastai_file, tmp_path):
    log = import_encoder(fastai_file, output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    assert (encoder.family, encoder.trained, encoder.tokenizer.kind) == ("ulmfit", True, "word")
    ids = encoder.tokenizer.encode_batch(["The film, good"])[0].tolist()
    assert [encoder.tokenizer.pieces[id_] for id_ in ids] == ["the", "film", "[UNK]", "good"]
    torch.manual_seed(0)
    first = build_model("ulmfit", vocabulary=8, settings={"embedding": 6, "hidden": 10, "layers": 2}).eval()
    tokens, lengths = torch.tensor([encoder.model.special_tokens(ids)]), torch.tensor([5])
    with torch.no_grad():
        for ours, other in zip(
            encoder.model.hidden_states(tokens, lengths), first.hidden_states(tokens, lengths), strict=True
        ):
            torch.testing.assert_close(ours, other)
    assert "3 of the first 3 words can occur in tokenized text" in log[-1]


def test_dropouts_and_penalties_beside_a_fastai_file(fastai_file, tmp_path):
    def job(**model):
        training = LanguageModelTraining(tokens=1, rate=0.1, batch_size=1)
        output = tmp_path / "-".join(["encoder", *model])
        return PretrainJob(
            family="ulmfit", source=fastai_file, model=model, output=output, tokens=None, tokenizer=None,
            training=training,
        )  # fmt: skip

    published = load_encoder(pretrain(job())).model
    assert (published.config.dropout_input, published.config.activation) == (0.25, 2.0)
    model = load_encoder(pretrain(job(dropout_input=0.4, slowness=0.0))).model
    changed = {"dropout_input": 0.4, "slowness": 0.0}
    assert model.config == published.config.model_copy(update=changed)
    assert model.drop_input.probability == 0.4
    torch.testing.assert_close(model.state_dict(), published.state_dict(), rtol=0, atol=0)
    with pytest.raises(ConfigError, match=r"lm.pth: the source determines hidden; remove it"):
        pretrain(job(hidden=7))


def test_a_fastai_file_without_its_vocabulary(fastai_file, tmp_path):
    words = (tmp_path / "itos.json").rename(tmp_path / "words.json")
    with pytest.raises(ArtifactError, match=r"itos.json: does not exist; name the vocabulary of lm.pth with --vocab"):
        read_published(fastai_file)
    assert read_published(fastai_file, vocabulary=words).family == "ulmfit"
    with pytest.raises(ConfigError, match="not supported by the family 'bert'; known: ulmfit"):
        read_published(fastai_file, vocabulary=words, family="bert")


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
