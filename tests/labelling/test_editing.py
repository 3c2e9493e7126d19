"""Rows added to, changed in and removed from labelled files of every format; all else stays as it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.errors import DataError
from components.labelling.editing import Fate, NewRow, edit_file
from components.labelling.rows import Names, read_rows
from components.settings.tasks import TaskSource
from components.tasks.data import Fields

NEW = [NewRow(("a new, text",), ("yes",), "label-1")]


def decide(fields: Fields, labels: Names | None) -> Fate:
    return {"two": ("yes",), "three": "remove"}.get(fields[0], "keep")  # type: ignore[return-value]


def source(folder: Path, train: str, **keys: Any) -> TaskSource:
    return TaskSource(path=str(folder), train=train, dev=None, test=train, **keys)


def rows(task: TaskSource) -> list[tuple[Fields, Names | None]]:
    return [(row.fields, row.labels) for row in read_rows(task, splits=("train",))]


EXPECTED = [(("one",), ("no",)), (("two",), ("yes",)), (("a new, text",), ("yes",))]


@pytest.mark.parametrize(
    ("name", "before", "after", "keys"),
    [
        (
            "t.csv",
            'id,text,label\r\n7,"one",no\r\n8,two,no\r\n\r\n9,three,no',
            'id,text,label\r\n7,"one",no\r\n8,two,yes\r\n\r\nlabel-1,"a new, text",yes\r\n',
            {"id": "id"},
        ),
        (
            "t.tsv",
            'one\tno\t"\ntwo\tno\t-\nthree\tno\t-\n',
            'one\tno\t"\ntwo\tyes\t-\na new, text\tyes\t\n',
            {"header": False, "text": "0", "label": "1"},
        ),
        (
            "t.jsonl",
            '{"label": "no",  "text": "one"}\n\n{"text": "two", "label": "no", "x": [1]}\n'
            '{"text": "three", "label": "no"}',
            '{"label": "no",  "text": "one"}\n\n{"text": "two", "label": "yes", "x": [1]}\n'
            '{"text": "a new, text", "label": "yes"}\n',
            {},
        ),
        (
            "t.txt",
            "no one\nno two\nno three\n",
            "no one\nyes two\nyes a new, text\n",
            {"format": "label-first"},
        ),
    ],
)
def test_text_files_keep_all_other_bytes(
    tmp_path: Path, name: str, before: str, after: str, keys: dict[str, Any]
) -> None:
    file = tmp_path / name
    file.write_bytes(before.encode())
    task = TaskSource(path=str(tmp_path), train=name, dev=None, test=name, **keys)
    assert edit_file(name, task, decide=decide, added=NEW) == 2
    assert file.read_bytes().decode() == after
    assert rows(task) == EXPECTED


def test_a_missing_file_is_made_with_its_columns(tmp_path: Path) -> None:
    for name in ("t.csv", "t.jsonl", "t.parquet", "t.json"):
        task = source(tmp_path / "new", name, id="id")
        assert edit_file(name, task, decide=decide, added=NEW) == 0
        assert rows(task) == EXPECTED[2:]
    assert (tmp_path / "new" / "t.csv").read_text() == 'text,label,id\n"a new, text",yes,label-1\n'
    member = source(tmp_path / "new", "m.json#data.train")
    edit_file("m.json#data.train", member, decide=decide, added=NEW)
    assert rows(member) == EXPECTED[2:]


def test_compressed_files_json_and_parquet(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": text, "label": "no"}) + "\n" for text in ("one", "two", "three"))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "t.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines.encode(), asbytes=True))
    document = {"train": [["one", "no"], ["two", "no"], ["three", "no"]], "test": [["four", "no"]]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    table = pa.table(
        {"text": ["one", "two", "three"], "label": pa.array(["no"] * 3).dictionary_encode(), "n": [1, 2, 3]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    for name in ("t.jsonl.gz", "t.jsonl.zst", "t.parquet"):
        task = source(tmp_path, name)
        assert edit_file(name, task, decide=decide, added=NEW) == 2
        assert rows(task) == EXPECTED
    read = pq.read_table(tmp_path / "t.parquet")
    assert read.schema.equals(table.schema)
    assert read.column("n").to_pylist() == [1, 2, None]
    task = source(tmp_path, "t.json#train", text="0", label="1")
    assert edit_file("t.json#train", task, decide=decide, added=NEW) == 2
    assert rows(task) == EXPECTED
    assert json.loads((tmp_path / "t.json").read_text())["test"] == document["test"]


def test_labels_that_are_numbers_stay_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two"], "label": [0, 1]}), tmp_path / "t.parquet")
    task = source(tmp_path, "t.parquet")
    edit_file("t.parquet", task, decide=lambda fields, _: ("0",) if fields == ("two",) else "keep")
    assert pq.read_table(tmp_path / "t.parquet").column("label").to_pylist() == [0, 0]


def test_parallel_files_stay_aligned(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    for name, content in (("text", "one\ntwo\nthree\n"), ("label", "no\nno\nno\n"), ("other", "a\nb\nc")):
        (folder / name).write_text(content)
    task = source(tmp_path, "train", format="parallel")
    assert edit_file("train", task, decide=decide, added=NEW) == 2
    assert rows(task) == EXPECTED
    assert (folder / "other").read_text() == "a\nb\n\n"


@pytest.mark.parametrize(
    ("name", "keys", "before", "after"),
    [
        ("t.jsonl", {}, '{"text": "one", "label": ["b", "a"]}\n', '{"text": "two", "label": ["a", "c"]}\n'),
        ("t.csv", {"label_separator": "|"}, "text,label\none,b|a\n", "two,a|c\n"),
        ("t.csv", {"labels": ["a", "b", "c"]}, "text,a,b,c\none,1,1,0\n", "two,1,0,1\n"),
    ],
)
def test_several_labels(tmp_path: Path, name: str, keys: dict[str, Any], before: str, after: str) -> None:
    (tmp_path / name).write_text(before)
    task = source(tmp_path, name, kind="multilabel", **keys)
    edit_file(name, task, decide=lambda *_: "keep", added=[NewRow(("two",), ("a", "c"), "")])
    assert (tmp_path / name).read_text() == before + after
    assert rows(task) == [(("one",), ("a", "b")), (("two",), ("a", "c"))]


def test_what_a_format_cannot_hold_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("no one\n")
    task = source(tmp_path, "t.txt", format="label-first")
    with pytest.raises(DataError, match=r"t\.txt: .*a label has no white space"):
        edit_file("t.txt", task, decide=decide, added=[NewRow(("a",), ("two words",), "")])
    (tmp_path / "t.tsv").write_text("text\tlabel\none\tno\n")
    with pytest.raises(DataError, match="set quotes: true"):
        edit_file("t.tsv", source(tmp_path, "t.tsv"), decide=decide, added=[NewRow(("a\tb",), ("no",), "")])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.tsv", "t.txt"]
    assert (tmp_path / "t.tsv").read_text() == "text\tlabel\none\tno\n"


def test_a_carriage_return_in_a_text_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"text,label\none,no\n")
    task = source(tmp_path, "t.csv")
    for number, text in enumerate(("a\rb", "=1+2", "'=1+2")):
        edit_file("t.csv", task, decide=decide, added=[NewRow((text,), ("yes",), f"label-{number}")])
    assert [fields for fields, _ in rows(task)] == [("one",), ("a\rb",), ("=1+2",), ("'=1+2",)]
