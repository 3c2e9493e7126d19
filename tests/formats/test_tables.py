"""Layouts of tables; those that corpora use are tested in tests/ingestion/test_readers.py."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.errors import DataError
from components.formats.lines import Reading
from components.formats.tables import TABLES, Layout, suffix


def rows(form: str, path: Path, columns: list[str], **layout: Any) -> list[tuple[int, tuple[Any, ...]]]:
    return list(TABLES[form](path, columns, Layout(**layout), Reading()))


def test_another_delimiter_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x;"y\nz;"w"\n')
    assert rows("csv", path, ["1"], header=False, delimiter=";", quotes=False) == [(1, ('"y',)), (2, ('"w"',))]
    with pytest.raises(
        DataError, match="row that begins on line 1: .* or set quotes: false if quotes are ordinary characters"
    ):
        rows("csv", path, ["1"], header=False, delimiter=";")


def test_quotes_on_in_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('a\tb\n"x\ty"\tz\n')
    assert rows("tsv", path, ["b", "a"], quotes=True) == [(2, ("z", "x\ty"))]
    with pytest.raises(
        DataError, match="line 2: 3 fields, the first line has 2; set quotes: true if fields are quoted"
    ):
        rows("tsv", path, ["a"])


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"\xef\xbb\xbfQuality\t#1 String\r\n1\tx\r\n")
    assert rows("tsv", path, ["Quality", "#1 String"]) == [(2, ("1", "x"))]


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_a_column_name_that_occurs_twice_is_an_error(tmp_path: Path, form: str) -> None:
    path, names = tmp_path / f"a.{form}", ["text", "label", "text"]
    if form == "parquet":
        pq.write_table(pa.table([["a"], ["b"], ["c"]], names=names), path)
    else:
        path.write_text("\n".join({"csv": ",", "tsv": "\t"}[form].join(row) for row in (names, "abc")))
    with pytest.raises(DataError, match=rf"a\.{form}: has two columns 'text'; rename one of them$"):
        rows(form, path, ["text", "label"])
    assert [values for _, values in rows(form, path, ["label"])] == [("b",)]


def test_single_byte_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\ncafé\n".encode("latin-1"))
    assert rows("csv", path, ["text"], encoding="iso8859-1") == [(2, ("café",))]
    path.write_bytes("text\nสวัสดี\n".encode("cp874"))
    assert rows("csv", path, ["text"], encoding="cp874") == [(2, ("สวัสดี",))]
    path.write_bytes(b"text\n\xdb\n")
    with pytest.raises(DataError, match=r"a\.csv, line 2: byte 0xdb is not cp874; correct `encoding` in params\.yaml"):
        rows("csv", path, ["text"], encoding="cp874")


def test_json_documents_of_lists_and_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    document = {"train": [["book a flight", "travel"]], "more": {"deep": [{"text": "hi", "n": 3}]}}
    path.write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    assert rows("json", path, ["1", "0"], member="train") == [(1, ("travel", "book a flight"))]
    assert rows("json", path, ["text", "n"], member="more.deep") == [(1, ("hi", "3"))]
    assert rows("json", path, ["text", "n"], member="more.deep", nested=True) == [(1, ("hi", 3))]


@pytest.mark.parametrize(
    ("text", "member", "message"),
    [
        (
            '{"train": []}',
            "trian",
            r"no member 'trian'; did you mean 'train'\?; name it in params\.yaml as FILE#MEMBER",
        ),
        ('{"a": {"b": 1}}', "a.b", r"a\.json#a\.b: is a int, not a list of rows; name a list as FILE#MEMBER"),
        ('{"a": []}', "", r"a\.json: is a dict, not a list of rows; name one of its members \(a\) as FILE#MEMBER"),
        ('[["x"], 3]', "", r"a\.json, row 2: is a int, neither an object nor a list of values"),
        ('[["x"], []]', "", r"a\.json, row 2: no column '0'; known: none"),
        ('[["x"],\n [[]]]', "", r"a\.json, row 2: holds a list where text is expected"),
        ('[["x"],\n ["y"]', "", r"a\.json: not valid JSON \(.*line 2 column 7.*\)"),
    ],
)
def test_errors_in_json_documents(tmp_path: Path, text: str, member: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        rows("json", path, ["0"], member=member)


def test_a_json_document_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[["x"],\n["caf\xe9"]]')
    with pytest.raises(DataError, match=r"a\.json, line 2: byte 0xe9 is not UTF-8; convert it"):
        rows("json", path, ["0"])


def test_one_line_of_json_may_be_longer_than_a_line_of_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([["x" * 9_000_000]]))
    assert len(rows("json", path, ["0"])[0][1][0]) == 9_000_000


def test_nested_values_are_returned_as_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"words": [["a", "b"], []], "n": [1, 2]}), path)
    assert rows("parquet", path, ["words", "n"], nested=True) == [(1, (["a", "b"], 1)), (2, ([], 2))]
    with pytest.raises(DataError, match=r"column 'words' is list<.*>, not text"):
        rows("parquet", path, ["words"])


def test_the_suffix_ignores_compression() -> None:
    assert [suffix(name) for name in ("a.JSONL.gz", "b.tsv.zst", "c", "TREC.train.all")] == [
        ".jsonl",
        ".tsv",
        "",
        ".all",
    ]


@pytest.mark.parametrize(("form", "name"), [("jsonl", "a.jsonl"), ("json", "a.json")])
def test_lone_surrogates_in_json_are_replaced_and_counted(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    row = r'{"text": "cut \ud83d", "labels": ["\ud83d"]}'
    path.write_text(row + "\n" if form == "jsonl" else f"[{row}]")
    reading = Reading()
    (found,) = TABLES[form](path, ["text", "labels"], Layout(nested=True), reading)
    assert found == (1, ("cut \ufffd", ["\ufffd"]))
    assert reading.bad_bytes == 2


def test_invalid_utf8_in_parquet_is_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = pa.array([b"fine", b"caf\xe9", None])
    text = pa.StringArray.from_buffers(3, *values.buffers()[1:], values.buffers()[0])
    pq.write_table(pa.table({"text": text, "list": pa.array([["x"]] * 3)}), path)
    reading = Reading()
    found = [row for _, row in TABLES["parquet"](path, ["text"], Layout(), reading)]
    assert found == [("fine",), ("caf\ufffd",), (None,)]
    assert (reading.bad_bytes, reading.bad_lines) == (1, 1)
    with pytest.raises(DataError, match=r"a\.parquet: column 'text' has text that is not valid UTF-8"):
        list(TABLES["parquet"](path, ["text"], Layout(nested=True), Reading()))
