"""Complete rows: names, order, types and line breaks are preserved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.data.formats.rows import open_rows


def read(path: Path) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    table = open_rows(path)
    return table.names, [(where.removeprefix(f"{path}, "), row) for where, row in table.rows]


@pytest.mark.parametrize(
    ("name", "content", "columns", "rows"),
    [
        # Fields of csv keep their line breaks, quotes are ordinary characters in tsv, rows of jsonl may differ.
        (
            "a.csv",
            b'\xef\xbb\xbfid,text\r\n1,"a\r\nb"\r\n\r\n2,c\r\n',
            ["id", "text"],
            [("line 2", {"id": "1", "text": "a\r\nb"}), ("line 5", {"id": "2", "text": "c"})],
        ),
        ("a.tsv", b'id\ttext\n1\t"a\n', ["id", "text"], [("line 2", {"id": "1", "text": '"a'})]),
        (
            "a.jsonl",
            b'{"id": 1, "list": [1]}\n\n{"text": "x"}\n',
            ["id", "list"],
            [("line 1", {"id": 1, "list": [1]}), ("line 3", {"text": "x"})],
        ),
    ],
)
def test_rows_of_text_files(tmp_path: Path, name: str, content: bytes, columns: list[str], rows: list[Any]) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == (columns, rows)


def test_parquet_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2], "tags": [["x"], []]}), path)
    assert read(path) == (["id", "tags"], [("row 1", {"id": 1, "tags": ["x"]}), ("row 2", {"id": 2, "tags": []})])
