"""The forms of all kinds of task: what may be registered can be asked and answers."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

from components.tasks.kinds import KINDS, find_kind
from components.tracking import _signature

LABELS = ["B-X", "I-X", "O"]
ANSWERS = {
    "similarity": [0.5],
    "questions": [0, 5, 1, 0],
    "choice": [0.25, 0.75],
}


@pytest.mark.parametrize("kind", KINDS)
def test_examples_can_be_read_and_answers_fill_every_column(kind: str) -> None:
    form = find_kind(kind).io
    for example in form.examples:
        assert example.keys() == form.inputs.keys()
        fields = form.parse(example)
        assert fields is not None
        answer = [2.0] * len(fields) if kind == "tagging" else ANSWERS.get(kind, [0.25, 0.5, 0.25])
        told = form.format(fields, np.asarray(answer, dtype=np.float32), LABELS)
        assert form.columns.keys() | form.outputs.keys() <= told.keys()
        json.dumps(told, allow_nan=False)
    empty = form.parse(dict.fromkeys(form.inputs))
    assert empty is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_signature_takes_the_examples(kind: str) -> None:
    from mlflow.models.utils import _enforce_schema

    form = find_kind(kind).io
    signature = _signature(form)
    assert signature.inputs.input_names() == list(form.inputs)
    assert signature.outputs.input_names() == list(form.outputs)
    rows = _enforce_schema(pandas.DataFrame(list(form.examples)), signature.inputs)
    assert [form.parse(row) for row in rows.to_dict("records")] == [form.parse(row) for row in form.examples]
