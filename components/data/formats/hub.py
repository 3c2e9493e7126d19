"""Data sets of Hugging Face as tables: folders of `save_to_disk`, and repositories of parquet, csv or jsonl files;
predictions in all forms.

https://huggingface.co/docs/datasets. Class labels are stored as numbers; their names are in the metadata of Arrow and
Parquet files, in dataset_info.json or dataset_infos.json, or in the header of README.md. A value is the name.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.annotations import PredictedRow, write_annotated
from components.data.formats.parquets import METADATA, Names, class_names, classes_of, read_parquet
from components.data.formats.tables import PLAIN, Numbered, Rows, problem
from components.data.formats.words import covered
from components.settings.detection import INFO, INFOS, README, STATE, repository_header
from components.settings.formats import by_name, is_table, reader_of

#: Columns of words and tags, in order of preference.
WORDS: Final = ("tokens", "words")
TAGS: Final = ("ner_tags", "tags", "chunk_tags", "pos_tags", "labels")
#: Class label of rows without a label.
UNLABELLED: Final = -1


def read_hub(file: Rows) -> Numbered:
    """Rows of a split of `save_to_disk` (a folder), or of one file of a repository; row numbers begin at 1.

    Raises:
        DataError: the folder or file is damaged, or a number names no class.
    """
    names: Names | None = None
    for place, row in _numbered(file):
        names = _names(file) if names is None else names
        with problem(file.at(place)):
            row |= {column: _name(row[column], classes, column) for column, classes in names.items() if column in row}
        yield place, row


def _numbered(file: Rows) -> Numbered:
    """The rows, in which numbers may stand for classes."""
    files: list[Path] = []
    if file.path.is_dir():
        state = file.path / STATE
        if not isinstance(listed := _json(state).get("_data_files"), list):
            raise DataError(
                f"{state}: lists no data files; write the data set again with save_to_disk"
                if state.exists()
                else f"{file.path}: is a folder, and no split of save_to_disk; name a file of it: "
                f"{', '.join(sorted(each.name for each in file.path.iterdir())) or 'it has none'}"
            )
        files = [file.path / str(entry["filename"]) for entry in listed]
    file.layout = replace(file.layout, nested=True)
    return reader_of(form)(file) if is_table(form := by_name(file.path.name)) else read_parquet(file, files)


def _name(value: Any, names: Sequence[str], column: str) -> Any:
    """The name of a number of a class, or of those in a list. -1, a row without a label, becomes null."""
    if isinstance(value, list):
        return [_name(each, names, column) for each in value]
    if value in (None, UNLABELLED, str(UNLABELLED)):
        return None
    if isinstance(value, str) and value in names:
        return value
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = UNLABELLED
    if not 0 <= number < len(names) or (isinstance(value, float) and value != number):
        raise DataError(f"{column!r} is {value!r}, and the data set has {len(names)} classes; correct it")
    return names[number]


def tagging_columns(path: Path) -> tuple[str, str]:
    """The columns of the words and of the tags."""
    file = Rows(path, PLAIN)
    next(_numbered(file), None)
    names = _names(file)
    lists = [name for name in TAGS if name in names] or sorted(names)
    words = next((name for name in WORDS if file.schema is not None and name in file.names), WORDS[0])
    return words, lists[0] if lists else TAGS[0]


def _names(file: Rows) -> Names:
    """The names of the classes, by the schema or the information of the data set or its repository."""
    path, names = file.path, classes_of(file.schema)
    for folder in () if names else (path,) if path.is_dir() else path.parents[:3]:
        names = names or class_names(_json(folder / INFO).get("features") if path.is_dir() else _of_repository(folder))
    return names


def _of_repository(folder: Path) -> Any:
    header = repository_header(folder).get("dataset_info") or {}
    header = header[0] if isinstance(header, list) and header else header
    if isinstance(header, dict) and header.get("features"):
        return header["features"]
    infos = _json(folder / INFOS)
    return next((info["features"] for info in infos.values() if isinstance(info, dict) and "features" in info), {})


def _json(path: Path) -> dict[str, Any]:
    with problem(path, ValueError, what="not valid JSON ({})", do="copy it again"):
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
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

    listed = pa.Table.from_pylist(list(map(values, entries)), pa.schema(types))
    others = dict.fromkeys(name for row in entries for name in row.row if name not in types)
    columns = {name: pa.array([row.row.get(name) for row in entries]) for name in others}
    table = pa.table(columns | dict(zip(listed.column_names, listed.columns, strict=True)))
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
    plain = pa.types.is_primitive(kind) or pa.types.is_string(kind)
    return {"dtype": name, "_type": "Value"} if plain else None


#: Format -> suffix of files of predictions; other formats are folders.
_SUFFIXES: Final = {"label-studio": ".json", "doccano": ".jsonl", "prodigy": ".jsonl"}
#: Format -> writer of predictions.
WRITERS: Final[dict[str, Callable[..., None]]] = {
    **{form: partial(write_annotated, form=form) for form in _SUFFIXES},
    "datasets": write_hub,
}


def check_written(form: str, output: Path) -> None:
    """Check that predictions in a format can have this name.

    Raises:
        ConfigError: there is no such format, or its files are called otherwise.
    """
    if form not in WRITERS:
        raise ConfigError(f"unknown format {form!r}{nearest(form, WRITERS)}")
    suffix = _SUFFIXES.get(form, "")
    if output.suffix != suffix:
        expected = f"a file {output.stem}{suffix}" if suffix else f"a folder, such as {output.with_suffix('')}"
        raise ConfigError(f"{output}: predictions for {form} are {expected}")
