"""Parquet files of `datasets`, whose labels are numbers with names in the schema's metadata."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows, read_columns
from components.data.formats.tables import Layout

CLASS = {"names": ["O", "B-per"], "_type": "ClassLabel"}


def write(path: Path, values: list[Any], feature: dict[str, Any]) -> Path:
    table = pa.table({"text": [f"row {row}" for row in range(len(values))], "label": values})
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": feature}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path)
    return path


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([0, 1, -1, None, 2], CLASS, ["O", "B-per", None, None, "2"]),
        ([[0, 1], [], None], {"feature": CLASS, "_type": "Sequence"}, [["O", "B-per"], [], None]),
        ([[1]], {"feature": CLASS, "_type": "List"}, [["B-per"]]),
        ([1, 0], {"dtype": "int64", "_type": "Value"}, [1, 0]),
    ],
)
def test_numbers_of_classes_are_read_as_names(tmp_path, values, feature, expected):
    path = write(tmp_path / "a.parquet", values, feature)
    rows = open_rows(path)
    assert [row["label"] for _, row in rows.rows] == expected
    assert rows.schema is not None and pa.array(expected, rows.schema.field("label").type).to_pylist() == expected
    trained_on = list(read_columns(path, "parquet", ["label", "text"], Layout(nested=True), Reading()))
    assert [value for _, (value, _) in trained_on] == expected


def test_metadata_of_another_form_are_ignored(tmp_path):
    table = pa.table({"label": [1]}).replace_schema_metadata({"huggingface": "no JSON"})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [row for _, row in open_rows(tmp_path / "a.parquet").rows] == [{"label": 1}]


def test_a_stream_of_arrow_is_named(tmp_path):
    table = pa.table({"text": ["a"]})
    with pa.ipc.new_stream(tmp_path / "data.arrow", table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(DataError, match=r"data.arrow: is an Arrow file; save it as parquet"):
        form_of(tmp_path / "data.arrow")
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(DataError, match="was written by `save_to_disk`; write each split with `to_parquet`"):
        form_of(tmp_path)
