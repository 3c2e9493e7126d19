"""Prediction of files: formats, rows without input, errors of writing."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.tasks.data import Fields
from components.learners.prediction import Predicted, columns_of_data, named_columns
from components.settings.tasks import TaskSource
from tests.inference.files import CONFIDENCES, PREDICTIONS, ROWS, TSV_ROWS, ByLength, names, predict_file, read, write


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("target", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_into_every_format(tmp_path, suffix, target):
    given = TSV_ROWS if ".tsv" in (suffix, target) else ROWS
    source, output = write(tmp_path / f"in{suffix}", given), tmp_path / "new" / f"out{target}"
    classifier = ByLength()

    done = predict_file(source, output=output, classifier=classifier, batch_size=2)

    assert done == Predicted(rows=5, empty=2)
    assert classifier.batches == [["abc", given[1]["text"]], ["ไทย"]]
    rows = read(output)
    assert [list(row) for row in rows] == [["id", "text", "prediction", "confidence"]] * 5
    assert [row["text"] for row in rows] == [row["text"] for row in given]
    assert [row["prediction"] or None for row in rows] == PREDICTIONS
    assert [float(row["confidence"]) if row["confidence"] not in ("", None) else None for row in rows] == CONFIDENCES
    if suffix == target == ".parquet":
        assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]
    assert names(output.parent) == [output.name]


def test_a_tsv_cannot_represent_tabs_and_line_breaks(tmp_path):
    source = write(tmp_path / "in.jsonl")
    with pytest.raises(
        DataError, match=r"out\.tsv: a value contains a tab or a line break, .*; write \.jsonl instead$"
    ):
        predict_file(source, output=tmp_path / "out.tsv", classifier=ByLength())
    assert not (tmp_path / "out.tsv").exists()


def test_the_input_is_not_replaced(tmp_path):
    path, link = write(tmp_path / "both.csv"), tmp_path / "link.csv"
    link.symlink_to(path)
    content = path.read_text()
    for output, reason in ((path, "was not written by Headstart"), (link, "is a link")):
        with pytest.raises(ArtifactError, match=rf"{output}: exists, and {reason}; move it away"):
            predict_file(path, output=output, classifier=ByLength())
    assert path.read_text() == content and link.is_symlink()


@pytest.mark.parametrize("target", [".jsonl", ".csv", ".parquet"])
def test_half_of_a_surrogate_pair_is_replaced(tmp_path, target):
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "\\ud83d", "text": "ab\\ud83d"}\n')
    predict_file(source, output=tmp_path / f"out{target}", classifier=(model := ByLength()))
    assert model.batches == [["ab\ufffd"]]
    assert read(tmp_path / f"out{target}")[0]["id"] == "\ufffd"


def test_columns_that_differ_from_row_to_row(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "m": "x"}\n')
    done = predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", classifier=ByLength())
    assert done.rows == 2
    assert read(tmp_path / "out.jsonl")[1] == {"text": "b", "m": "x", "prediction": "short", "confidence": 0.75}

    for target in ("out.csv", "out.parquet"):
        with pytest.raises(
            DataError, match=rf"{target}: a row has the column 'm', which the first row does not have; "
        ):
            predict_file(tmp_path / "in.jsonl", output=tmp_path / target, classifier=ByLength(), batch_size=1)
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "n": "x"}\n')
    with pytest.raises(DataError, match=r"out.parquet: rows differ in their types .* write .jsonl instead"):
        predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.parquet", classifier=ByLength(), batch_size=1)


def test_columns_by_name():
    assert named_columns([]) == {}
    assert named_columns(["body"]) == {"text": "body"}
    assert named_columns(["first=a", "second=b=c"]) == {"first": "a", "second": "b=c"}
    for wrong in (["first="], ["=a"], ["first=a", "first=b"]):
        with pytest.raises(ConfigError, match=r"expected INPUT=COLUMN, once for each input"):
            named_columns(wrong)


@pytest.mark.parametrize("failing", ["write", "close"])
def test_errors_of_writing_are_reported_as_errors_of_the_output(tmp_path, monkeypatch, failing):
    class Full(io.StringIO):
        def write(self, text):
            if failing == "write" and "short" in text:
                raise OSError(28, "No space left on device")
            return super().write(text)

        def close(self):
            if failing == "close" and not self.closed:
                super().close()
                raise OSError(28, "No space left on device")
            super().close()

    source, opened = write(tmp_path / "in.csv"), Path.open

    def open_(path, mode="r", **options):
        return Full() if mode == "w" and path.suffix == ".csv" else opened(path, mode, **options)

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(DataError, match=r"out.csv: cannot be written \(No space left on device\); free space"):
        predict_file(source, output=tmp_path / "out.csv", classifier=ByLength())
    assert names(tmp_path) == ["in.csv"]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("in.csv", "id,review\n1,a\n", {"text": "review"}),
        ("in.jsonl", '{"review": "a"}\n', {"text": "review"}),
        ("both.csv", "text,review\na,b\n", {}),
        ("other.csv", "id,body\n1,a long text\n2,another one\n", {"text": "body"}),
        ("damaged.csv", '"', {}),
        ("in.txt", "review\n", {}),
    ],
)
def test_inputs_may_have_the_names_of_the_labelled_data(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    source = TaskSource(path="data", text="review")
    assert columns_of_data(tmp_path / name, kind="classification", source=source) == columns


def test_a_text_a_line_is_the_input_of_every_kind_with_one(tmp_path):
    (tmp_path / "in.txt").write_text("Anna sings\n")
    source = TaskSource(path="data", kind="tagging")
    assert columns_of_data(tmp_path / "in.txt", kind="tagging", source=source) == {"words": "text"}
    assert columns_of_data(tmp_path / "in.txt", kind="questions", source=source) == {}


# Prediction of files for every kind of task.


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
def test_files_of_every_kind_of_task(tmp_path, model, rows, asked, answer, suffix):
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


def test_lists_are_json_in_csv_and_columns_can_be_named(tmp_path):
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
def test_bad_inputs_of_other_kinds(tmp_path, model, content, message):
    (tmp_path / "in.jsonl").write_text(content + "\n")
    with pytest.raises(DataError, match=message):
        predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", classifier=model)


def test_a_wrong_value_is_named_by_its_column(tmp_path):
    """Columns may have the names of other inputs."""
    (tmp_path / "in.jsonl").write_text('{"first": "a", "second": 7}\n')
    swapped = {"first": "second", "second": "first"}
    with pytest.raises(DataError, match=r"in.jsonl, line 1: 'second' is int, expected text$"):
        predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", classifier=PAIR, columns=swapped)
