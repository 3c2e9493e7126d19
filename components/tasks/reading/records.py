"""Rows of table-like files: the requested columns, slice, id, and position in the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.formats.annotations.tables import ANNOTATED, UNITS
from components.formats.lines import Reading
from components.formats.plain import read_label_first, read_parallel
from components.formats.tables import TABLES, Layout
from components.formats.textkey import digest_of
from components.settings.tasks import AUTO, SPLITS, TaskSource
from components.tasks.reading.labels import answers_beside, files_of, label_values, labels_file

#: Column of the clusters if `data.tasks.<name>.group` is `auto`.
AUTO_GROUP = "group"
#: Format -> reader of table-like files.
READERS = {**TABLES, **ANNOTATED, "label-first": read_label_first, "parallel": read_parallel}
#: Format -> what a row is called in messages; else a line.
_UNITS = {"json": "row", "parquet": "row", "datasets": "row", **UNITS}


@dataclass(frozen=True)
class Position:
    """Position of a row in a file, for messages and for the ids of rows without one."""

    path: str
    line: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.line}"


@dataclass(frozen=True)
class Record:
    """One row of a table: values of the requested columns (null, text, number; if nested also lists and objects)."""

    values: tuple[Any, ...]
    slice: str | None
    group: str | None
    id: str | None
    position: Position
    document: str | None = None


def split_files(source: TaskSource, *, task: str = "") -> Iterator[tuple[str, Path, str]]:
    """(split, path, member) of every file of a task, in order; `member` as in `FILE#MEMBER`.

    Args:
        source: of the task.
        task: name of a task that has a file of labels; a missing train file is no error then.

    Raises:
        DataError: a file does not exist.
    """
    for split in SPLITS:
        for path, member in files_of(task, source, split):
            if not path.exists():
                raise DataError(f"{path}: does not exist; the splits are named under data.tasks in params.yaml")
            yield split, path, member


def layout_of(source: TaskSource, member: str, *, nested: bool) -> Layout:
    """How the files of a task are read."""
    return Layout(
        header=source.header,
        delimiter=source.delimiter,
        quotes=source.quotes,
        encoding=source.encoding,
        member=member,
        nested=nested,
    )


def read_labelled(
    name: str,
    source: TaskSource,
    columns: Sequence[str],
    *,
    texts: int,
    counts: Counter[str],
    nested: bool = False,
) -> Iterator[tuple[str, Record]]:
    """(split, row) of all files of a task, read together with its file of labels (`components.tasks.reading.labels`).

    Args:
        name: of the task.
        source: of the task.
        columns: of the texts, then of the labels.
        texts: number of columns of texts.
        counts: receives numbers of rows, by reason.
        nested: whether lists and objects are allowed as values.

    Raises:
        DataError: as `split_files` and `read_records`; a line of the file of labels is damaged.
    """
    files: dict[str, list[tuple[Path, str]]] = {split: [] for split in SPLITS}
    for split, path, member in split_files(source, task=name):
        files[split].append((path, member))
    answers = answers_beside(name, source)
    further = dict(answers)
    for split in SPLITS:
        for path, member in files[split]:
            for record in read_records(
                path, member, source, columns, nested=nested, texts=texts, empty=counts, split=split
            ):
                if split == "train" and answers:
                    digest = digest_of([as_text(value, record.position) or "" for value in record.values[:texts]])
                    further.pop(digest, None)
                    if digest in answers:
                        labels = label_values(answers[digest]["after"], source)
                        record = replace(record, values=(*record.values[:texts], *labels))
                yield split, record
        if split == "train":
            for digest, entry in further.items():
                position = Position(str(labels_file(name, source)), entry["line"])
                row_id = f"label-{digest.hex()[:16]}" if source.id is not None else None
                values = (*entry["texts"], *label_values(entry["after"], source))
                yield split, Record(values, None, None, row_id, position)


def read_records(
    path: Path,
    member: str,
    source: TaskSource,
    columns: Sequence[str],
    *,
    nested: bool = False,
    texts: int = 0,
    empty: Counter[str] | None = None,
    split: str = "",
) -> Iterator[Record]:
    """The rows of one file of a table-like format. With `empty: drop`, rows without text are counted and dropped.

    Args:
        path: of the file.
        member: key of a JSON document, or empty.
        source: of the task.
        columns: names.
        nested: whether lists and objects are allowed as values.
        texts: number of columns, from the first one, that hold texts.
        empty: receives the number of rows without text, under `empty_key(split)`.
        split: of the file.

    Raises:
        DataError: the file is damaged or lacks a column (file and line), or holds no rows.
    """
    form = source.format_at(path)
    layout = layout_of(source, member, nested=nested)
    group = source.group
    if group == AUTO:
        group = AUTO_GROUP if _has_column(path, AUTO_GROUP, form, layout) else None
    extra = [name for name in (source.slice_column, group, source.id, source.document_column) if name is not None]
    name, count, others, reading = f"{path}{'#' * bool(member)}{member}", 0, 0, Reading()
    for number, values in READERS[form](path, [*columns, *extra], layout, reading):
        position = Position(name, number, _UNITS.get(form, "line"))
        rest = iter(values[len(columns) :])
        part = as_text(next(rest), position) if source.slice_column is not None else None
        cluster = as_text(next(rest), position) if group is not None else None
        row_id = as_text(next(rest), position) if source.id is not None else None
        document = as_text(next(rest), position) if source.document_column is not None else None
        count += 1
        if source.empty == "drop" and empty is not None and any(map(is_blank, values[:texts])):
            empty[empty_key(split)] += 1
            continue
        if not source.learns(split, part):
            others += 1
            continue
        yield Record(tuple(values[: len(columns)]), part, cluster, row_id, position, document)
    if not count:
        left_out = ", ".join(f"{number} {reason}" for reason, number in reading.skipped.items())
        raise DataError(f"{name}: holds no rows" + (f" ({left_out})" if left_out else ""))
    if others == count and len(source.files(split)) == 1:
        raise DataError(
            f"{name}: no row has one of the languages {', '.join(source.learned_languages)} in the column "
            f"{source.languages!r}; set language or train_languages to values of this column"
        )
    if empty is not None:
        count_skipped(reading, split, empty)
        if others:
            empty[f"{split}_rows_in_other_languages"] += others


def count_skipped(reading: Reading, split: str, counts: Counter[str]) -> None:
    """Add what a reader has left out to the counts of a split."""
    for reason, number in reading.skipped.items():
        if number:
            counts[f"{split}_{reason}"] += number


def empty_key(split: str) -> str:
    """The count of a split's rows without text."""
    return f"{split}_rows_empty"


