"""Parquet files and Arrow streams as rows, a few megabytes at a time. The library `datasets` writes class labels as
numbers, whose names are in the schema's metadata; a value is the name."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.encoding import decode
from components.data.formats.lines import LINE_BYTES, too_long
from components.data.formats.tables import Numbered, Rows, problem

_ROWS = 4_096
_BYTES = 4_000_000
#: Key of the metadata of a schema.
METADATA: Final = b"huggingface"
#: First bytes of a Parquet file.
PARQUET: Final = b"PAR1"
#: Column -> names of its classes by number.
Names = Mapping[str, Sequence[str]]


def readable(path: Path) -> AbstractContextManager[None]:
    """Errors of pyarrow as errors of the file."""
    what = "damaged" if path.suffix == ".arrow" else "damaged or truncated Parquet file"
    do = "copy it again" if path.exists() else ""
    what = f"{what} ({{}})" if do else "does not exist"
    return problem(path, pa.ArrowException, OSError, UnicodeDecodeError, what=what, do=do)


@dataclass(frozen=True)
class Table:
    """An open Parquet file or Arrow stream. `compression`: of a Parquet file; None for a stream."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    compression: str | None = None


@contextmanager
def open_table(path: Path, wants: Callable[[pa.Field], bool] = lambda field: True) -> Iterator[Table]:
    """Open a Parquet file, or an Arrow stream, as which Hugging Face saves data sets.

    Args:
        wants: whether a column is read; a stream is read whole.
    """
    with path.open("rb") as head:
        is_parquet = head.read(4) == PARQUET or path.suffix == ".parquet"
    if not is_parquet:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            yield Table(stream.schema, stream)
        return
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        # About 4 MB of data at a time, by the average row size of the largest row group.
        longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
        codec = groups[0].column(0).compression if groups and groups[0].num_columns else "SNAPPY"
        names = [field.name for field in file.schema_arrow if wants(field)]
        size = min(max(_BYTES // max(longest, 1), 1), _ROWS)
        batches = file.iter_batches(batch_size=size, columns=names) if names else ()
        yield Table(file.schema_arrow, batches, "NONE" if codec == "UNCOMPRESSED" else codec)


def read_parquet(file: Rows, files: Sequence[Path] = ()) -> Numbered:
    """The rows. `files`: of the table, with the same schema; none: the file itself.

    Raises:
        DataError: a file is damaged, a column is not text and `layout.nested` is not set, a text of a column that is
            asked for is longer than 8 MB, or two columns have the same name.
    """
    number, files = 0, files or [file.path]
    for each in files:
        with readable(each), open_table(each, lambda field: file.wants(field.name)) as table:
            if each is files[0]:
                classes, counts = classes_of(table.schema), Counter(table.schema.names)
                wanted = [name for name in counts if file.wants(name)]
                if twice := [name for name in wanted if counts[name] > 1]:
                    raise DataError(f"has two columns {twice[0]!r}; rename one of them", where=file.path)
                fields = [
                    each.with_type(_of_texts(each.type)) if each.name in classes else each for each in table.schema
                ]
                file.names, file.schema = table.schema.names, pa.schema(fields, table.schema.metadata)
            for batch in table.batches:
                file.reading.text_bytes += batch.nbytes
                values = [_values(file, name, batch.column(name), classes.get(name, ())) for name in wanted]
                for row in zip(*values, strict=True):
                    number += 1
                    if file.columns and any(len(value) > LINE_BYTES for value in row if isinstance(value, str)):
                        raise too_long(file.path, f"row {number}")
                    yield number, dict(zip(wanted, row, strict=True))


def _values(file: Rows, name: str, column: pa.Array, classes: Sequence[str]) -> list[Any]:
    """The values of a column, with names of classes instead of numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind, nested = column.type, file.layout.nested
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if file.columns is not None and (binary or (pa.types.is_nested(kind) and not nested)):
        raise DataError(f"column {name!r} is {kind}, not text; write it as a string column", where=file.path)
    if classes:
        return [_named(value, classes) for value in column.to_pylist()]
    if not nested:
        column = column.cast(pa.string())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        if nested:
            what = f"column {name!r} has text that is not valid UTF-8; convert it"
            raise DataError(what, where=file.path) from error
        values = []
        for raw in column.cast(pa.binary()).to_pylist():
            text, bad = (None, 0) if raw is None else decode(raw)
            values.append(text)
            file.reading.bad_bytes += bad
            file.reading.bad_lines += bool(bad)
    return values


def classes_of(schema: pa.Schema | None) -> Names:
    """The names of the classes of each column that holds numbers of classes, or lists of them."""
    try:
        return class_names(json.loads(((schema and schema.metadata) or {})[METADATA])["info"]["features"])
    except (KeyError, ValueError, TypeError):
        return {}


def class_names(features: Any) -> dict[str, list[str]]:
    """The names of classes in features of a data set, which JSON maps by column, and YAML lists."""
    if isinstance(features, list):
        features = {each["name"]: each for each in features if isinstance(each, dict) and "name" in each}
    pairs = features.items() if isinstance(features, dict) else ()
    return {str(name): names for name, feature in pairs if (names := _classes(feature))}


def _classes(feature: Any) -> list[str]:
    if not isinstance(feature, dict):
        return []
    label = feature if feature.get("_type") == "ClassLabel" else feature.get("class_label")
    if isinstance(label, dict):
        names = label.get("names") or []
        return [str(names[key]) for key in sorted(names, key=int)] if isinstance(names, dict) else list(map(str, names))
    inner = (_classes(feature.get(key)) for key in ("feature", "dtype", "sequence", "list"))
    return next(filter(None, inner), [])


def _of_texts(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_of_texts(kind.field(0).type)) if pa.types.is_nested(kind) else pa.string()


def _named(value: Any, names: Sequence[str]) -> Any:
    """A negative number, a row without a label, is null."""
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, int):
        raise DataError(f"the number of a class is {value!r}, a {type(value).__name__}; write whole numbers")
    return None if value < 0 else names[value] if value < len(names) else str(value)
