"""Layouts of tables; those that corpora use are tested in tests/ingestion/test_readers.py."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.formats.rows import read_columns
from components.data.formats.tables import Layout


def rows(form: str, path: Path, columns: list[str], **layout: Any) -> list[tuple[int, tuple[Any, ...]]]:
    return list(read_columns(path, form, columns, Layout(**layout), Reading()))


SEMICOLONS = b'x;"y\nz;"w"\n'
SPREAD = b'a\tb\n"x\ty"\tz\n'


@pytest.mark.parametrize(
    ("form", "content", "columns", "layout", "expected"),
    [
        ("csv", SEMICOLONS, ["1"], {"header": False, "delimiter": ";", "quotes": False}, [('"y',), ('"w"',)]),
        ("tsv", SPREAD, ["b", "a"], {"quotes": True}, [("z", "x\ty")]),
        ("tsv", b"\xef\xbb\xbfQuality\t#1 String\r\n1\tx\r\n", ["Quality", "#1 String"], {}, [("1", "x")]),
        ("csv", "text\ncafé\n".encode("latin-1"), ["text"], {"encoding": "iso8859-1"}, [("café",)]),
        ("csv", "text\nสวัสดี\n".encode("cp874"), ["text"], {"encoding": "cp874"}, [("สวัสดี",)]),
        # A line of a JSON document may be longer than a line of text.
        ("json", json.dumps([["x" * 9_000_000]]).encode(), ["0"], {}, [("x" * 9_000_000,)]),
        # What is not named is guessed.
        ("csv", SEMICOLONS, ["1"], {"header": False, "delimiter": ";"}, [('"y',), ('"w"',)]),
        ("tsv", SPREAD, ["b", "a"], {}, [("z", "x\ty")]),
        ("json", b'[["x"],\n["caf\xe9"]]', ["0"], {}, [("x",), ("café",)]),
    ],
    ids=["delimiter", "quotes", "byte order mark", "latin-1", "cp874", "long", "no quotes", "tabs in quotes", "json"],
)
def test_layouts(tmp_path, form, content, columns, layout, expected):
    (tmp_path / "a").write_bytes(content)
    assert [values for _, values in rows(form, tmp_path / "a", columns, **layout)] == expected


@pytest.mark.parametrize(
    ("form", "content", "layout", "message"),
    [
        (
            "csv",
            b"0,1\n" + b"a,b,c\n" * 3 + b"d,e\n" * 9,
            {"header": True, "delimiter": ","},
            r"line 2: 3 field\(s\) instead of 2; so are 3 of 12 rows, read with delimiter comma, fields quoted .*--del",
        ),
        (
            "csv",
            b"1\n\xdb\n",
            {"encoding": "cp874"},
            r"a, line 2: byte 0xdb is not cp874; name the encoding \(encoding, --encoding\)",
        ),
    ],
)
def test_wrong_layouts_are_refused(tmp_path, form, content, layout, message):
    (tmp_path / "a").write_bytes(content)
    columns = {"json": ["0"], "tsv": ["a"]}.get(form, ["1"])
    with pytest.raises(DataError, match=message):
        rows(form, tmp_path / "a", columns, **layout)


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_a_column_name_that_occurs_twice_is_an_error(tmp_path, form):
    path, names = tmp_path / f"a.{form}", ["text", "label", "text"]
    if form == "parquet":
        pq.write_table(pa.table([["a"], ["b"], ["c"]], names=names), path)
    else:
        path.write_text("\n".join({"csv": ",", "tsv": "\t"}[form].join(row) for row in (names, "abc")))
    with pytest.raises(DataError, match=rf"a\.{form}: has two columns 'text'; rename one of them$"):
        rows(form, path, ["text", "label"])
    assert [values for _, values in rows(form, path, ["label"])] == [("b",)]


def test_json_documents_of_lists_and_of_objects(tmp_path):
    path = tmp_path / "a.json.gz"
    document = {"train": [["book a flight", "travel"]], "more": {"deep": [{"text": "hi", "n": 3}]}}
    path.write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    assert rows("json", path, ["1", "0"], member="train") == [(1, ("travel", "book a flight"))]
    assert rows("json", path, ["text", "n"], member="more.deep") == [(1, ("hi", "3"))]
    assert rows("json", path, ["text", "n"], member="more.deep", nested=True) == [(1, ("hi", 3))]


@pytest.mark.parametrize(
    ("document", "columns", "expected"),
    [
        ({"text": {"0": "a", "1": "b"}, "n": {"0": 1, "1": 2}}, ["text", "n"], [("a", 1), ("b", 2)]),
        ({str(n): {"text": "ab"[n % 2], "n": n} for n in range(3)}, ["text", "n"], [("a", 0), ("b", 1), ("a", 2)]),
        ({f"t{n}": {"text": "ab"[n % 2]} for n in range(2)}, ["id", "text"], [("t0", "a"), ("t1", "b")]),
        ({f"t{n}": {"id": n, "text": "a"} for n in range(3)}, ["id"], [(0,), (1,), (2,)]),
    ],
)
def test_a_json_object_holds_columns_or_rows_by_id(tmp_path, document, columns, expected):
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert [values for _, values in rows("json", tmp_path / "a.json", columns, nested=True)] == expected


@pytest.mark.parametrize(
    ("text", "member", "message"),
    [
        (
            '{"train": []}',
            "trian",
            r"no member 'trian'; did you mean 'train'\?; name it in params\.yaml as FILE#MEMBER",
        ),
        ('{"a": {"b": 1}}', "a.b", r"a\.json#a\.b: is no list of rows; save it as jsonl"),
        ('{"a": [{}], "b": [{}]}', "", r"a\.json: is no list of rows; name one of its members \(a, b\) as FILE#MEMBER"),
        ('[["x"], 3]', "", r"a\.json, row 2: is a int, neither an object nor a list of values"),
        ('[["x"], []]', "", r"a\.json, row 2: no column '0'; known: none"),
        ('[["x"],\n [[]]]', "", r"a\.json, row 2, column '0': holds a list where text is expected"),
        ('[["x"],\n ["y"]', "", r"a\.json: not valid JSON \(.*line 2 column 7.*\)"),
    ],
)
def test_errors_in_json_documents(tmp_path, text, member, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        rows("json", path, ["0"], member=member)


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_a_member_that_other_objects_have_may_be_missing(tmp_path, form):
    objects = ['{"text": "a"}', '{"text": "b", "label": "x"}', '{"label": "y"}']
    content = "\n".join(objects) if form == "jsonl" else f"[{', '.join(objects)}]"
    (tmp_path / f"a.{form}").write_text(content)
    actual = rows(form, tmp_path / f"a.{form}", ["text", "label"])
    assert actual == [(1, ("a", None)), (2, ("b", "x")), (3, (None, "y"))]
    with pytest.raises(DataError, match=r"no column 'labl'; did you mean 'label'\?; name the column in params.yaml"):
        rows(form, tmp_path / f"a.{form}", ["text", "labl"])


def test_nested_values_are_returned_as_lists(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"words": [["a", "b"], []], "n": [1, 2]}), path)
    assert rows("parquet", path, ["words", "n"], nested=True) == [(1, (["a", "b"], 1)), (2, ([], 2))]
    with pytest.raises(DataError, match=r"column 'words' is list<.*>, not text"):
        rows("parquet", path, ["words"])


@pytest.mark.parametrize(("form", "name"), [("jsonl", "a.jsonl"), ("json", "a.json")])
def test_lone_surrogates_in_json_are_replaced_and_counted(tmp_path, form, name):
    path = tmp_path / name
    row = r'{"text": "cut \ud83d", "labels": ["\ud83d"]}'
    path.write_text(row + "\n" if form == "jsonl" else f"[{row}]")
    reading = Reading()
    (result,) = read_columns(path, form, ["text", "labels"], Layout(nested=True), reading)
    assert result == (1, ("cut \ufffd", ["\ufffd"]))
    assert reading.bad_bytes == 2


def test_invalid_utf8_in_parquet_is_replaced_and_counted(tmp_path):
    path = tmp_path / "a.parquet"
    values = pa.array([b"fine", b"caf\xe9", None])
    text = pa.StringArray.from_buffers(3, *values.buffers()[1:], values.buffers()[0])
    pq.write_table(pa.table({"text": text, "list": pa.array([["x"]] * 3)}), path)
    reading = Reading()
    result = [row for _, row in read_columns(path, "parquet", ["text"], Layout(), reading)]
    assert result == [("fine",), ("caf\ufffd",), (None,)]
    assert (reading.bad_bytes, reading.bad_lines) == (1, 1)
    with pytest.raises(DataError, match=r"a\.parquet: column 'text' has text that is not valid UTF-8"):
        list(read_columns(path, "parquet", ["text"], Layout(nested=True), Reading()))