def is_blank(value: Any) -> bool:
    """Whether a value is null, an empty list, or a text without characters other than white space."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _has_column(path: Path, column: str, form: str, layout: Layout) -> bool:
    """Whether the first row of a file has a column of text or numbers with this name."""
    try:
        return next(READERS[form](path, [column], replace(layout, nested=False), Reading()), None) is not None
    except DataError:
        return False


def as_text(value: Any, position: Position) -> str | None:
    """A value as text; numbers and booleans as in JSON, because labels are often 0 and 1.

    Raises:
        DataError: the value is a list or an object.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise DataError(f"{position}: holds a {type(value).__name__} where text is expected")


def filled(value: Any, what: str, column: str, position: Position) -> str:
    """A value as non-empty text.

    Args:
        value: of the column.
        what: the value is, for the message.
        column: name of the column.
        position: of the row.

    Raises:
        DataError: the text is empty.
    """
    text = as_text(value, position)
    if text is None or not text.strip():
        raise DataError(f"{position}: {what} ({column!r}) is empty; remove the row or fill it in")
    return text


def label_of(value: Any, column: str, position: Position) -> str:
    """A label, stripped of white space.

    Raises:
        DataError: the label is missing.
    """
    text = as_text(value, position)
    if text is None or not text.strip():
        raise DataError(f"{position}: the label ({column!r}) is missing; remove the row or label it")
    return text.strip()
