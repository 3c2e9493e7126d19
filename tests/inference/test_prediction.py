"""Prediction of files: formats, kinds of task, rows without input, bad rows, errors of writing."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from components.core.errors import ArtifactError, ConfigError
from components.data.formats.rows import form_of_texts
from components.data.tasks.data import Fields
from components.learners.prediction import Predicted, columns_of_data, input_columns, named_columns
from components.settings.tasks import TaskSource
from tests.inference.files import (
    CONFIDENCES,
    PREDICTIONS,
    ROWS,
    TSV_ROWS,
    ByLength,
    names,
    predict_file,
    read,
    refused,
    write,
)


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
    refused(
        source, tmp_path / "out.tsv", r"out\.tsv: a value contains a tab or a line break, .*; write \.jsonl instead$"
    )
    assert not (tmp_path / "out.tsv").exists()


def test_the_input_is_not_replaced(tmp_path):
    path, link = write(tmp_path / "both.csv"), tmp_path / "link.csv"
    link.symlink_to(path)
    content = path.read_text()
    for output, reason in ((path, "was not written by Headstart"), (link, "is a link")):
        refused(path, output, rf"{output}: exists, and {reason}; move it away", error=ArtifactError)
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
        refused(
            tmp_path / "in.jsonl",
            tmp_path / target,
            rf"{target}: a row has the column 'm', which the first row does not have; ",
            batch_size=1,
        )
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "n": "x"}\n')
    refused(
        tmp_path / "in.jsonl",
        tmp_path / "out.parquet",
        r"out.parquet: rows differ in their types .* write .jsonl instead",
        batch_size=1,
    )


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
    refused(source, tmp_path / "out.csv", r"out.csv: cannot be written \(No space left on device\); free space")
    assert names(tmp_path) == ["in.csv"]


@pytest.mark.parametrize("case", yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text()))
def test_inputs_may_have_the_names_of_the_labelled_data_and_a_txt_file_a_text_a_line(tmp_path, case):
    (path := tmp_path / case["name"]).write_text(case["content"])
    kind = case.get("kind", "classification")
    source = TaskSource(path="data", kind=kind, **case.get("keys", {"text": "review"}))
    labelled = input_columns(kind, vars(source))
    form = form_of_texts(path, {*labelled, *labelled.values()}, ["good", "poor"])
    columns = columns_of_data(path, kind=kind, source=source, form=form)
    assert columns == case.get("columns", {})
    if "texts" in case:
        model = Constant(kind, 1, 1, labels=["good", "poor"])
        predict_file(path, output=tmp_path / "out.jsonl", classifier=model, columns=columns, form=form)
        assert [" ".join(fields) for fields in model.rows] == case["texts"]


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
    assert predict_file(write(source, rows), output=output, classifier=model) == Predicted(len(rows), len(rows) - 1)
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
    ("name", "content", "message", "model"),
    [
        *(
            (*each, ByLength())
            for each in (
                ("in.csv", b"", r"in.csv: is empty$"),
                (
                    "in.csv",
                    b"id,body\n1,a\n",
                    r"in.csv: has no column 'text'; found: id, body; .* --column text=COLUMN$",
                ),
                ("in.csv", b'text,id\n"ab, c",2\n"abc,4\n', r"in.csv, line 3: a quote is not closed$"),
                ("in.csv", b"text,prediction\na,b\n", r"in.csv: already has a column 'prediction'; rename it$"),
                (
                    "in.jsonl",
                    b'{"text": "a"}\n{"body": "b"}\n',
                    r"in.jsonl, line 2: has no column 'text'; found: body$",
                ),
                ("in.jsonl", b'{"text": 7}\n', r"in.jsonl, line 1: 'text' is int, expected text$"),
                (
                    "in.jsonl",
                    b'{"text": "a"}\n{"text": "b", "confidence": 1}\n',
                    r"in.jsonl, line 2: already has a column 'confidence'",
                ),
                ("in.parquet", b"PAR1 cut off", r"in.parquet: damaged or truncated Parquet file"),
                ("in", b"x", r"in: the format is not recognised; save it as csv, "),
            )
        ),
        ("in.jsonl", b'{"text": "a", "choices": "x"}\n', r"in.jsonl, line 1: 'choices' is not a list in JSON", CHOICE),
        (
            "in.jsonl",
            b'{"text": "a", "choices": [1, 2]}\n',
            r"in.jsonl, line 1: 'choices' is list, expected a list of",
            CHOICE,
        ),
        ("in.jsonl", b'{"words": 7}\n', r"in.jsonl, line 1: 'words' is int, expected a list of texts$", TAGGING),
        ("in.jsonl", b'{"first": "a"}\n', r"in.jsonl, line 1: has no column 'second'; found: first$", PAIR),
        (
            "in.jsonl",
            b'{"question": "a", "context": [1]}\n',
            r"in.jsonl, line 1: 'context' is list, expected",
            QUESTIONS,
        ),
        ("in.jsonl", b'{"question": "a", "context": "b", "end": 1}\n', r"has a column 'end'; rename it$", QUESTIONS),
    ],
)
def test_the_message_names_bad_input_and_nothing_is_written(tmp_path, name, content, message, model):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, tmp_path / "out.csv", message, classifier=model, batch_size=1)
    assert names(tmp_path) == [name]


def test_a_wrong_value_is_named_by_its_column(tmp_path):
    """Columns may have the names of other inputs."""
    (tmp_path / "in.jsonl").write_text('{"first": "a", "second": 7}\n')
    swapped = {"first": "second", "second": "first"}
    refused(
        tmp_path / "in.jsonl",
        tmp_path / "out.jsonl",
        r"in.jsonl, line 1: 'second' is int, expected text$",
        classifier=PAIR,
        columns=swapped,
    )


# Bad rows: the message names the row, and other rows are predicted if it may be set aside.


def test_a_very_long_text(tmp_path):
    (tmp_path / "in.csv").write_text("text\n" + "x" * 2_000_000 + "\n")
    assert predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength()).rows == 1
    (tmp_path / "in.csv").write_text("text\na\n" + "x" * 2_000_001 + "\n")
    refused(
        tmp_path / "in.csv",
        tmp_path / "out.csv",
        "in.csv, line 3: 2,000,001 characters, more than 2,000,000; cut the text",
    )


BAD_ROWS = {
    "in.jsonl": (
        b'{"text": "one"}\n{"text": 5}\n{"text"\n[1]\n\n{"txt": "x"}\n{"text": "a\\u0000"}\n{"text": "two"}\n',
        [
            ("line 2: 'text' is int, expected text", {"text": 5}),
            ("line 3: not valid JSON", '{"text"'),
            ("line 4: ", "[1]"),
            ("line 6: has no column 'text'; found: txt", {"txt": "x"}),
            ("line 7: contains a NUL character; remove it", {"text": "a\0"}),
        ],
    ),
    "in.csv": (
        b'text,id\none,1\na,b,c\n"two",5\n"a"b,6\n',
        [
            ("line 3: 3 field(s) instead of 2", "a,b,c"),
            ("line 5: text follows a closing quote, or a quote is not closed", '"a"b,6'),
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_set_aside_with_their_reason_and_the_others_are_predicted(tmp_path, name):
    content, rejected = BAD_ROWS[name]
    source, output, rejects = tmp_path / name, tmp_path / f"out{Path(name).suffix}", tmp_path / "out.rejected.jsonl"
    source.write_bytes(content)
    done = predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert (done.rows, done.rejected) == (2, len(rejected))
    assert [word in output.read_text() for word in ("one", "two")] == [True, True]
    actual = [json.loads(line) for line in rejects.read_text().splitlines()]
    actual.sort(key=lambda line: int(re.search(r"line (\d+)", line["reason"]).group(1)))
    for line, (reason, row) in zip(actual, rejected, strict=True):
        assert line["reason"].startswith(f"{source}, {reason}")
        assert line["row"] == row
    # Without a place for them, the first is an error, and nothing is written.
    output.unlink()
    refused(source, output, r"line \d: ")
    assert not output.exists()


def test_the_rejects_of_an_earlier_run_are_removed_and_a_file_of_bad_rows_is_an_error(tmp_path):
    source, output, rejects = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    source.write_text('{"text": 5}\n{"text": 6}\n')
    refused(source, output, "every row is rejected, the first because: .*line 1: 'text' is int", rejects=rejects)
    assert names(tmp_path) == ["in.jsonl"]
    source.write_text("{\n")
    refused(source, output, "in.jsonl: no line can be read as a row", rejects=rejects)
    source.write_text('{"text": 5}\n{"text": "a"}\n')
    predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert len(rejects.read_text().splitlines()) == 1
    source.write_text('{"text": "a"}\n')
    assert predict_file(source, output=output, classifier=ByLength(), rejects=rejects).rejected == 0
    assert not rejects.exists()


def test_missing_files_and_columns_of_another_type(tmp_path):
    refused(tmp_path / "nowhere.csv", tmp_path / "out.csv", r"nowhere.csv: does not exist$")

    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "in.parquet")
    refused(tmp_path / "in.parquet", tmp_path / "out.csv", r"in.parquet: column 'text' is int64, expected text$")
    refused(tmp_path / "in.parquet", tmp_path / "out.xlsx", r"out.xlsx: is written in no format .*; known: .csv")
    write(tmp_path / "in.csv")
    (tmp_path / "file").write_text("")
    refused(
        tmp_path / "in.csv",
        tmp_path / "file" / "out.csv",
        r"out.csv: cannot be written \(.*\); free space or choose another path$",
    )


def test_an_input_that_the_task_does_not_have(tmp_path):
    write(tmp_path / "in.csv")
    refused(
        tmp_path / "in.csv",
        tmp_path / "out.csv",
        r"^the task has no input 'first'; known: text$",
        columns={"first": "text"},
        error=ConfigError,
    )
