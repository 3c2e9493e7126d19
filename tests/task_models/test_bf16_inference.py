"""Inference with cast weights: the same answers, all other weights shared, the original model unchanged."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from components.models import FAMILIES
from components.models.encoder import load_encoder
from components.models.layers.linear import Linear
from components.models.layers.lstm import LSTM
from components.models.layers.projected_lstm import ProjectedLSTM
from components.settings.finetune import FinetuneSettings
from components.task_models import fixed_batches as module
from components.task_models.bf16_inference import CastLinear, cast
from components.task_models.classifier import TextClassifier
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel, answers

CAST = [name for name, family in FAMILIES.items() if family.objective != "static"]
ROWS = [("the old apple",), ("a very small horse is here",), ("zinc",)]


@pytest.fixture
def classifier(make_encoder, settings: FinetuneSettings, request: pytest.FixtureRequest) -> TextClassifier:
    encoder = load_encoder(make_encoder(getattr(request, "param", "bert")))
    torch.manual_seed(2)
    task = find_task("classification")
    model = TaskModel(encoder.model, task=task, settings=settings, labels=["no", "yes"]).eval()
    return TextClassifier(["no", "yes"], model, encoder.tokenizer, task, settings, "bf16")


@pytest.mark.parametrize("classifier", CAST, indirect=True)
def test_a_cast_model_gives_the_answers_of_autocast(classifier: TextClassifier) -> None:
    model = classifier.model
    before = copy.deepcopy(model.state_dict())
    encoded = classifier.task.encode(ROWS, classifier.tokenizer, model.encoder, classifier.settings)
    ready = cast(model)
    np.testing.assert_array_equal(answers(ready, encoded, precision="bf16"), answers(model, encoded, precision="bf16"))
    linear = [part for part in ready.modules() if isinstance(part, CastLinear)]
    assert len(linear) == sum(isinstance(part, Linear) for part in model.modules())
    assert all(part.weight.dtype == torch.bfloat16 for part in linear)
    recurrent = [part for part in ready.modules() if isinstance(part, LSTM | ProjectedLSTM)]
    assert all(weight.dtype == torch.bfloat16 for part in recurrent for weight in part.parameters())
    assert linear or recurrent
    assert not any(isinstance(part, Linear) for part in ready.modules())
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype and torch.equal(value, before[name])


def test_other_weights_are_shared(classifier: TextClassifier) -> None:
    ready = cast(classifier.model)
    assert ready.encoder.piece_embedding() is classifier.model.encoder.piece_embedding()
    assert ready.head.output.weight is classifier.model.head.output.weight
    # The pooling calls methods of the copied encoder.
    assert ready.features._summary.__self__ is ready.encoder


@pytest.mark.parametrize(
    ("known", "precision", "cast_once"), [(True, "bf16", 1), (False, "bf16", 0), (True, "float32", 0)]
)
def test_a_classifier_is_cast_once_if_the_processor_supports_bfloat16(
    classifier: TextClassifier, known: bool, precision: str, cast_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TaskModel] = []
    monkeypatch.setattr(module, "has_bf16", lambda device: known)
    monkeypatch.setattr(module, "cast", lambda model: made.append(model) or cast(model))
    subject = TextClassifier(
        classifier.labels, classifier.model, classifier.tokenizer, classifier.task, classifier.settings, precision
    )
    encoded = classifier.task.encode(ROWS, classifier.tokenizer, classifier.model.encoder, classifier.settings)
    found = [subject.answer(ROWS) for _ in range(2)]
    assert len(made) == cast_once
    expected = answers(classifier.model, encoded, precision="bf16" if cast_once else "float32")
    np.testing.assert_allclose(found[0], expected, atol=2e-2 if cast_once else 1e-6)
    np.testing.assert_array_equal(found[1], found[0])
