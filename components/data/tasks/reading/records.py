"""Rows of table-like files: the requested columns, slice, id, and position in the file."""

import ast
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.formats.rows import read_columns, unit_of
from components.data.formats.tables import Layout, as_text
from components.data.formats.textkey import digest_of
from components.data.tasks.data import Fields
from components.data.tasks.reading.labels import answers_beside, files_of, label_values, labels_file
from components.settings.detection import exists
from components.settings.formats import FORMATS
from components.settings.tasks import AUTO, SPLITS, WHOLE_FILE, TaskSource, has

#: A number without leading zeros: 0101 and 101 are two codes.
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
#: Signs of currencies and of percent, which stand beside a number.
_UNITS_OF_NUMBERS = "$\u20ac\u00a3\u00a5\u0e3f% \u00a0"
#: What stands for a missing number.
NO_NUMBER = frozenset(("na", "n/a", "nan", "none", "null", "nil", "-", "?", "."))
#: Column of the clusters if `data.tasks.<name>.group` is `auto`.
AUTO_GROUP = "group"


@dataclass(frozen=True)
class Position:
    """Position of a row in a file, for messages and for the ids of rows without one."""

    path: str
    line: int
    unit: str = "line"
    column: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.line}" + f", column {self.column!r}" * bool(self.column)


@dataclass(frozen=True)
class Origin:
    """Where a row comes from, and what it belongs to; None: nothing."""

    position: Position
    slice: str | None = None
    id: str | None = None
    group: str | None = None
    document: str | None = None

    def __str__(self) -> str:
        return str(self.position)


@dataclass(frozen=True)
class Record:
    """One row of a table: values of the requested columns (null, text, number; if nested also lists and objects)."""

    values: tuple[Any, ...]
    origin: Origin


#: Values of the texts of a row, and its origin.
LeftOut = list[tuple[Sequence[Any], Origin]]


@dataclass(frozen=True)
class SplitFile:
    """A file of a task; `member` as in `FILE#MEMBER`."""

    source: TaskSource
    split: str
    path: Path
    member: str

    @property
    def form(self) -> str:
        return self.source.format_at(self.path)


def split_files(source: TaskSource, *, task: str = "") -> Iterator[SplitFile]:
    """Every file of a task, in order. `task`: name of a task that has a file of labels; a missing train file is no
    error then.

    Raises:
        DataError: a file does not exist.
    """
    for split in SPLITS:
        for path, member in files_of(task, source, split):
            if not exists(path):
                raise DataError(f"{path}: does not exist; the splits are named under data.tasks in params.yaml")
            yield SplitFile(source, split, path, member)


def layout_of(source: TaskSource, member: str, *, nested: bool) -> Layout:
    dialect = source.model_dump(include={"header", "delimiter", "quotes", "encoding"})
    return Layout(**dialect, member=member, nested=nested, tagged=has(source.kind, "words"))


def read_all(
    name: str, source: TaskSource, columns: Sequence[str], counts: Counter[str], *, texts: int = 1, nested: bool = True
) -> Iterator[tuple[str, Record]]:
    """(split, row) of all files of a task, read together with its file of labels
    (`components.data.tasks.reading.labels`). Arguments as of `read_records`.

    Raises:
        DataError: as `split_files` and `read_records`; a line of the file of labels is damaged.
    """
    answers, files = answers_beside(name, source), list(split_files(source, task=name))
    further = dict(answers)
    left_out: LeftOut = []
    for split in SPLITS:
        trains = split == "train" and bool(answers)
        for file in (file for file in files if file.split == split):
            others = left_out if trains else None
            for record in read_records(file, columns, counts, texts=texts, nested=nested, left_out=others):
                if trains:
                    digest = _digest(record.values[:texts], record.origin)
                    further.pop(digest, None)
                    if digest in answers:
                        labels = label_values(answers[digest]["after"], source)
                        record = replace(record, values=(*record.values[:texts], *labels))
                yield split, record
        if trains:
            for values, origin in left_out:
                further.pop(_digest(values, origin), None)
            for digest, entry in further.items():
                row_id = f"label-{digest.hex()[:16]}" if source.id is not None else None
                origin = Origin(Position(str(labels_file(name, source)), entry["line"]), id=row_id)
                yield split, Record((*entry["texts"], *label_values(entry["after"], source)), origin)


def _digest(texts: Sequence[Any], origin: Origin) -> bytes:
    return digest_of([as_text(value, origin) or "" for value in texts])


