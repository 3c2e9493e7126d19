"""Predict the rows of a file with a classifier, one batch in memory.

A row has its input columns and those of the task's answers (`components.data.tasks.task_io`), which are empty if a part
of the input is missing. The output is renamed at the end, so it is complete or absent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from components.core.artifacts import json_of
from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.plain import files_at
from components.data.formats.rows import form_of_texts
from components.data.formats.stored import Span, open_stored
from components.data.formats.tables import Rejected, Row, Rows
from components.data.sampling import guessed_in_words, read_rows
from components.data.tasks.data import Answer, Fields
from components.data.tasks.kinds import find_kind
from components.data.tasks.task_io import TaskIO, WrongValueError
from components.data.understanding import text_columns
from components.learners.writing import WRITTEN, Rejects, open_output
from components.settings.tasks import TaskSource

#: Maximum number of rows of a batch: many, so that inputs of similar length can be grouped.
ROWS = 4096
#: Maximum number of characters of a text, about a thousand pages: a longer one is a file that was not split.
LONGEST = 2_000_000
#: Number of characters after which a batch ends.
CHARACTERS = 4_000_000


class Classifier(Protocol):
    """A model for one kind of task."""

    @property
    def kind(self) -> str:
        """The kind of the task."""

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels, by index."""

    def answer(self, rows: Sequence[Fields], batch_size: int = ...) -> Sequence[Answer]:
        """N inputs -> N answers."""


class WrappedClassifier:
    """A classifier around another one, `inner`, whose kind, labels, columns and answers it has."""

    def __init__(self, inner: Classifier) -> None:
        self.inner = inner

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def labels(self) -> Sequence[str]:
        return self.inner.labels

    @property
    def io(self) -> TaskIO:
        return io_of(self.inner)

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> Sequence[Answer]:
        return self.inner.answer(rows, batch_size)


def io_of(classifier: Classifier) -> TaskIO:
    """Input and output of a classifier: its attribute `io`, or its kind's."""
    io: TaskIO | None = getattr(classifier, "io", None)
    return find_kind(classifier.kind).io if io is None else io


@dataclass(frozen=True)
class Predicted:
    """Number of rows written, of those skipped because a part of the input is missing, and of those rejected."""

    rows: int
    empty: int
    rejected: int = 0


def predict_rows(
    classifier: Classifier, rows: Sequence[Fields | None], *, batch_size: int = ROWS
) -> list[dict[str, Any] | None]:
    """The formatted answers to N inputs, in their order: the columns and outputs of the kind's `TaskIO`, or None for an
    input that is None because a part of it is missing."""
    task_io, labels = io_of(classifier), classifier.labels
    given = [fields for fields in rows if fields is not None]
    answers = iter(classifier.answer(given, batch_size) if given else ())
    return [None if fields is None else task_io.format(fields, next(answers), labels) for fields in rows]


def check_files(source: Path, output: Path, *, task_io: TaskIO, columns: Mapping[str, str] | None) -> None:
    """Check the arguments of a prediction, and that the input exists.

    Raises:
        ConfigError: `columns` names an input that the task does not have.
        DataError: a format is unknown, or the input is missing or empty.
    """
    if output.suffix not in WRITTEN:
        suffixes = ", ".join(WRITTEN)
        raise DataError(f"{output}: is written in no format {output.suffix or '(no suffix)'!r}; known: {suffixes}")
    refuse_inputs(columns or {}, task_io.inputs)
    files = source_files(source)
    if not all(map(Path.is_file, files)):
        raise DataError(f"{source}: does not exist")
    if not any(file.stat().st_size for file in files):
        raise DataError(f"{source}: is empty")


def refuse_inputs(named: Iterable[str], inputs: Collection[str]) -> None:
    """Raises ConfigError: a named input is none of the task's."""
    if unknown := sorted({*named}.difference(inputs)):
        raise ConfigError(f"the task has no input {unknown[0]!r}{nearest(unknown[0], inputs)}")


def source_files(source: Path) -> list[Path]:
    """The files of an input: a file, FILE#MEMBER, a folder or a pattern."""
    return files_at(Path(str(source).partition("#")[0]))


