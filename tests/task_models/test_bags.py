"""Pooled word vectors without padding equal those with padding, and do not depend on the other texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.data.segmenters import Segmentation
from components.learners.task_models.base import Encoded
from components.learners.task_models.fixed_batches import pool_bags as pooled
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.pooling import Pooling
from components.learners.task_models.sampler import collate
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer

STATIC = [name for name, family in FAMILIES.items() if family.objective == "static"]
TOKENIZER = WordTokenizer(
    [*SPECIAL_PIECES, *"abcdefgh"], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
)


def task_model(family: str, pooling: Pooling = "mean", **settings: object) -> TaskModel:
    torch.manual_seed(3)
    encoder = build_model(family, vocabulary=TOKENIZER.vocab_size, settings=FAMILIES[family].tiny)
    encoder.bind(TOKENIZER)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)
    training = Training(rate=0.1, batch_size=2)
    finetuning = FinetuneSettings(layers="last", pooling=pooling, max_length=6, training=training, **settings)
    return TaskModel(encoder, task=find_task("classification"), settings=finetuning, labels=["x", "y", "z"]).eval()


def test_exact_values() -> None:
    model = build_model("word2vec", vocabulary=8, settings={"width": 2})
    model.load_state_dict({"input": torch.arange(16.0).view(8, 2), "output": torch.zeros(8, 2)})
    sequences = [np.asarray([5, 7]), np.asarray([6])]
    assert pooled(model, sequences, pooling="mean").tolist() == [[12, 13], [12, 13]]
    assert pooled(model, sequences, pooling="max").tolist() == [[14, 15], [12, 13]]
    # Weights 1/3 and 1/4: 4/7 and 3/7.
    assert pooled(model, sequences, pooling="lead")[0].tolist() == pytest.approx([82 / 7, 89 / 7])


@pytest.mark.parametrize("family", STATIC)
@pytest.mark.parametrize("pooling", ["mean", "lead", "max", "summary", "concat"])
def test_bags_equal_padded_batches(family: str, pooling: Pooling) -> None:
    model = task_model(family, pooling)
    sequences = [np.asarray(ids) for ids in ([5, 6, 7], [8], [9, 9, 5, 12, 6])]
    with torch.no_grad():
        padded = model.kept(collate([Encoded.of_texts([ids]) for ids in sequences]))
        actual = pooled(model.encoder, sequences, pooling=pooling)
        torch.testing.assert_close(actual, padded)
        for row, ids in enumerate(sequences):
            assert torch.equal(pooled(model.encoder, [ids], pooling=pooling)[0], actual[row])
