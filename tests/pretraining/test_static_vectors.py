"""Static vectors beside the trained embeddings of ULMFiT."""

from __future__ import annotations

from pathlib import Path

import torch

from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.models.ulmfit import AWDLSTM
from components.tokenization.store import TokenStore
from components.training.pretraining.adapt import adapt
from components.training.pretraining.pretrain import pretrain
from components.training.pretraining.word_vectors import cooccurrence_vectors
from tests.training.helpers import adapt_job, pretrain_job, weights

TINY = dict(FAMILIES["ulmfit"].tiny)


def built(static: int) -> AWDLSTM:
    torch.manual_seed(0)
    model = build_model("ulmfit", vocabulary=40, settings={**TINY, "static": static})
    assert isinstance(model, AWDLSTM)
    return model.eval()


def test_static_vectors_are_features_of_the_embedding_only() -> None:
    plain, both = built(0), built(7)
    assert both.static is not None
    torch.nn.init.normal_(both.static)
    tokens, lengths = torch.randint(5, 40, (2, 9)), torch.tensor([9, 6])
    expected, actual = plain.hidden_states(tokens, lengths), both.hidden_states(tokens, lengths)
    assert torch.equal(actual[0][..., :32], expected[0]) and torch.equal(actual[0][..., 32:], both.static[tokens])
    assert all(torch.equal(*pair) for pair in zip(actual[1:], expected[1:], strict=True))
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    assert torch.equal(both.losses(batch).loss, plain.losses(batch).loss)
    assert [name for name, _ in both.named_parameters()] == [name for name, _ in plain.named_parameters()]


def test_adaptation_learns_those_of_the_domain(inputs: Path, tmp_path: Path) -> None:
    model = {**TINY, "static": 9}
    pretrained = pretrain(pretrain_job(inputs, "ulmfit", tmp_path, model=model))
    for encoder, corpus in (
        (pretrained, "general"),
        (adapt(adapt_job(inputs, "ulmfit", pretrained, tmp_path)), "domain"),
    ):
        table = weights(encoder)["static"]
        store = TokenStore(inputs / "tokens" / f"{corpus}-wordpiece")
        expected = cooccurrence_vectors(store, vocabulary=len(table), width=9)
        torch.testing.assert_close(table, expected)
        assert load_encoder(encoder).model.static_vectors() is not None
