"""Static vectors beside trained embeddings or states, from the text or from a file."""

import numpy as np
import pytest
import torch

from components.core.artifacts import digest_files, read_manifest
from components.core.errors import ConfigError
from components.interchange.vectors import write_vectors
from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.models.layers.text_words import packed
from components.models.ulmfit import AWDLSTM
from components.tokenization.special import FIRST_ORDINARY
from components.tokenization.store import TokenStore
from components.training.pretraining.adapt import adapt
from components.training.pretraining.pretrain import pretrain, scratch
from components.training.pretraining.word_vectors import TextVectors
from tests.training.helpers import (
    adapt_job,
    drawn_encoder,
    lm_settings,
    metrics_of,
    pretrain_job,
    pretrained_by,
    scratch_job,
    weights,
)

TINY = dict(FAMILIES["ulmfit"].tiny)


def built(static: int) -> AWDLSTM:
    torch.manual_seed(0)
    model = build_model("ulmfit", vocabulary=40, settings={**TINY, "static": static})
    return model.eval()


def test_static_vectors_are_features_of_the_embedding_only():
    plain, both = built(0), built(7)
    torch.nn.init.normal_(both.static)
    tokens, lengths = torch.randint(5, 40, (2, 9)), torch.tensor([9, 6])
    expected, actual = plain.hidden_states(tokens, lengths), both.hidden_states(tokens, lengths)
    assert torch.equal(actual[0][..., :32], expected[0]) and torch.equal(actual[0][..., 32:], both.static[tokens])
    assert all(torch.equal(*pair) for pair in zip(actual[1:], expected[1:], strict=True))
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    assert torch.equal(both.losses(batch).loss, plain.losses(batch).loss)
    assert [name for name, _ in both.named_parameters()] == [name for name, _ in plain.named_parameters()]


def test_adaptation_learns_those_of_the_domain(inputs, tmp_path):
    model = {**TINY, "static": 9}
    pretrained = pretrained_by(inputs, "ulmfit", tmp_path, model=model)
    for encoder, corpus in (
        (pretrained, "general"),
        (adapt(adapt_job(inputs, "ulmfit", pretrained, tmp_path)), "domain"),
    ):
        table = weights(encoder)["static"]
        store = TokenStore(inputs / "tokens" / f"{corpus}-wordpiece")
        expected = TextVectors(store, vocabulary=len(table)).of(9)
        torch.testing.assert_close(table, expected)
        assert load_encoder(encoder).model.static_vectors() is not None


CHANNELS = sorted(name for name, family in FAMILIES.items() if "static" in family.config.model_fields)
#: "river" is a word of the general text, "bucket" of the domain's.
VECTORS = {"the": [1.0, 2.0], "river": [3.0, 4.0], "bucket": [5.0, 6.0], "a" * 40: [7.0, 8.0]}


@pytest.mark.parametrize("family", CHANNELS)
def test_a_file_fills_the_channel_of_every_start(inputs, tmp_path, family):
    """Pretraining, adaptation to a new vocabulary, the random model and its copy for a seed of fine-tuning agree."""
    file = tmp_path / "vectors.txt"
    write_vectors(file, list(VECTORS), np.asarray(list(VECTORS.values()), dtype=np.float32))
    given = {"vectors": file, "vectors_digest": digest_files([file])}
    model = {**FAMILIES[family].tiny, "static": 2, **({"words": 5} if family == "flair" else {})}
    pretraining = pretrain_job(inputs, family, tmp_path, model=model, **given)
    pretrained = pretrain(pretraining)
    adaptation = adapt_job(inputs, family, pretrained, tmp_path, **given)
    text = {"tokenizer": adaptation.tokenizer, "tokens": adaptation.tokens, "training": lm_settings()}
    random = scratch_job(pretraining, tmp_path / "scratch", **text, **given)
    for output in (pretrained, adapt(adaptation), scratch(random)):
        encoder = load_encoder(output)
        table, words = encoder.model.static_vectors(), encoder.model.static_words()
        if words is None:
            forms = [encoder.tokenizer.surface(index) for index in range(FIRST_ORDINARY, len(table))]
            expected = [[0.0, 0.0]] * FIRST_ORDINARY + [VECTORS.get(form, [0.0, 0.0]) for form in forms]
        else:
            expected = [VECTORS[word] for word in ("the", "river", "bucket")] + 2 * [[0.0, 0.0]]
            assert torch.equal(words, packed(["the", "river", "bucket", "", ""])), "the long word has no row"
        assert table.tolist() == expected and table.any()
        assert read_manifest(output).facts["vectors"] == given["vectors_digest"]
        metrics = metrics_of(output)
        assert 0 < metrics["vectors_pieces"] < 1 and 0 < metrics["vectors_occurrences"] < 1
    drawn = drawn_encoder(random.output)
    assert torch.equal(drawn.static_vectors(), table)
    assert words is None or torch.equal(drawn.static_words(), words)


def test_a_model_of_characters_needs_a_file(inputs, tmp_path):
    job = pretrain_job(inputs, "flair", tmp_path, model={**FAMILIES["flair"].tiny, "static": 2})
    with pytest.raises(ConfigError, match="flair: model.static needs a file of words; set vectors"):
        pretrain(job)
