"""The labelled files of a task as they are, also while they are incomplete: without labels, or not there yet."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from components.core.errors import ConfigError, DataError, nearest
from components.core.outputs import write_named
from components.data.formats.delimited import csv_for_people
from components.data.formats.rows import read_columns
from components.data.formats.tables import as_text
from components.data.formats.textkey import digest_of
from components.data.tasks.data import Fields
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.labels import answers_beside, files_of, labels_file
from components.data.tasks.reading.records import (
    are_vectors,
    is_blank,
    label_text,
    labels_in,
    layout_of,
    merged_spellings,
    row_labels,
)
from components.settings.detection import exists
from components.settings.params import Params
from components.settings.tasks import LABELLED, SPLITS, TaskSource

#: Label of a text in `multilabel` that has none of the labels; an empty cell means that nobody has labelled it.
NO_LABELS: Final = "[]"
#: Suffixes of files that people label.
FORMATS: Final = (".csv", ".jsonl")

#: Labels of a row, ascending: one, or any number in `multilabel`.
Names = tuple[str, ...]


@dataclass(frozen=True)
class FileRow:
    """A row of a labelled file. `labels`: of the row; None: it has no label."""

    split: str
    path: Path
    number: int
    fields: Fields
    labels: Names | None

    @cached_property
    def digest(self) -> bytes:
        return digest_of(self.fields)

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


def source_of(params: Params, task: str) -> tuple[str, TaskSource]:
    """Name and block of a task; the first of run.tasks if the name is empty."""
    if task and task not in params.data.tasks:
        raise ConfigError(f"--task: unknown task {task!r}{nearest(task, params.data.tasks)}")
    name = task or params.run.tasks[0]
    source = params.data.tasks[name]
    if source.kind not in LABELLED:
        raise ConfigError(
            f"{name}: rows of kind {source.kind} cannot be labelled here; supported: {', '.join(LABELLED)}"
        )
    return name, source


def answer_columns(source: TaskSource) -> tuple[tuple[str, ...], str]:
    """Columns of the texts and of the label in files for people: the columns of the task, if they have names."""
    usual = find_kind(source.kind).io.inputs
    texts = tuple(there if name.isdigit() else name for name, there in zip(source.texts, usual, strict=True))
    return texts, "label" if source.label.isdigit() else source.label


def write_to_label(
    path: Path,
    rows: Iterable[tuple[Fields, Mapping[str, Any]]],
    source: TaskSource,
    columns: Sequence[str],
    *,
    overwrite: bool,
) -> None:
    """Write a csv or jsonl file with texts, an empty label, and further columns, which `headstart label` reads when the
    labels are filled in."""
    check_format(path)
    texts, label = answer_columns(source)
    lines = [dict(zip(texts, fields, strict=True)) | {label: "", **more} for fields, more in rows]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    else:
        text = csv_for_people([*texts, label, *columns], lines)
    write_named(path, text, overwrite=overwrite)


def check_format(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; use {' or '.join(FORMATS)}")


def read_rows(task: str, source: TaskSource, *, splits: Sequence[str] = SPLITS) -> list[FileRow]:
    """The rows of all files that exist and are not empty, in order, with the last answers to their texts; rows without
    text are left out.
    """
    read: list[tuple[FileRow, Sequence[Any]]] = []
    # One column of labels, or one column of 0 and 1 for each label.
    flags = source.labels if source.several else None
    columns, texts = [*source.texts, *(flags or [source.label])], len(source.texts)
    for split in splits:
        for path, member in files_of(task, source, split):
            if exists(path) and not (path.is_file() and not path.stat().st_size):
                layout = layout_of(source, member, nested=True)
                for number, values in read_columns(path, source.format_at(path), columns, layout):
                    fields = tuple(as_text(value, f"{path}, row {number}") or "" for value in values[:texts])
                    if all(map(str.strip, fields)):
                        read.append((FileRow(split, path, number, fields, None), values[texts:]))
    vectors = source.several and flags is None and are_vectors(cells[0] for _, cells in read)
    given = [labels_of(cells, source, str(row), vectors=vectors) for row, cells in read]
    same = merged_spellings(name for names in given for name in names or ()) if flags is None else {}
    answers = answers_beside(task, source) if "train" in splits else {}
    rows, further = [], dict(answers)
    for (row, _), names in zip(read, given, strict=True):
        if row.split == "train":
            further.pop(row.digest, None)
        if row.split == "train" and row.digest in answers:
            names = tuple(answers[row.digest]["after"])
        elif names is not None:
            names = tuple(sorted(same.get(name, name) for name in names))
        rows.append(replace(row, labels=names))
    added = further.values()
    file = labels_file(task, source)
    return rows + [FileRow("train", file, each["line"], tuple(each["texts"]), tuple(each["after"])) for each in added]


def known_labels(rows: Iterable[FileRow], source: TaskSource) -> list[str]:
    """The labels of train, sorted; the columns `labels` are labels in any case."""
    given = set(source.labels or ()) if source.several else set()
    train = {name for row in rows if row.split == "train" for name in row.labels or ()}
    return sorted((given | train) - {source.outside})


def labels_of(values: Sequence[Any], source: TaskSource, where: str, *, vectors: bool = False) -> Names | None:
    """The labels in the label columns of a row, as a run reads them; None if they are empty. `vectors`: as of
    `row_labels`, by which several labels are read: an empty text is none of them."""
    if source.several:
        empty = source.labels is not None and all(map(is_blank, values))
        return None if empty else row_labels(values, source, where, vectors=vectors)
    listed = labels_in(values[0])
    names = [label_text(as_text(value, where) or "") for value in (values if listed is None else listed)]
    return tuple(filter(None, names))[:1] or None


def shown(labels: Names, source: TaskSource) -> str:
    """Labels as one text, which `labels_of` reads."""
    if not source.several:
        return labels[0]
    return source.label_separator.join(labels) or NO_LABELS