def read_records(
    file: SplitFile,
    columns: Sequence[str],
    counts: Counter[str],
    *,
    texts: int = 1,
    nested: bool = False,
    left_out: LeftOut | None = None,
) -> Iterator[Record]:
    """The rows of one file of a table-like format. With `empty: drop`, rows without text are counted and dropped.

    Args:
        texts: number of columns, from the first one, that hold texts.
        nested: whether lists and objects are allowed as values.
        left_out: receives the texts of the rows in other languages; None: the file must hold rows.

    Raises:
        DataError: the file is damaged or lacks a column (file and line), or holds no rows.
    """
    source, split, path, form = file.source, file.split, file.path, file.form
    layout = layout_of(source, file.member, nested=nested)
    group = source.group
    if group == AUTO:
        group = AUTO_GROUP if _has_column(path, AUTO_GROUP, form, layout) else None
    document = None if source.document == WHOLE_FILE else source.document
    # Attribute of `Origin` -> its column.
    further = {"slice": source.slice_column, "group": group, "id": source.id or FORMATS[form].id, "document": document}
    named = {name: column for name, column in further.items() if column is not None}
    unit = unit_of(path, form)
    name, count, others, reading = f"{path}{'#' * bool(file.member)}{file.member}", 0, 0, Reading()
    for number, values in read_columns(path, form, [*columns, *named.values()], layout, reading):
        position = Position(name, number, unit)
        result = [as_text(value, position) for value in values[len(columns) :]]
        origin = Origin(position, **dict(zip(named, result, strict=True)))
        count += 1
        if source.empty == "drop" and any(map(is_blank, values[:texts])):
            counts[f"{split}_rows_empty"] += 1
        elif not source.learns(split, origin.slice):
            others += 1
            if left_out is not None:
                left_out.append((values[:texts], origin))
        else:
            yield Record(tuple(values[: len(columns)]), origin)
    if not count and left_out is None:
        reasons = ", ".join(f"{number} {reason}" for reason, number in reading.skipped.items())
        raise DataError(f"{name}: holds no rows" + (f" ({reasons})" if reasons else ""))
    if count and others == count and len(source.files(split)) == 1:
        raise DataError(
            f"{name}: no row has one of the languages {', '.join(source.learned_languages)} in the column "
            f"{source.languages!r}; set language or train_languages to values of this column"
        )
    for reason, skipped in reading.skipped.items():
        if skipped:
            counts[f"{split}_{reason}"] += skipped
        if lines := reading.first_skipped.get(reason):
            counts[f"{split}_{reason}_line"] = lines[0]
    if others:
        counts[f"{split}_rows_in_other_languages"] += others


def is_blank(value: Any) -> bool:
    """Whether a value is null, an empty list, or a text without characters other than white space."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _has_column(path: Path, column: str, form: str, layout: Layout) -> bool:
    """Whether the first row of a file has a column of text or numbers with this name."""
    try:
        return (
            next(read_columns(path, form, [column], replace(layout, nested=False, tagged=False), Reading()), None)
            is not None
        )
    except DataError:
        return False


def filled(value: Any, what: str, column: str, where: object) -> str:
    """A value as non-empty text; `what` it is, for the message.

    Raises:
        DataError: the text is empty, or contains a NUL character, which prediction refuses.
    """
    text = as_text(value, where)
    if text is None or not text.strip():
        raise DataError(f"{what} ({column!r}) is empty; remove the row or fill it in", where=where)
    if "\0" in text:
        raise DataError(f"{what} ({column!r}) contains a NUL character; remove it", where=where)
    return text


def filled_all(record: Record, columns: Sequence[str], what: Sequence[str]) -> Fields:
    """The first values of a record as non-empty texts. Errors as of `filled`."""
    values = zip(record.values[: len(columns)], what, columns, strict=True)
    return tuple(filled(value, f"the {part}", column, record.origin) for value, part, column in values)


def label_of(value: Any, column: str, where: object) -> str:
    """A label (`label_text`); of a list of labels the only one.

    Raises:
        DataError: the label is missing, or there are several.
    """
    labels = labels_in(value)
    if labels is not None:
        if len(labels) != 1:
            raise DataError(
                f"the label ({column!r}) is a list of {len(labels)}; set kind: multilabel, or leave one", where=where
            )
        value = labels[0]
    place = replace(where.position, column=column) if isinstance(where, Origin) else f"{where}, column {column!r}"
    text = as_text(value, place)
    if text is None or not text.strip():
        raise DataError(
            f"the label ({column!r}) is missing",
            where=where,
            key="no_label",
            do="remove the row, label it, or leave such rows out ({key}: drop)",
        )
    return label_text(text)


def row_labels(values: Sequence[Any], source: TaskSource, where: object, *, vectors: bool = False) -> tuple[str, ...]:
    """The labels in the label columns of a row of several labels, each once, sorted. An empty text is none.

    Args:
        vectors: whether labels are vectors of 0 and 1 (`are_vectors`).

    Raises:
        DataError: as `label_of`; a column of one label holds other values than 0 and 1.
    """
    names = list[str]()
    if source.labels is not None:
        for column, flag in zip(source.labels, values, strict=True):
            if (has_label := flag_of(flag)) is None:
                raise DataError(f"column {column!r} holds {flag!r}; a column of labels holds 0 or 1", where=where)
            names += [column] * has_label
    elif vectors and (positions := positions_in(values[0])) is not None:
        names = positions
    elif (listed := labels_in(values[0])) is not None:
        names = [label_of(each, source.label, where) for each in listed]
    else:
        parts = split_labels(as_text(values[0], where) or "", source.label_separator)
        names = [name for part in parts if (name := label_text(part))]
    return tuple(sorted(set(names)))


def label_text(text: str) -> str:
    """The name of a class: in NFC, without white space at its ends, with single spaces and no invisible characters
    within."""
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFC", text)).split())


def class_name(value: Any) -> str:
    """The name of the class of a label of any type, or of a list of one label."""
    listed = labels_in(value)
    value = listed[0] if listed and len(listed) == 1 else value
    return label_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


#: What a cell of a column for one label says, in lower case -> whether the row has the label.
FLAGS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "y", "x", "\u2713", "\u2714"), True),
    **dict.fromkeys(("", "0", "0.0", "false", "no", "n"), False),
}


def flag_of(value: Any) -> bool | None:
    """Whether a cell of a column for one label says that a row has it; None: it says something else."""
    return FLAGS.get("" if value is None else str(value).strip().lower())


def are_thousands(values: Iterable[Any]) -> bool:
    """Whether the commas of numbers separate thousands: in every number with a comma, three digits follow each."""
    with_comma = [value.strip(_UNITS_OF_NUMBERS) for value in values if isinstance(value, str) and "," in value]
    return bool(with_comma) and all(map(_THOUSANDS.fullmatch, with_comma))


def number_of(text: str, *, thousands: bool = False) -> float:
    """The number in a text. `text`: with a decimal point or a decimal comma, also with the sign of a currency or of
    percent. `thousands`: whether commas separate thousands instead.

    Raises:
        ValueError: it is no number.
    """
    text = text.strip(_UNITS_OF_NUMBERS)
    if thousands:
        return float(text.replace(",", ""))
    return float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)


def is_no_number(value: Any) -> bool:
    """Whether a value stands for a missing number, as `NA`."""
    return isinstance(value, str) and value.strip().casefold() in NO_NUMBER


def labels_in(value: Any) -> list[Any] | None:
    """The labels of a list, or of text that is a list in JSON, Python or numpy or an export of choices
    (`{"choices": ["a"]}`); None for other values."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value) if isinstance(value, list | tuple) else sorted(value, key=str)
    if isinstance(value, dict):
        return value["choices"] if isinstance(value.get("choices"), list) and len(value) == 1 else None
    if not isinstance(value, str) or (value.strip()[:1], value.strip()[-1:]) not in _BRACKETS:
        return None
    if (several := _ARRAY.fullmatch(value.strip())) is not None:
        return [part.strip("'\"") for part in _ITEM.findall(several[1])]
    for parse in (json.loads, ast.literal_eval):
        try:
            parsed = parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return labels_in(parsed) if isinstance(parsed, list | dict | tuple | set) else None
    return None


