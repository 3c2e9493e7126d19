"""Complete rows: names, order, types and line breaks are preserved."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.errors import DataError
from components.formats.rows import open_rows


def read(path: Path) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    with ExitStack() as stack:
        table = open_rows(path, stack)
        return table.names, [(where.removeprefix(f"{path}, "), row) for where, row in table.rows]


def test_fields_of_csv_keep_their_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"a\r\nb"\r\n\r\n2,c\r\n')
    assert read(path) == (
        ["id", "text"],
        [("line 3", {"id": "1", "text": "a\r\nb"}), ("line 5", {"id": "2", "text": "c"})],
    )


def test_quotes_are_ordinary_characters_in_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('id\ttext\n1\t"a\n')
    assert read(path) == (["id", "text"], [("line 2", {"id": "1", "text": '"a'})])


def test_rows_of_jsonl_may_have_different_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "list": [1]}\n\n{"text": "x"}\n')
    assert read(path) == (["id", "list"], [("line 1", {"id": 1, "list": [1]}), ("line 3", {"text": "x"})])


def test_parquet_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "tags": [["x"], []]}), path)
    assert read(path) == (["id", "tags"], [("row 1", {"id": 1, "tags": ["x"]}), ("row 2", {"id": 2, "tags": []})])


def test_invalid_utf8_in_parquet_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = pa.array([b"caf\xe9"])
    text = pa.StringArray.from_buffers(1, *values.buffers()[1:], values.buffers()[0])
    pq.write_table(pa.table({"text": text}), path)
    with pytest.raises(DataError, match=r"a\.parquet, after row 0: not UTF-8; convert the file"):
        read(path)
