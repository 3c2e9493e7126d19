"""Inference with converted weights: their answers, all other weights shared, the original model unchanged."""

import copy
import dataclasses
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError
from components.learners.loading import load_model
from components.learners.task_models import predictor as module
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.inference_weights import CastLinear, Int8Linear, converted
from components.models import FAMILIES
from components.models.layers.linear import Linear
from components.models.layers.lstm import LSTM, ProjectedLSTM
from components.registry.champion import Loader
from components.registry.tracking import Version
from components.serving.models import FixedModel
from components.settings.finetune import FinetuneSettings
from tests.example_task import save_classifier
from tests.task_models.test_predictor import make_classifier

CAST = [name for name, family in FAMILIES.items() if family.objective != "static"]
ROWS = [("the old apple",), ("a very small horse is here",), ("zinc",)]


@pytest.fixture
def classifier(make_encoder, settings: FinetuneSettings, request: pytest.FixtureRequest) -> TextClassifier:
    return make_classifier(make_encoder(getattr(request, "param", "bert")), settings, precision="bf16")


@pytest.mark.parametrize("classifier", CAST, indirect=True)
def test_a_cast_model_gives_the_answers_of_autocast(classifier, monkeypatch):
    monkeypatch.setattr(module, "has_bf16", lambda device: True)
    model, encoded = classifier.model, classifier.encode(ROWS)
    before, ready = copy.deepcopy(model.state_dict()), converted(classifier.model, bf16=True)
    cast, plain = (module.Predictor(each, precision="bf16", fixed=False).answers(encoded) for each in (ready, model))
    np.testing.assert_array_equal(cast, plain)
    linear = [part for part in ready.modules() if isinstance(part, CastLinear)]
    assert len(linear) == sum(isinstance(part, Linear) for part in model.modules())
    assert all(part.weight.dtype == torch.bfloat16 for part in linear)
    recurrent = [part for part in ready.modules() if isinstance(part, LSTM | ProjectedLSTM)]
    assert all(weight.dtype == torch.bfloat16 for part in recurrent for weight in part.parameters())
    assert (linear or recurrent) and not any(isinstance(part, Linear) for part in ready.modules())
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype and torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("supported", "precision", "cast_once"), [(True, "bf16", 1), (False, "bf16", 0), (True, "float32", 0)]
)
def test_a_classifier_is_cast_once_if_the_processor_supports_bfloat16(
    classifier, supported, precision, cast_once, monkeypatch
):
    made = []
    monkeypatch.setattr(module, "has_bf16", lambda device: supported)
    monkeypatch.setattr(module, "converted", lambda model, **how: made.append(model) or converted(model, **how))
    subject = dataclasses.replace(classifier, precision=precision)
    first, second = (subject.answer(ROWS) for _ in range(2))
    assert len(made) == cast_once
    np.testing.assert_array_equal(second, first)
    exact = dataclasses.replace(classifier, precision="float32").answer(ROWS)
    np.testing.assert_allclose(first, exact, atol=2e-1 if cast_once else 1e-6)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 384, 1536), (7, 1536, 384), (12, 20, 6), (96, 384, 1536), (200, 1536, 384)]
)
def test_a_reordered_matrix_gives_the_same_bits(rows, inputs, outputs):
    torch.manual_seed(rows)
    x, weight, bias = (torch.randn(*shape).bfloat16() for shape in ((rows, inputs), (outputs, inputs), (outputs,)))
    assert torch.equal(CastLinear(weight, bias)(x), torch.nn.functional.linear(x, weight, bias))


def test_integer_products_are_exact():
    def quantised(values: torch.Tensor, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Integers and the scale of each row, in float64."""
        scales = np.abs(values.numpy()).max(1, keepdims=True).astype(np.float64) / most
        return np.floor(values.numpy() / scales + 0.5), scales

    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(*shape, generator=generator) for shape in ((24, 96), (24,), (7, 96)))
    # The largest sums of products: processors without VNNI add two products in 16 bits.
    x[5], weight[3] = 2.0, 0.5
    rows, row_scales = quantised(x, 63)
    columns, column_scales = quantised(weight, 127)
    expected = rows @ columns.T * row_scales * column_scales.T + bias.numpy()
    actual = Int8Linear(weight, bias)(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert actual[5, 3] == pytest.approx(96 * 2.0 * 0.5 + float(bias[3]), rel=1e-6)
    np.testing.assert_allclose(actual, torch.nn.functional.linear(x, weight, bias), atol=0.6)


TRANSFORMERS = ["bert", "roberta", "albert", "gpt", "transformer", "transformer-xl", "xlnet"]


@pytest.mark.parametrize(
    ("classifier", "precision"), [*zip(TRANSFORMERS, cycle(["float32", "bf16"]), strict=False)], indirect=["classifier"]
)
def test_quantised_transformers(classifier, precision):
    before = copy.deepcopy(classifier.model.state_dict())
    stored = dataclasses.replace(classifier, precision=precision)
    subject = stored.quantised()
    actual = np.asarray(subject.answer(ROWS))
    np.testing.assert_allclose(actual, stored.answer(ROWS), atol=0.2)
    assert not np.array_equal(actual, stored.answer(ROWS))
    alone = np.concatenate([subject.answer([row]) for row in ROWS])
    np.testing.assert_allclose(alone, actual, rtol=1e-6, atol=1e-6)
    kinds = {type(part) for part in subject.predictor.model.encoder.modules()}
    assert Int8Linear in kinds and Linear not in kinds
    for name, value in classifier.model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.fixture
def saved(classifier: TextClassifier, make_encoder, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    family = "ulmfit" if "recurrent" in request.node.name else "bert"
    save_classifier(
        tmp_path / "model",
        classifier.model,
        family=family,
        precision=classifier.precision,
        tokenizer=make_encoder(family) / "tokenizer",
        facts={},
    )
    return tmp_path / "model"


def test_without_onednn_models_are_loaded_as_they_are(classifier, saved, monkeypatch, capsys):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="the model cannot be quantised, because this build of torch has no oneDNN"):
        classifier.quantised()
    assert not load_model(saved, int8=True, what="reviews version 3").int8
    assert "because this build of torch has no oneDNN; --int8 has no effect on it" in capsys.readouterr().err


def test_predicted_files_and_served_models_are_quantised(classifier, saved):
    expected, version = classifier.quantised().answer(ROWS), Version("reviews", "3", "", "", {})
    stored, loader = (Loader(saved, version, lambda actual, _: actual, int8) for int8 in (False, True))
    np.testing.assert_array_equal(loader().answer(ROWS), expected)
    assert not np.array_equal(stored().answer(ROWS), expected)
    assert loader.identity != stored.identity, "parts of one file must not be predicted in different ways"
    np.testing.assert_array_equal(FixedModel(saved, int8=True).current.classifier.answer(ROWS), expected)


@pytest.mark.parametrize("classifier", ["ulmfit"], indirect=True)
def test_recurrent_models_are_loaded_as_they_are(classifier, saved, capsys):
    actual = load_model(saved, int8=True, what="reviews version 3").answer(ROWS)
    assert capsys.readouterr().err == "reviews version 3: is not a Transformer; --int8 has no effect on it\n"
    np.testing.assert_array_equal(actual, classifier.answer(ROWS))
