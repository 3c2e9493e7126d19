"""Registered models of this and earlier schemas are loaded by the present code and predict what they predicted."""

import json

import numpy as np
import pandas as pd
import pytest

from components.core.artifacts import SCHEMA, read_manifest
from components.learners.loading import load_model
from components.registry.pyfunc import _load_pyfunc
from tests.compatibility.record import EXPECTED, MODELS


def test_both_forms_of_the_present_schema_are_stored():
    assert {path.name for path in MODELS.iterdir()} >= {f"words-{SCHEMA}", f"encoder-{SCHEMA}"}


@pytest.mark.parametrize("stored", sorted(MODELS.iterdir()), ids=lambda path: path.name)
def test_a_stored_model_predicts_what_it_predicted(stored):
    bundle, expected = stored / "bundle", json.loads((stored / EXPECTED).read_text())
    assert f"{stored.name.partition('-')[0]}-{read_manifest(bundle, verify=True).schema}" == stored.name
    model = load_model(bundle)
    answers = np.stack(model.answer([(text,) for text in expected["texts"]]))
    np.testing.assert_allclose(answers, expected["answers"], rtol=1e-4, atol=1e-5)
    assert np.ptp(answers, axis=0).max() > 0.01, "the answers depend on the texts"
    served = _load_pyfunc(str(bundle)).predict(pd.DataFrame({"text": expected["texts"]}))
    assert [model.labels[best] for best in answers.argmax(1)] == list(served["label"])


def test_stored_models_are_small_and_hold_data_only():
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in files) < 100_000
