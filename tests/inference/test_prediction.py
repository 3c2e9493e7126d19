"""Prediction of files: formats, rows without input, messages about bad input."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.errors import ConfigError, DataError
from components.inference.prediction import Predicted, named_columns, predict_file, predict_rows
from components.tasks.data import Fields


class ByLength:
    """Predicts "short" with confidence 0.75 for texts of up to three characters, "long" with 1.0 for others."""

    kind = "classification"
    labels = ("short", "long")

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        self.batches.append([text for (text,) in rows])
        return [np.array([0.75, 0.25] if len(text) <= 3 else [0.0, 1.0], dtype=np.float32) for (text,) in rows]


ROWS = [
    {"id": 1, "text": "abc"},
    {"id": 2, "text": "with, a comma\nand a line"},
    {"id": 3, "text": ""},
    {"id": 4, "text": "ไทย"},
    {"id": 5, "text": "  \t"},
]
#: In a tsv every line is a row, and quotes have no special meaning.
TSV_ROWS = [{**row, "text": {2: '"Good", he said', 5: "  "}.get(row["id"], row["text"])} for row in ROWS]  # type: ignore[call-overload]
PREDICTIONS = ["short", "long", None, "short", None]
CONFIDENCES = [0.75, 1.0, None, 0.75, None]


def write(path: Path, rows: list[dict] = ROWS) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".tsv":
        path.write_text("id\ttext\n" + "".join(f"{row['id']}\t{row['text']}\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text"])
            writer.writeheader()
            writer.writerows(rows)
    return path


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".tsv":
        header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
        return [dict(zip(header, line, strict=True)) for line in lines]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("target", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_into_every_format(tmp_path: Path, suffix: str, target: str) -> None:
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
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_a_tsv_cannot_represent_tabs_and_line_breaks(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl")
    with pytest.raises(
        DataError, match=r"out\.tsv: a value contains a tab or a line break, .*; write \.jsonl instead$"
    ):
        predict_file(source, output=tmp_path / "out.tsv", classifier=ByLength())
    assert not (tmp_path / "out.tsv").exists()


def test_answers_contain_the_probabilities() -> None:
    short, none, long = predict_rows(ByLength(), [("ab",), None, ("abcd",)])
    assert short == {
        "prediction": "short", "label": "short", "confidence": 0.75, "probabilities": {"short": 0.75, "long": 0.25},
    }  # fmt: skip
    assert none is None
    assert long is not None and long["probabilities"] == {"short": 0.0, "long": 1.0}
    assert predict_rows(ByLength(), []) == []


def test_progress_is_reported_per_batch(tmp_path: Path) -> None:
    done: list[int] = []
    source = write(tmp_path / "in.jsonl")
    predict_file(source, output=tmp_path / "out.jsonl", classifier=ByLength(), batch_size=2, progress=done.append)

    assert done == [2, 2, 1]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_batch_ends_after_a_number_of_characters(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.inference.prediction.CHARACTERS", 10)
    done: list[int] = []
    source = write(tmp_path / f"in{suffix}")
    predict_file(source, output=tmp_path / "out.jsonl", classifier=ByLength(), progress=done.append)

    assert done == [2, 3]


def test_the_input_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    path, link = write(tmp_path / "both.csv"), tmp_path / "link.csv"
    link.symlink_to(path)
    content = path.read_text()
    for output in (path, link):
        with pytest.raises(DataError, match=rf"{output}: is the input; choose another .*with --overwrite$"):
            predict_file(path, output=output, classifier=ByLength())
    assert path.read_text() == content

    predict_file(path, output=path, classifier=ByLength(), overwrite=True)

    assert [row["prediction"] for row in read(path)] == ["short", "long", "", "short", ""]


def test_a_file_without_rows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n")
    for target in (".csv", ".parquet"):
        done = predict_file(tmp_path / "in.csv", output=tmp_path / f"out{target}", classifier=ByLength())
        assert done == Predicted(rows=0, empty=0)
        assert read(tmp_path / f"out{target}") == []
    assert (tmp_path / "out.csv").read_text() == "id,text,prediction,confidence\n"


def test_a_very_long_text(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\n" + "x" * 2_000_000 + "\n")
    assert predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength()).rows == 1
    (tmp_path / "in.csv").write_text("text\na\n" + "x" * 2_000_001 + "\n")
    with pytest.raises(DataError, match="in.csv, line 3: 2,000,001 characters, more than 2,000,000; cut the text"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength())


BAD_ROWS = {
    "in.jsonl": (
        b'{"text": "one"}\n{"text": 5}\n{"text"\n{"text": "a\xff"}\n[1]\n\n{"txt": "x"}\n{"text": "a\\u0000"}\n'
        b'{"text": "two"}\n',
        [
            ("line 2: 'text' is int, expected text", {"text": 5}),
            ("line 3: not valid JSON", '{"text"\n'),
            ("line 4: not UTF-8; convert the file", '{"text": "a\ufffd"}\n'),
            ("line 5: ", "[1]\n"),
            ("line 7: has no column 'text'; found: txt", {"txt": "x"}),
            ("line 8: contains a NUL character; remove it", {"text": "a\0"}),
        ],
    ),
    "in.csv": (
        b'text,id\none,1\na\xff,2\na,b,c\n"two",5\n',
        [
            ("line 3: not UTF-8; convert the file", {"text": "a\ufffd", "id": "2"}),
            ("line 4: has more fields than the header's 2", {"text": "a", "id": "b"}),
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_set_aside_with_their_reason_and_the_others_are_predicted(tmp_path: Path, name: str) -> None:
    content, rejected = BAD_ROWS[name]
    source, output, rejects = tmp_path / name, tmp_path / f"out{Path(name).suffix}", tmp_path / "out.rejected.jsonl"
    source.write_bytes(content)
    done = predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert (done.rows, done.rejected) == (2, len(rejected))
    assert [word in output.read_text() for word in ("one", "two")] == [True, True]
    found = [json.loads(line) for line in rejects.read_text().splitlines()]
    for line, (reason, row) in zip(found, rejected, strict=True):
        assert line["reason"].startswith(f"{source}, {reason}")
        assert line["row"] == row
    # Without a place for them, the first is an error, and nothing is written.
    output.unlink()
    with pytest.raises(DataError, match=rejected[0][0]):
        predict_file(source, output=output, classifier=ByLength())
    assert not output.exists()


def test_the_rejects_of_an_earlier_run_are_removed_and_a_file_of_bad_rows_is_an_error(tmp_path: Path) -> None:
    source, output, rejects = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    source.write_text('{"text": 5}\n{"text": 6}\n')
    with pytest.raises(DataError, match="every row is rejected, the first because: .*line 1: 'text' is int"):
        predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert not output.exists() and len(rejects.read_text().splitlines()) == 2
    source.write_text("{\n")
    with pytest.raises(DataError, match="in.jsonl: no line can be read as a row"):
        predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    source.write_text('{"text": "a"}\n')
    assert predict_file(source, output=output, classifier=ByLength(), rejects=rejects).rejected == 0
    assert not rejects.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", b"", r"in.csv: is empty$"),
        ("in.csv", b"id,body\n1,a\n", r"in.csv: has no column 'text'; found: id, body$"),
        ("in.csv", b"text\na\n\xff\xfe\n", r"in.csv, line \d: not UTF-8; convert the file"),
        ("in.csv", b"text,id\na,1\nb,2,3\n", r"in.csv, line 3: has more fields than the header's 2$"),
        ("in.csv", b'text\n"abc\n', r"in.csv, line \d: cannot be read \(unexpected end of data\)$"),
        ("in.csv", b"text,id,text\na,1,b\n", r"in.csv: has two columns 'text'; rename one of them$"),
        ("in.tsv", b"text\tid\tid\na\t1\t2\n", r"in.tsv: has two columns 'id'; rename one of them$"),
        ("in.csv", b"text,prediction\na,b\n", r"in.csv: already has a column 'prediction'; rename it$"),
        ("in.jsonl", b"\n\n", r"in.jsonl: is empty$"),
        ("in.jsonl", b'{"text": "a"}\n{"text": \n', r"in.jsonl, line 2: not valid JSON"),
        ("in.jsonl", b'{"text": "a"}\n\n["a"]\n', r"in.jsonl, line 3: is a JSON list, not an object"),
        ("in.jsonl", b'{"text": "a"}\n{"body": "b"}\n', r"in.jsonl, line 2: has no column 'text'; found: body$"),
        ("in.jsonl", b'{"text": 7}\n', r"in.jsonl, line 1: 'text' is int, expected text$"),
        ("in.jsonl", b'{"text": "\xe9"}\n', r"in.jsonl, line 1: not UTF-8"),
        (
            "in.jsonl",
            b'{"text": "a"}\n{"text": "b", "confidence": 1}\n',
            r"in.jsonl, line 2: already has a column 'confidence'",
        ),
        ("in.parquet", b"PAR1 cut off", r"in.parquet: not a complete parquet file"),
        ("in.xlsx", b"x", r"in.xlsx: unknown format '.xlsx'; known: .csv, .tsv, .jsonl, .parquet$"),
        ("in", b"x", r"in: unknown format '\(no suffix\)'"),
    ],
)
def test_the_message_names_bad_input_and_nothing_is_written(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "out.csv").write_text("from before")

    with pytest.raises(DataError, match=message):
        predict_file(tmp_path / name, output=tmp_path / "out.csv", classifier=ByLength(), batch_size=1)
    assert (tmp_path / "out.csv").read_text() == "from before"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "out.csv"])


@pytest.mark.parametrize("target", [".jsonl", ".csv", ".parquet"])
def test_half_of_a_surrogate_pair_is_replaced(tmp_path: Path, target: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "\\ud83d", "text": "ab\\ud83d"}\n')
    predict_file(source, output=tmp_path / f"out{target}", classifier=(model := ByLength()))
    assert model.batches == [["ab\ufffd"]]
    assert read(tmp_path / f"out{target}")[0]["id"] == "\ufffd"


def test_columns_that_differ_from_row_to_row(tmp_path: Path) -> None:
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


def test_missing_files_and_columns_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.csv: does not exist$"):
        predict_file(tmp_path / "nowhere.csv", output=tmp_path / "out.csv", classifier=ByLength())
    twice = pa.table([["a"], ["b"]], names=["text", "text"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match=r"twice.parquet: has two columns 'text'; rename one of them$"):
        predict_file(tmp_path / "twice.parquet", output=tmp_path / "out.csv", classifier=ByLength())
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in.parquet: column 'text' is int64, expected text$"):
        predict_file(tmp_path / "in.parquet", output=tmp_path / "out.csv", classifier=ByLength())
    with pytest.raises(DataError, match=r"out.xlsx: unknown format"):
        predict_file(tmp_path / "in.parquet", output=tmp_path / "out.xlsx", classifier=ByLength())
    write(tmp_path / "in.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"out.csv: cannot be written \(.*\); free space or choose another path$"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "file" / "out.csv", classifier=ByLength())


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
        {
            "prediction": "B-PER I-PER O",
            "spans": [{"start": 0, "end": 2, "type": "PER", "text": "Marie Curie"}],
        },
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
    found = read(output)
    assert found[0] == rows[0] | answer
    assert all(found[-1][name] is None for name in answer) or len(rows) == 1


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


@pytest.mark.parametrize(
    ("model", "content", "message"),
    [
        (
            Constant("choice", 1, 0),
            '{"text": "a", "choices": "x"}',
            r"in.jsonl, line 1: 'choices' is not a list in JSON",
        ),
        (
            Constant("choice", 1, 0),
            '{"text": "a", "choices": [1, 2]}',
            r"in.jsonl, line 1: 'choices' is list, expected a list of",
        ),
        (
            Constant("tagging", 1, labels=TAGS),
            '{"words": 7}',
            r"in.jsonl, line 1: 'words' is int, expected a list of texts$",
        ),
        (Constant("pair", 1, 0), '{"first": "a"}', r"in.jsonl, line 1: has no column 'second'; found: first$"),
        (
            Constant("questions", 0, 0, 0, 0),
            '{"question": "a", "context": [1]}',
            r"in.jsonl, line 1: 'context' is list, expected",
        ),
        (
            Constant("questions", 0, 0, 0, 0),
            '{"question": "a", "context": "b", "end": 1}',
            r"has a column 'end'; rename it$",
        ),
    ],
)
def test_bad_inputs_of_other_kinds(tmp_path: Path, model: Constant, content: str, message: str) -> None:
    (tmp_path / "in.jsonl").write_text(content + "\n")
    with pytest.raises(DataError, match=message):
        predict_file(tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", classifier=model)


def test_columns_by_name() -> None:
    assert named_columns([]) == {}
    assert named_columns(["body"]) == {"text": "body"}
    assert named_columns(["first=a", "second=b=c"]) == {"first": "a", "second": "b=c"}
    for wrong in (["first="], ["=a"], ["first=a", "first=b"]):
        with pytest.raises(ConfigError, match=r"expected INPUT=COLUMN, once for each input"):
            named_columns(wrong)


class Broken(ByLength):
    """Raises an OSError that has nothing to do with the output."""

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        raise FileNotFoundError(2, "No such file", "model.safetensors")


@pytest.mark.parametrize("target", [".csv", ".jsonl", ".parquet"])
def test_errors_of_the_classifier_are_not_reported_as_errors_of_the_output(tmp_path: Path, target: str) -> None:
    source = write(tmp_path / "in.csv")
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        predict_file(source, output=tmp_path / f"out{target}", classifier=Broken())
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("failing", ["write", "close"])
def test_errors_of_writing_are_reported_as_errors_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            if failing == "write" and "short" in text:
                raise OSError(28, "No space left on device")
            return super().write(text)

        def close(self) -> None:
            if failing == "close" and not self.closed:
                super().close()
                raise OSError(28, "No space left on device")
            super().close()

    source, opened = write(tmp_path / "in.csv"), Path.open

    def open_(path: Path, mode: str = "r", **options: Any) -> Any:
        return Full() if mode == "w" else opened(path, mode, **options)

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(DataError, match=r"out.csv: cannot be written \(No space left on device\); free space"):
        predict_file(source, output=tmp_path / "out.csv", classifier=ByLength())
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_an_error_while_reading_names_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(io.StringIO):
        def __next__(self) -> str:
            raise OSError(5, "Input/output error")

    source, opened = write(tmp_path / "in.csv"), Path.open
    monkeypatch.setattr(Path, "open", lambda path, *a, **k: Damaged() if path == source else opened(path, *a, **k))
    with pytest.raises(DataError, match=r"in.csv, line 1: cannot be read \(\[Errno 5\] Input/output error\)$"):
        predict_file(source, output=tmp_path / "out.csv", classifier=ByLength())


def test_an_input_that_the_task_does_not_have(tmp_path: Path) -> None:
    write(tmp_path / "in.csv")
    with pytest.raises(ConfigError, match=r"^the task has no input 'first'; known: text$"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength(), columns={"first": "text"})
