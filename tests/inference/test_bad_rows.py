"""Prediction of files with bad rows: the message names the row, and other rows are predicted if it may be set aside."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import ConfigError, DataError
from tests.inference.files import ByLength, names, predict_file, write


def test_a_very_long_text(tmp_path):
    (tmp_path / "in.csv").write_text("text\n" + "x" * 2_000_000 + "\n")
    assert predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength()).rows == 1
    (tmp_path / "in.csv").write_text("text\na\n" + "x" * 2_000_001 + "\n")
    with pytest.raises(DataError, match="in.csv, line 3: 2,000,001 characters, more than 2,000,000; cut the text"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength())


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
    with pytest.raises(DataError, match=r"line \d: "):
        predict_file(source, output=output, classifier=ByLength())
    assert not output.exists()


def test_the_rejects_of_an_earlier_run_are_removed_and_a_file_of_bad_rows_is_an_error(tmp_path):
    source, output, rejects = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    source.write_text('{"text": 5}\n{"text": 6}\n')
    with pytest.raises(DataError, match="every row is rejected, the first because: .*line 1: 'text' is int"):
        predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert names(tmp_path) == ["in.jsonl"]
    source.write_text("{\n")
    with pytest.raises(DataError, match="in.jsonl: no line can be read as a row"):
        predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    source.write_text('{"text": 5}\n{"text": "a"}\n')
    predict_file(source, output=output, classifier=ByLength(), rejects=rejects)
    assert len(rejects.read_text().splitlines()) == 1
    source.write_text('{"text": "a"}\n')
    assert predict_file(source, output=output, classifier=ByLength(), rejects=rejects).rejected == 0
    assert not rejects.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", b"", r"in.csv: is empty$"),
        ("in.csv", b"id,body\n1,a\n", r"in.csv: has no column 'text'; found: id, body; .* --column text=COLUMN$"),
        ("in.csv", b"text\na\n\x81\x8d\x8f\n", r"in.csv: is not UTF-8, and no other encoding fits .* --encoding"),
        ("in.csv", b"text,id\na,1\nb,2,3\n", r"in.csv, line 3: 3 field\(s\) instead of 2$"),
        ("in.csv", b'text,id\n"ab, c",2\n"abc,4\n', r"in.csv, line 3: a quote is not closed$"),
        ("in.csv", b"text,id,text\na,1,b\n", r"in.csv: has two columns 'text'; rename one of them$"),
        ("in.csv", b"text,prediction\na,b\n", r"in.csv: already has a column 'prediction'; rename it$"),
        ("in.jsonl", b"\n\n", r"in.jsonl: is empty$"),
        ("in.jsonl", b'{"text": "a"}\n{"text": \n', r"in.jsonl, line 2: not valid JSON"),
        ("in.jsonl", b'{"text": "a"}\n\n["a"]\n', r"in.jsonl, line 3: is no JSON object with named values"),
        ("in.jsonl", b'{"text": "a"}\n{"body": "b"}\n', r"in.jsonl, line 2: has no column 'text'; found: body$"),
        ("in.jsonl", b'{"text": 7}\n', r"in.jsonl, line 1: 'text' is int, expected text$"),
        (
            "in.jsonl",
            b'{"text": "a"}\n{"text": "b", "confidence": 1}\n',
            r"in.jsonl, line 2: already has a column 'confidence'",
        ),
        ("in.parquet", b"PAR1 cut off", r"in.parquet: damaged or truncated Parquet file"),
        ("in.xlsx", b"x", r"in.xlsx: is no workbook; if it is text, name it .csv"),
        ("in", b"x", r"in: the format is not recognised; save it as csv, "),
    ],
)
def test_the_message_names_bad_input_and_nothing_is_written(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        predict_file(tmp_path / name, output=tmp_path / "out.csv", classifier=ByLength(), batch_size=1)
    assert names(tmp_path) == [name]


def test_missing_files_and_columns_of_another_type(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.csv: does not exist$"):
        predict_file(tmp_path / "nowhere.csv", output=tmp_path / "out.csv", classifier=ByLength())
    twice = pa.table([["a"], ["b"]], names=["text", "text"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match=r"twice.parquet: has two columns 'text'; rename one of them$"):
        predict_file(tmp_path / "twice.parquet", output=tmp_path / "out.csv", classifier=ByLength())
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in.parquet: column 'text' is int64, expected text$"):
        predict_file(tmp_path / "in.parquet", output=tmp_path / "out.csv", classifier=ByLength())
    with pytest.raises(DataError, match=r"out.xlsx: is written in no format .*; known: .csv"):
        predict_file(tmp_path / "in.parquet", output=tmp_path / "out.xlsx", classifier=ByLength())
    write(tmp_path / "in.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"out.csv: cannot be written \(.*\); free space or choose another path$"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "file" / "out.csv", classifier=ByLength())


def test_an_input_that_the_task_does_not_have(tmp_path):
    write(tmp_path / "in.csv")
    with pytest.raises(ConfigError, match=r"^the task has no input 'first'; known: text$"):
        predict_file(tmp_path / "in.csv", output=tmp_path / "out.csv", classifier=ByLength(), columns={"first": "text"})