def are_vectors(values: Iterable[Any]) -> bool:
    """Whether labels are vectors of 0 and 1 of the same length, one number for each label. Names of labels beside
    them are answers of people."""
    lists = [labels for value in values if not _are_names(value) and (labels := labels_in(value)) is not None]
    lengths = {len(labels) for labels in lists}
    flags = {str(label) for labels in lists for label in labels} <= {"0", "1", "0.0", "1.0", "False", "True"}
    return len(lists) > 1 and len(lengths) == 1 and not lengths & {0, 1} and flags


def positions_in(value: Any) -> list[str] | None:
    """The labels of a vector of 0 and 1, called by their positions from 0; None for another value."""
    labels = None if _are_names(value) else labels_in(value)
    return None if labels is None else [str(index) for index, flag in enumerate(labels) if flag_of(flag)]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, str) for item in value)


def split_labels(text: str, separator: str) -> list[str]:
    """The parts of a text between separators, without white space. The separators `|` and `><` may also enclose the
    text: `|a|b|`, `<a><b>`."""
    text = text.strip().strip(separator) if separator in ("|", "><") else text
    return [part.strip() for part in text.split(separator)]


_BRACKETS = frozenset((("[", "]"), ("{", "}"), ("(", ")")))
_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad]")
#: A list as numpy writes it: values without commas between them.
_ITEM = re.compile(r"'[^']*'|\"[^\"]*\"|[+-]?\d[\d.]*")
_ARRAY = re.compile(rf"\[\s*((?:{_ITEM.pattern})(?:\s+(?:{_ITEM.pattern}))+)\s*\]")


def merged_spellings(names: Iterable[str]) -> dict[str, str]:
    """Label -> name of its class: of labels that are the same number or truth value, such as 1 and 1.0, or TRUE and
    true, the shortest."""
    values = sorted(set(names), key=lambda name: (len(name), name))
    if all(map(_NUMBER.fullmatch, values)):
        read: Callable[[str], Any] = float
    elif {*map(str.lower, values)} <= {"true", "false"}:
        read = str.lower
    else:
        return {}
    first: dict[Any, str] = {}
    for name in values:
        first.setdefault(read(name), name)
    return {name: first[read(name)] for name in values if first[read(name)] != name}
