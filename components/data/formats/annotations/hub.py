"""Data sets of Hugging Face as tables: folders of `save_to_disk`, and repositories of parquet, csv or jsonl files.

https://huggingface.co/docs/datasets. Class labels are stored as numbers; their names are in the metadata of Arrow and
Parquet files, in dataset_info.json or dataset_infos.json, or in the header of README.md. A value is the name.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.annotations.records import PredictedRow
from components.data.formats.jsontables import read_json, read_jsonl
from components.data.formats.parquets import METADATA, Names, class_names, classes_of, read_parquet
from components.data.formats.separated import read_delimited
from components.data.formats.tables import Opening, Rows
from components.data.formats.words import covered
from components.settings.detection import INFO, INFOS, README, STATE, repository_header
from components.settings.formats import FORMATS, by_name

#: Columns of words and tags, in order of preference.
WORDS: Final = ("tokens", "words")
TAGS: Final = ("ner_tags", "tags", "chunk_tags", "pos_tags", "labels")
#: Class label of rows without a label.
UNLABELLED: Final = -1
_TEXTS: Final = {"csv": read_delimited, "tsv": read_delimited, "jsonl": read_jsonl, "json": read_json}


def read_hub(file: Opening) -> Rows:
    """Rows of a split of `save_to_disk` (a folder), or of one file of a repository; row numbers begin at 1.

    Raises:
        DataError: the folder or file is damaged, or a number names no class.
    """
    table, names = _described(file)
    rows = ((number, row | _named(row, names, table.at(number))) for number, row in table.numbered)
    return replace(table, numbered=rows)


def tagging_columns(path: Path) -> tuple[str, str]:
    """The columns of the words and of the tags."""
    table, names = _described(Opening(path))
    lists = [name for name in TAGS if name in names] or sorted(names)
    words = next((name for name in WORDS if table.schema is not None and name in table.names), WORDS[0])
    return words, lists[0] if lists else TAGS[0]


def _described(file: Opening) -> tuple[Rows, Names]:
    """The rows, and the names of the classes: by the schema or the information of the data set or its repository."""
    path, form = file.path, by_name(file.path.name)
    file = replace(file, layout=replace(file.layout, nested=True))
    files = []
    if path.is_dir():
        if not isinstance(listed := _json(path / STATE).get("_data_files"), list):
            raise DataError(f"{path / STATE}: lists no data files; write the data set again with save_to_disk")
        files = [path / str(entry["filename"]) for entry in listed]
    table = _TEXTS[form](file) if form in _TEXTS else read_parquet(file, files)
    table = replace(table, unit=FORMATS[form].unit if form in _TEXTS else "row")
    names = {} if table.schema is None else classes_of(table.schema)
    for folder in () if names else (path,) if path.is_dir() else (path.parent, *path.parent.parents[:2]):
        names = names or class_names(_json(folder / INFO).get("features") if path.is_dir() else _of_repository(folder))
    return table, names


def _of_repository(folder: Path) -> Any:
    header = repository_header(folder).get("dataset_info") or {}
    header = header[0] if isinstance(header, list) and header else header
    if isinstance(header, dict) and header.get("features"):
        return header["features"]
    infos = _json(folder / INFOS)
    return next((info["features"] for info in infos.values() if isinstance(info, dict) and "features" in info), {})


def _named(row: dict[str, Any], names: Names, where: str) -> dict[str, Any]:
    return {name: _name(row[name], classes, name, where) for name, classes in names.items() if name in row}


def _name(value: Any, names: Sequence[str], column: str, where: str) -> Any:
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
    entries, integers = list(rows), pa.list_(pa.int64())
    names = list(dict.fromkeys(label for row in entries for label in (*row.shares, *(row.labels or ()))))
    types = {"text": pa.string()}
    if tagged := any(row.spans is not None for row in entries):
        kinds = sorted({span.label for row in entries for span in row.spans or ()})
        names = ["O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]
        column, types = "ner_tags", types | {"tokens": pa.list_(pa.string()), "ner_tags": integers}
    else:
        single = all(len(row.labels or ()) <= 1 for row in entries)
        column = "label" if single else "labels"
        types[column] = pa.int64() if single else integers
    if any(row.score is not None for row in entries):
        types["score"] = pa.float64()
    numbers = {name: number for number, name in enumerate(names)}

    def values(row: PredictedRow) -> dict[str, Any]:
        spans = [(span.start, span.end, span.label) for span in row.spans or ()]
        chosen = [numbers[name] for name in (covered(row.tokens, spans)[0] if tagged else row.labels or ())]
        # A row without input has no prediction.
        given = (chosen or [UNLABELLED])[0] if column == "label" else chosen
        tokens = [row.text[start:end] for start, end in row.tokens]
        return {"text": row.text, "tokens": tokens, column: given, "score": row.score}

    own = pa.Table.from_pylist(list(map(values, entries)), pa.schema(types))
    others = dict.fromkeys(name for row in entries for name in row.row if name not in types)
    columns = {name: pa.array([row.row.get(name) for row in entries]) for name in others}
    table = pa.table(columns | dict(zip(own.column_names, own.columns, strict=True)))
    # `load_dataset` takes features only if they describe every column.
    features = {field.name: _feature(field.type) for field in table.schema}
    label: dict[str, Any] = {"names": names, "_type": "ClassLabel"}
    features[column] = label if column == "label" else _listed(label)
    if all(features.values()):
        info = json.dumps({"info": {"features": features}}, ensure_ascii=False)
        table = table.replace_schema_metadata({METADATA: info.encode()})
    (path / "data").mkdir(parents=True)
    pq.write_table(table, path / "data" / "train-00000-of-00001.parquet")
    (path / README).write_text(f"Predictions of {model}.\n", encoding="utf-8")


def _listed(feature: dict[str, Any]) -> dict[str, Any]:
    return {"feature": feature, "_type": "Sequence"}


def _feature(kind: pa.DataType) -> dict[str, Any] | None:
    """A type as a feature of a data set; None for those without one."""
    if pa.types.is_list(kind):
        inner = None if pa.types.is_list(kind.value_type) else _feature(kind.value_type)
        return None if inner is None else _listed(inner)
    name = {"double": "float64", "float": "float32"}.get(str(kind), str(kind))
    known = pa.types.is_primitive(kind) or pa.types.is_string(kind)
    return {"dtype": name, "_type": "Value"} if known else None
