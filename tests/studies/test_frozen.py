"""Layer vectors against direct computation."""

import pytest
import torch

from components.core.errors import ConfigError
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.studies.frozen import Labelled, layer_vectors
from tests.studies.conftest import findings

SETTINGS = FinetuneSettings(training=Training(rate=0.01, batch_size=4))


def test_vectors_are_the_means_of_the_hidden_states(outputs, add_task, add_encoder):
    add_task()
    add_encoder("bert")
    encoder = outputs.encoder("bert", "adapted")
    split = Labelled.of(outputs, "aws-type").dev.take([4, 0, 9])
    actual = layer_vectors(encoder, split, kind="classification", settings=SETTINGS)
    assert [tuple(layer.shape) for layer in actual] == [(3, 16)] * 4
    for row, text in enumerate(split.texts):
        (ids,) = encoder.tokenizer.encode_batch([text])
        tokens = torch.tensor([encoder.model.special_tokens(ids.tolist())])
        with torch.no_grad():
            hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
        for layer, expected in zip(actual, hidden, strict=True):
            assert torch.allclose(layer[row], expected[0].mean(0), atol=1e-5)


def test_a_kind_without_one_label_is_refused(outputs, add_task, monkeypatch):
    add_task()
    monkeypatch.setattr("components.studies.frozen.LABELLED", ("pair",))
    with pytest.raises(ConfigError, match="this study needs one label per text or word, which classification"):
        findings(outputs, "which-source")