@dataclass(frozen=True)
class Part:
    """The prediction of a part of a file; plain values, to be sent to another process.

    Attributes:
        source: stored rows (`components.data.formats.stored`).
        name: of the file that they come from, for messages.
        output: csv, tsv, jsonl or parquet file of the part's predictions; replaced if it exists.
        rejects: file of its rejected rows; None: the first one is an error.
        load: loads the classifier; called once per process.
        columns: input of the task -> column of the file.
        schema: types of a parquet output; None: the types of the table, or of its first batch.
        place: column of each row's place in the file that it comes from; empty: the line of `source`.
        header: whether a csv or tsv begins with its header.
        every_output: whether rows of jsonl also have what a served model answers, such as probabilities.
    """

    source: Path
    name: str
    span: Span
    output: Path
    rejects: Path | None
    load: Callable[[], Classifier]
    columns: Mapping[str, str]
    schema: pa.Schema | None
    header: bool
    batch_size: int
    every_output: bool
    place: str = ""

    @property
    def mark(self) -> Path:
        return self.output.with_suffix(".json")

    def finished(self) -> Predicted | None:
        """The counts of a finished part; None if it is not finished."""
        try:
            return Predicted(**json_of(self.mark)["counts"])
        except FileNotFoundError:
            return None


def predict_table(
    part: Part,
    table: Rows,
    *,
    classifier: Classifier,
    bad: Rejects | None = None,
    progress: Callable[[int], None] | None = None,
) -> Predicted:
    """Predict the rows of a part and write them with their predictions.

    Args:
        bad: receives bad rows; None: they are raised.
        progress: called with the number of rows of each finished batch.

    Raises:
        DataError: the file is damaged; a column is missing or ambiguous; the output cannot be written. The message
            names the line.
    """
    task_io = io_of(classifier)
    rows = empty = 0
    with open_output(part.output, table.names, task_io, part.schema or table.schema, header=part.header) as write:
        added = task_io.columns
        parsed = parsed_rows(part.name, table, task_io, part.columns, rejected=bad, place=part.place, added=added)
        for batch in _batches(parsed, part.batch_size):
            answers = predict_rows(classifier, [fields for _, fields in batch], batch_size=part.batch_size)
            names = {**task_io.columns, **(task_io.outputs if part.every_output else {})}
            given = ({name: answer[name] if answer else None for name in names} for answer in answers)
            write([row | columns for (row, _), columns in zip(batch, given, strict=True)])
            rows += len(batch)
            empty += sum(answer is None for answer in answers)
            if progress is not None:
                progress(len(batch))
    return Predicted(rows=rows, empty=empty, rejected=bad.count if bad is not None else 0)


def schema_of(source: Path, span: Span, *, task_io: TaskIO, columns: Mapping[str, str] | None) -> pa.Schema | None:
    """The types of a parquet output for stored rows without types, from their first batch; None without rows."""
    table = open_stored(source, span)
    if table.schema is not None:
        return table.schema
    # A bad row is reported by the part that contains it.
    rows = parsed_rows(
        str(source), table, task_io, columns or {}, rejected=lambda error, row: None, added=task_io.columns
    )
    first = next(_batches(rows, ROWS), None)
    try:
        return None if first is None else pa.Table.from_pylist([row for row, _ in first]).schema
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None  # the writer reports it


def not_read(fields: Fields) -> str:
    """Why an input is not read, in words: a part contains a NUL character or is longer than `LONGEST`; else empty."""
    if any("\0" in part for part in fields):
        return "contains a NUL character; remove it"
    long = max(map(len, fields), default=0)
    return f"{long:,} characters, more than {LONGEST:,}; cut the text" if long > LONGEST else ""


def named_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `["first=one", "second=two"]` to input -> column. A name without `=` is the column of the input `text`.

    Raises:
        ConfigError: a side of a pair is empty, or an input is named twice.
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        name, separator, column = pair.partition("=")
        if not separator:
            name, column = "text", pair
        if not name or not column or name in columns:
            raise ConfigError(f"column {pair!r}: expected INPUT=COLUMN, once for each input")
        columns[name] = column
    return columns


def input_columns(kind: str, keys: Mapping[str, Any]) -> dict[str, str]:
    """Input of a kind of task -> its column in the labelled data, by the `keys` of `data.tasks.<name>`, or its name."""
    return {name: keys[name] if isinstance(keys.get(name), str) else name for name in find_kind(kind).io.inputs}


