"""Inputs and outputs of all kinds: examples are parsed, answers fill all columns and the signature."""

import json

import numpy as np
import pandas
import pytest

from components.data.tasks.kinds import KINDS, find_kind
from components.registry.tracking.registry import signature

LABELS = ["B-X", "I-X", "O"]
ANSWERS = {
    "similarity": [0.5],
    "regression": [0.5],
    "questions": [0, 5, 1, 0],
    "choice": [0.25, 0.75],
}


@pytest.mark.parametrize("kind", KINDS)
def test_examples_can_be_read_and_answers_fill_every_column(kind):
    task_io = find_kind(kind).io
    for example in task_io.examples:
        assert example.keys() == task_io.inputs.keys()
        fields = task_io.parse(example)
        assert fields is not None
        answer = [2.0] * len(fields) if kind == "tagging" else ANSWERS.get(kind, [0.25, 0.5, 0.25])
        formatted = task_io.format(fields, np.asarray(answer, dtype=np.float32), LABELS)
        assert task_io.columns.keys() | task_io.outputs.keys() <= formatted.keys()
        json.dumps(formatted, allow_nan=False)
    empty = task_io.parse(dict.fromkeys(task_io.inputs))
    assert empty is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_signature_takes_the_examples(kind):
    from mlflow.models.utils import _enforce_schema

    task_io = find_kind(kind).io
    actual = signature(task_io)
    assert actual.inputs.input_names() == list(task_io.inputs)
    assert actual.inputs.required_input_names() == list(task_io.inputs)
    assert actual.outputs.input_names() == list(task_io.outputs)
    rows = _enforce_schema(pandas.DataFrame(list(task_io.examples)), actual.inputs)
    assert [task_io.parse(row) for row in rows.to_dict("records")] == [task_io.parse(row) for row in task_io.examples]
