"""Data sets of Hugging Face as tables: folders of `save_to_disk`, and repositories of parquet, csv or jsonl files.

https://huggingface.co/docs/datasets. Class labels are stored as numbers; their names are in the metadata of Arrow and
Parquet files, in dataset_info.json or dataset_infos.json, or in the header of README.md. A value is the name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.annotations.records import PredictedRow
from components.data.formats.jsontables import read_json, read_jsonl
from components.data.formats.lines import Reading
from components.data.formats.parquets import read_parquet, readable
from components.data.formats.separated import read_delimited
from components.data.formats.tables import Opening, Reader, Rows, suffix
from components.data.formats.words import covered
from components.settings.detection import INFO, INFOS, README, STATE, repository_header
from components.settings.formats import SUFFIXES

#: Key of the metadata of Arrow and Parquet schemas.
METADATA: Final = b"huggingface"
#: Columns of words and tags, in order of preference.
WORDS: Final = ("tokens", "words")
TAGS: Final = ("ner_tags", "tags", "chunk_tags", "pos_tags", "labels")
#: Class label of rows without a label.
UNLABELLED: Final = -1
_DAMAGED: Final = "damaged"


_TABLES: Final[dict[str, Reader]] = {
    "csv": read_delimited,
    "tsv": read_delimited,
    "jsonl": read_jsonl,
    "json": read_json,
    "parquet": read_parquet,
}


def read_hub(file: Opening) -> Rows:
    """Rows of a split of `save_to_disk` (a folder), or of one file of a repository; row numbers begin at 1.

    Raises:
        DataError: the folder or file is damaged, or a number names no class.
    """
    path = file.path
    classes_of = class_names(path)
    table = file.rows(column_names(path), enumerate(arrow_rows(path, file.reading), 1), unit="row")
    if not path.is_dir() and (form := suffix(path.name)) != ".arrow":
        table = _TABLES[SUFFIXES[form]](replace(file, layout=replace(file.layout, nested=True)))
        table = replace(table, unit="row" if SUFFIXES[form] in ("json", "parquet") else "line")
    rows = ((number, _named(row, classes_of, table.at(number))) for number, row in table.numbered)
    return replace(table, numbered=rows)


def tagging_columns(path: Path) -> tuple[str, str]:
    classes_of = class_names(path)
    lists: list[str] = [name for name in TAGS if name in classes_of] or sorted(map(str, classes_of))
    return next((name for name in WORDS if name in column_names(path)), WORDS[0]), lists[0] if lists else TAGS[0]


def column_names(path: Path) -> list[str]:
    """The columns of a folder of `save_to_disk`, or of an Arrow or Parquet file; empty for other files."""
    schema = _schema(path)
    return [] if schema is None else [str(name) for name in schema.names]


def class_names(path: Path) -> dict[str, list[str]]:
    """Column -> names of its classes by number, for columns of class labels and of lists of them."""
    features: Any = {}
    schema = _schema(path)
    if schema is not None and METADATA in (schema.metadata or {}):
        features = json.loads(schema.metadata[METADATA]).get("info", {}).get("features") or {}
    if not features and path.is_dir():
        features = _json(path / INFO).get("features") or {}
    for folder in () if features or path.is_dir() else (path.parent, *path.parent.parents[:2]):
        features = features or _of_repository(folder)
    classes_of = {str(name): _classes(feature) for name, feature in _pairs(features)}
    return {name: classes for name, classes in classes_of.items() if classes}


def _of_repository(folder: Path) -> Any:
    header = repository_header(folder).get("dataset_info") or {}
    header = header[0] if isinstance(header, list) and header else header
    if isinstance(header, dict) and header.get("features"):
        return header["features"]
    infos = _json(folder / INFOS)
    return next((info["features"] for info in infos.values() if isinstance(info, dict) and "features" in info), {})


def _pairs(features: Any) -> Iterator[tuple[str, Any]]:
    """(column, feature) of both notations: JSON maps columns, YAML lists them."""
    if isinstance(features, dict):
        yield from features.items()
    for feature in features if isinstance(features, list) else ():
        if isinstance(feature, dict) and "name" in feature:
            yield feature["name"], feature


def _classes(feature: Any) -> list[str]:
    """Names of the classes of a feature in one of both notations; empty if it has none."""
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return [str(name) for name in feature.get("names") or []]
    if isinstance(label := feature.get("class_label"), dict):
        names = label.get("names") or {}
        return [str(names[key]) for key in sorted(names, key=int)] if isinstance(names, dict) else list(map(str, names))
    for key in ("feature", "dtype", "sequence", "list"):
        if classes := _classes(feature.get(key)):
            return classes
    return []


def _named(row: dict[str, Any], names: Mapping[str, list[str]], where: str) -> dict[str, Any]:
    return row | {name: _name(row[name], classes_of, name, where) for name, classes_of in names.items() if name in row}


def _name(value: Any, names: list[str], column: str, where: str) -> Any:
    if isinstance(value, list):
        return [_name(item, names, column, where) for item in value]
    if value is None or value == UNLABELLED or value == str(UNLABELLED):
        return None
    if isinstance(value, str) and value in names:
        return value
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = UNLABELLED
    if not 0 <= number < len(names):
        raise DataError(f"{where}: {column!r} is {value!r}, and the data set has {len(names)} classes; correct it")
    return names[number]


def arrow_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """The rows of a folder of `save_to_disk`, or of one Arrow file, with class labels as numbers.

    Raises:
        DataError: a file is damaged or missing.
    """
    files = [path]
    if path.is_dir():
        state = _json(path / STATE)
        if not isinstance(listed := state.get("_data_files"), list):
            raise DataError(f"{path / STATE}: lists no data files; write the data set again with save_to_disk")
        files = [path / str(entry["filename"]) for entry in listed]
    for file in files:
        with readable(file, what=_DAMAGED), pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                reading.text_bytes += batch.nbytes
                yield from batch.to_pylist()


def _schema(path: Path) -> pa.Schema | None:
    if path.is_dir():
        first = next(iter(_json(path / STATE).get("_data_files") or []), None)
        return None if first is None else _schema(path / str(first["filename"]))
    with readable(path, what=_DAMAGED):
        if path.suffix == ".arrow":
            with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
                return stream.schema
        return pq.read_schema(path) if path.suffix == ".parquet" else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); copy it again") from error
    return value if isinstance(value, dict) else {}


def write_hub(path: Path, rows: Iterable[PredictedRow], *, model: str) -> None:
    """Write a repository that `load_dataset` reads: a folder with one Parquet file, whose schema names the classes.

    The columns are the input's, `text`, and `label` (a class), `labels` (several), or `tokens` and `ner_tags`.
    """
    entries = list(rows)
    names = list(dict.fromkeys(label for row in entries for label in (*row.shares, *(row.labels or ()))))
    tagged = any(row.spans is not None for row in entries)
    if tagged:
        kinds = sorted({span.label for row in entries for span in row.spans or ()})
        names = ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]
    single = not tagged and all(len(row.labels or ()) <= 1 for row in entries)
    numbers = {name: number for number, name in enumerate(names)}
    column = "ner_tags" if tagged else "label" if single else "labels"
    label: dict[str, Any] = {"names": names, "_type": "ClassLabel"}
    columns_of: dict[str, tuple[list[Any], pa.DataType, dict[str, Any]]] = {
        "text": ([row.text for row in entries], pa.string(), _value("string"))
    }
    if tagged:
        tokens = [[row.text[start:end] for start, end in row.tokens] for row in entries]
        columns_of["tokens"] = (tokens, pa.list_(pa.string()), _listed(_value("string")))
        spans = [[(span.start, span.end, span.label) for span in row.spans or ()] for row in entries]
        tags = [
            [numbers[tag] for tag in covered(row.tokens, of_row)[0]] for row, of_row in zip(entries, spans, strict=True)
        ]
        columns_of[column] = (tags, pa.list_(pa.int64()), _listed(label))
    elif single:
        # A row without input has no prediction.
        columns_of[column] = (
            [numbers[row.labels[0]] if row.labels else UNLABELLED for row in entries],
            pa.int64(),
            label,
        )
    else:
        chosen = [[numbers[name] for name in row.labels or ()] for row in entries]
        columns_of[column] = (chosen, pa.list_(pa.int64()), _listed(label))
    if any(row.score is not None for row in entries):
        columns_of["score"] = ([row.score for row in entries], pa.float64(), _value("float64"))
    others = dict.fromkeys(name for row in entries for name in row.row if name not in columns_of)
    arrays = {name: pa.array([row.row.get(name) for row in entries]) for name in others}
    table = pa.table(arrays | {name: pa.array(values, kind) for name, (values, kind, _) in columns_of.items()})
    # `load_dataset` takes features only if they describe every column.
    described = {name: feature for name, (_, _, feature) in columns_of.items()}
    of_input = {name: _feature(table.schema.field(name).type) for name in others}
    if all(of_input.values()):
        described |= {name: feature for name, feature in of_input.items() if feature}
        features = {name: described[name] for name in table.column_names}
        info = json.dumps({"info": {"features": features}}, ensure_ascii=False)
        table = table.replace_schema_metadata({METADATA: info.encode()})
    (path / "data").mkdir(parents=True)
    pq.write_table(table, path / "data" / "train-00000-of-00001.parquet")
    (path / README).write_text(f"Predictions of {model}.\n", encoding="utf-8")


def _value(kind: str) -> dict[str, Any]:
    return {"dtype": {"double": "float64", "float": "float32"}.get(kind, kind), "_type": "Value"}


def _listed(feature: dict[str, Any]) -> dict[str, Any]:
    return {"feature": feature, "_type": "Sequence"}


def _feature(kind: pa.DataType) -> dict[str, Any] | None:
    """A type as a feature of a data set; None for those without one."""
    if pa.types.is_list(kind):
        inner = None if pa.types.is_list(kind.value_type) else _feature(kind.value_type)
        return None if inner is None else _listed(inner)
    return _value(str(kind)) if pa.types.is_primitive(kind) or pa.types.is_string(kind) else None