def columns_in(names: Collection[str], labelled: Mapping[str, str]) -> dict[str, str]:
    """Input -> column of a table with columns `names`, which it may lack: that of the labelled data, also beside a
    column with the input's name; where there is only this one, it. A column that a person names comes before both."""
    return {name: name if name in names and column not in names else column for name, column in labelled.items()}


def reading_of(
    path: Path,
    *,
    kind: str,
    labels: Sequence[str],
    source: TaskSource | None,
    columns: Mapping[str, str],
    guess: bool = True,
) -> tuple[dict[str, str], str, list[str]]:
    """How a file that is to be predicted is read.

    Args:
        source: the labelled data, whose columns the file may have.
        columns: input -> column, as a person names them.
        guess: whether columns and encoding are guessed as well as the format.

    Returns:
        Input -> column; the format, empty if the content says it; and what was guessed, in words.
    """
    labelled = input_columns(kind, {} if source is None else vars(source))
    form = "" if columns else form_of_texts(path, {*labelled, *labelled.values()}, labels)
    said = guessed_in_words(path) if guess else []
    if guess and source is not None:
        columns = {**columns_of_data(path, kind=kind, source=source, form=form), **columns}
        said += [f"column {column!r} is the {name} (--column)" for name, column in columns.items()]
    return {**columns}, form, [f"{path}: {line}" for line in said]


def columns_of_data(path: Path, *, kind: str, source: TaskSource, form: str = "") -> dict[str, str]:
    """The inputs that a table has under another name: input -> column (`columns_in`), or the columns of the texts as
    `headstart init` finds them. The errors of a table that cannot be read are left to its prediction."""
    try:
        rows = read_rows(path, most=ROWS, form=form)
        columns = columns_in(rows.columns, input_columns(kind, vars(source)))
        if rows.columns.keys().isdisjoint(columns.values()):
            texts = text_columns(rows)
            columns = dict(zip(columns, texts, strict=True)) if len(texts) == len(columns) else {}
    except DataError:
        return {}
    return {name: column for name, column in columns.items() if column in rows.columns.keys() - {name}}


Parsed = tuple[Row, Fields | None]
#: Types of a column of texts.
TEXTS = ("string", "large_string", "string_view")


def parsed_rows(
    path: str,
    table: Rows,
    task_io: TaskIO,
    columns: Mapping[str, str],
    *,
    rejected: Rejected | None,
    place: str = "",
    added: Collection[str] = (),
) -> Iterator[Parsed]:
    """(row, input) of every row, the input None if a part is missing; the columns are checked first, in a file without
    fixed columns row by row. `added`: columns that the rows get, and that none may have."""
    columns = {name: name for name in task_io.inputs} | dict(columns)

    def check(where: str, names: Sequence[str]) -> None:
        for name, column in columns.items():
            if column not in names:
                hint = f"; name the column with --column {name}=COLUMN" if table.fixed else ""
                raise DataError(f"{where}: has no column {column!r}; found: {', '.join(names) or 'none'}{hint}")
        if existing := [name for name in added if name in names]:
            raise DataError(f"{where}: already has a column {existing[0]!r}; rename it")

    if table.fixed:
        check(path, table.names)
        table.refuse_ambiguous(path, columns.values())
    if (schema := table.schema) is not None:
        for name, column in columns.items():
            kind, lists = schema.field(column).type, task_io.inputs[name] == "texts"
            of_lists = lists and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
            if str(kind.value_type if of_lists or pa.types.is_dictionary(kind) else kind) not in TEXTS:
                expected = "a list of texts" if lists else "text"
                raise DataError(f"{path}: column {column!r} is {kind}, expected {expected}")
    for where, row in table.rows:
        where = row[place] if place else where
        try:
            if not table.fixed:
                check(where, list(row))
            try:
                fields = task_io.parse({name: row[column] for name, column in columns.items()})
            except WrongValueError as error:
                raise DataError(f"{where}: {columns[error.name]!r} {error.what}") from error
            if fields is not None and (what := not_read(fields)):
                raise DataError(f"{where}: {what}")
        except DataError as error:
            if rejected is None:
                raise
            rejected(error, row)
        else:
            yield row, fields


def _batches(rows: Iterator[Parsed], size: int) -> Iterator[list[Parsed]]:
    batch: list[Parsed] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(map(len, row[1] or ()))
        if len(batch) == size or characters >= CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
