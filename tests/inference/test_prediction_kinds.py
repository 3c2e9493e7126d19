"""Prediction of files for every kind of task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.tasks.data import Fields
from components.learners.prediction import Predicted
from tests.inference.files import predict_file, read


class Constant:
    """Gives the same answer for every row."""

    def __init__(self, kind: str, *answer: float, labels: Sequence[str] = ()) -> None:
        self.kind, self.labels, self.constant = kind, labels, np.array(answer, dtype=np.float32)
        self.rows: list[Fields] = []

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        self.rows += rows
        return [self.constant] * len(rows)


TAGS = ["B-PER", "I-PER", "O"]
KINDS = [
    (
        Constant("pair", 0.25, 0.75, labels=["no", "yes"]),
        [{"first": "one", "second": "two"}, {"first": "one", "second": " "}],
        [("one", "two")],
        {"prediction": "yes", "confidence": 0.75},
    ),
    (
        Constant("multilabel", 0.75, 0.25, 0.5, labels=["a", "b", "c"]),
        [{"text": "one"}, {"text": None}],
        [("one",)],
        {"prediction": "a,c"},
    ),
    (Constant("similarity", 2.5), [{"first": "one", "second": "two"}], [("one", "two")], {"prediction": 2.5}),
    (Constant("regression", 2.5), [{"text": "one"}, {"text": " "}], [("one",)], {"prediction": 2.5}),
    (
        Constant("tagging", 0, 1, 2, labels=TAGS),
        [{"words": "Marie Curie  slept"}, {"words": ""}],
        [("Marie", "Curie", "slept")],
        {"prediction": "B-PER I-PER O", "spans": [{"start": 0, "end": 2, "type": "PER", "text": "Marie Curie"}]},
    ),
    (
        Constant("tagging", 1, 0, labels=["NOUN", "VERB"]),
        [{"words": ["sleep", "well"]}, {"words": []}],
        [("sleep", "well")],
        {"prediction": "VERB NOUN", "spans": []},
    ),
    (
        Constant("questions", 4, 7, 5, 1.5),
        [{"question": "who", "context": "the cat sat"}, {"question": "who", "context": ""}],
        [("who", "the cat sat")],
        {"prediction": "cat", "start": 4, "end": 7, "score": 3.5},
    ),
    (
        Constant("questions", 0, 0, 1, 3),
        [{"question": "who", "context": "the cat sat"}],
        [("who", "the cat sat")],
        {"prediction": "", "start": None, "end": None, "score": 2.0},
    ),
    (
        Constant("choice", 0.25, 0.5, 0.25),
        [{"text": "so", "choices": ["x", "y", "z"]}, {"text": "so", "choices": ["x"]}],
        [("so", "x", "y", "z")],
        {"prediction": "y", "confidence": 0.5},
    ),
]


@pytest.mark.parametrize(("model", "rows", "asked", "answer"), KINDS)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_files_of_every_kind_of_task(
    tmp_path: Path, model: Constant, rows: list[dict], asked: list[Fields], answer: dict, suffix: str
) -> None:
    model.rows.clear()
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert predict_file(source, output=output, classifier=model) == Predicted(len(rows), len(rows) - 1)
    assert model.rows == asked
    result = read(output)
    assert result[0] == rows[0] | answer
    assert all(result[-1][name] is None for name in answer) or len(rows) == 1


def test_lists_are_json_in_csv_and_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("sentence\nMarie Curie slept\n")
    model = Constant("tagging", 0, 1, 2, labels=TAGS)
    predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=model, columns={"words": "sentence"})
    (row,) = read(tmp_path / "out.csv")
    assert json.loads(row["spans"]) == [{"start": 0, "end": 2, "type": "PER", "text": "Marie Curie"}]

    (tmp_path / "in.csv").write_text('text,choices\nso,"[""x"", ""y""]"\n')
    chooser = Constant("choice", 0.25, 0.75)
    predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=chooser)
    assert chooser.rows == [("so", "x", "y")]


CHOICE, TAGGING, PAIR = Constant("choice", 1, 0), Constant("tagging", 1, labels=TAGS), Constant("pair", 1, 0)
QUESTIONS = Constant("questions", 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("model", "content", "message"),
    [
        (CHOICE, '{"text": "a", "choices": "x"}', r"in.jsonl, line 1: 'choices' is not a list in JSON"),
        (CHOICE, '{"text": "a", "choices": [1, 2]}', r"in.jsonl, line 1: 'choices' is list, expected a list of"),
        (TAGGING, '{"words": 7}', r"in.jsonl, line 1: 'words' is int, expected a list of texts$"),
        (PAIR, '{"first": "a"}', r"in.jsonl, line 1: has no column 'second'; found: first$"),
        (QUESTIONS, '{"question": "a", "context": [1]}', r"in.jsonl, line 1: 'context' is list, expected"),
        (QUESTIONS, '{"question": "a", "context": "b", "end": 1}', r"has a column 'end'; rename it$"),
    ],
)
def test_bad_inputs_of_other_kinds(tmp_path: Path, model: Constant, content: str, message: str) -> None:
    (tmp_path / "in.jsonl").write_text(content + "\n")
    with pytest.raises(DataError, match=message):
        predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", classifier=model)
