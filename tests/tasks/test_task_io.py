"""The forms of all kinds of task: what may be registered can be asked and answers."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

from components.errors import ConfigError
from components.scoring import SCORINGS
from components.tasks.task_io import FORMS, form_of
from components.tracking import _signature

LABELS = ["B-X", "I-X", "O"]
ANSWERS = {
    "similarity": [0.5],
    "questions": [0, 5, 1, 0],
    "choice": [0.25, 0.75],
}


def test_every_kind_that_is_scored_has_a_form() -> None:
    assert FORMS.keys() == SCORINGS.keys()
    with pytest.raises(ConfigError, match="unknown task kind 'pairs'; did you mean 'pair'"):
        form_of("pairs")


@pytest.mark.parametrize("kind", FORMS)
def test_examples_can_be_read_and_answers_fill_every_column(kind: str) -> None:
    form = form_of(kind)
    for example in form.examples:
        assert example.keys() == form.inputs.keys()
        fields = form.read(example)
        assert fields is not None
        answer = [2.0] * len(fields) if kind == "tagging" else ANSWERS.get(kind, [0.25, 0.5, 0.25])
        told = form.tell(fields, np.asarray(answer, dtype=np.float32), LABELS)
        assert form.filed.keys() | form.served.keys() <= told.keys()
        json.dumps(told, allow_nan=False)
    empty = form.read(dict.fromkeys(form.inputs))
    assert empty is None


@pytest.mark.parametrize("kind", FORMS)
def test_the_signature_takes_the_examples(kind: str) -> None:
    from mlflow.models.utils import _enforce_schema

    form = form_of(kind)
    signature = _signature(form)
    assert signature.inputs.input_names() == list(form.inputs)
    assert signature.outputs.input_names() == list(form.served)
    rows = _enforce_schema(pandas.DataFrame(list(form.examples)), signature.inputs)
    assert [form.read(row) for row in rows.to_dict("records")] == [form.read(row) for row in form.examples]
