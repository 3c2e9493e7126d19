"""Complete rows: names, order, types and line breaks are preserved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.delimited import Dialect, different_names
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows, read_columns
from components.data.formats.tables import Layout


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


def test_private_characters_and_lone_returns_of_csv_are_kept(tmp_path: Path) -> None:
    texts = ["a\ue00db", "c\rd", "\ue00d0", "\ue00d1\r\ue00d", "\ue00d\r", "plain"]
    path = tmp_path / "a.csv"
    header = "id\ue00d\r,text\n"
    path.write_bytes("".join([header, *(f'{n},"{text}"\n' for n, text in enumerate(texts)), "bad\ue00d\r\n"]).encode())
    rejected: list[Any] = []
    table = open_rows(path, rejected=lambda error, row: rejected.append(row))
    assert table.names == ["id\ue00d\r", "text"]
    assert [row["text"] for _, row in table.rows] == texts and rejected == ["bad\ue00d\r"]


def test_names_of_columns_differ_and_are_not_too_many(tmp_path: Path) -> None:
    header = ["a", "a (2)", "a", "", "a", "column 4"]
    assert different_names(header) == ["a", "a (2)", "a (3)", "column 4", "a (4)", "column 4 (2)"]
    assert different_names(["a"] * 10_000)[-1] == "a (10000)"
    path = tmp_path / "a.csv"
    path.write_text("sep=;\n" + "a;" * 10_000 + "a\n" + "1;" * 10_000 + "1\n")
    with pytest.raises(
        DataError, match=r"a\.csv, line 2: 10,001 columns, the maximum is 10,000, .* name the delimiter"
    ):
        open_rows(path)


@pytest.mark.parametrize("above", ["sep=;\n", "\n\n"])
def test_the_line_of_the_header_is_named(tmp_path: Path, above: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{above}text;label\ngood;pos\nbad;neg\n")
    with pytest.raises(DataError, match=rf"a\.csv, line {above.count(chr(10)) + 1}: no column 'txt'"):
        list(read_columns(path, "csv", ["txt"], Layout(), Reading()))


def test_a_line_of_csv_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\ngood,1\n" + "x" * 8_000_001 + ",2\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3: longer than 8 MB; write one document"):
        list(open_rows(path).rows)


def test_escaped_quotes_are_doubled_within_quoted_fields_only() -> None:
    dialect = Dialect(escape="\\")
    text = '5\\" pipe,"a \\"b\\" \\\\","",c\\"\n"two\n'
    # The last field goes on in the next part.
    assert "".join(dialect.doubled([text, 'l\\"i",x\\"\n'])) == ('5\\" pipe,"a ""b"" \\","",c\\"\n"two\nl""i",x\\"\n')


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("train.csv", "text,label\na,0\nb,7\n", "line 3"),
        ("train.jsonl", '{"text": "a", "label": 0}\n\n{"text": "b", "label": 7}\n', "line 3"),
        ("train.json", '[{"text": "a", "label": 0}, {"text": "b", "label": 7}]', "row 2"),
    ],
)
def test_places_in_files_of_a_repository(tmp_path: Path, name: str, content: str, place: str) -> None:
    (tmp_path / "README.md").write_text(
        "---\ndataset_info:\n  features:\n  - name: label\n    dtype:\n      class_label:\n        names:\n"
        "          '0': neg\n          '1': pos\n---\n"
    )
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=rf"{name}, {place}: 'label' is '?7'?, and the data set has 2 classes"):
        list(read_columns(tmp_path / name, "datasets", ["text", "label"], Layout(), Reading()))


def test_rows_of_jsonl_that_lack_a_column(tmp_path: Path) -> None:
    """All names are looked for in the encoding of the file, and beyond bad lines."""
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "é"}\n{bad\n{"text": "b", "größe": "1"}\n'.encode("cp1252"))
    rejected: list[Any] = []
    table = open_rows(path, layout=Layout(encoding="cp1252"), rejected=lambda error, row: rejected.append(row))
    assert list(table.values(["text", "größe"], nested=False)) == [(1, ("é", None)), (3, ("b", "1"))]
    assert rejected == ["{bad"]


def test_a_missing_parquet_file_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet: does not exist$"):
        open_rows(tmp_path / "a.parquet")
