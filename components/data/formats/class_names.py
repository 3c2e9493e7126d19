"""Names of classes in Parquet files of the library `datasets`, whose columns hold the numbers of the classes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

#: Key of the schema's metadata.
KEY = b"huggingface"
#: Column -> names of its classes.
Names = Mapping[str, Sequence[str]]


def class_names(schema: pa.Schema) -> Names:
    """The names of the classes of each column that holds numbers of classes, or lists of them."""
    try:
        features = json.loads((schema.metadata or {})[KEY])["info"]["features"]
        features = {name: feature.get("feature", feature) for name, feature in features.items()}
        return {name: each["names"] for name, each in features.items() if each.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def named(batch: pa.RecordBatch, names: Names) -> pa.RecordBatch:
    """The batch with names of classes instead of numbers. -1, a row without a label, becomes null."""
    for place, column in enumerate(batch.schema.names):
        if column in names:
            values = [_named(value, names[column]) for value in batch.column(place).to_pylist()]
            text = pa.string()
            kind = pa.list_(text) if pa.types.is_nested(batch.schema.types[place]) else text
            batch = batch.set_column(place, column, pa.array(values, kind))
    return batch


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if not isinstance(value, int):
        return value
    return None if value < 0 else names[value] if value < len(names) else str(value)
