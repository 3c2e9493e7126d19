"""Labelled files of any format with rows added, removed or given another label.

All other records keep their bytes in csv, tsv, jsonl, label-first and parallel files. A file is replaced atomically and
gets a new inode, so that hard links to it, such as objects in DVC's cache, keep the old content.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import partial_path, sync
from components.errors import DataError
from components.formats.lines import LINE_BYTES
from components.formats.spreadsheet import row_writer
from components.formats.tables import DIALECTS
from components.labelling.rows import Names, label_columns, labels_of, scalar, text_columns
from components.settings.tasks import TaskSource
from components.tasks.data import Fields

#: What becomes of a record: it stays, it goes, or its labels are these; None: it has no label.
Fate = Names | None | Literal["keep", "remove"]
#: (texts, labels or None) -> what becomes of the record.
Decide = Callable[[Fields, Names | None], Fate]
#: Formats that can be written.
EDITED: Final = ("csv", "tsv", "jsonl", "json", "parquet", "label-first", "parallel")
_CODECS: Final = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True)
class NewRow:
    """A row to add; `id` is used if the task has a column of ids."""

    fields: Fields
    labels: Names
    id: str


@dataclass(frozen=True)
class _Form:
    """How values of a task are written.

    Attributes:
        source: of the task.
        lists: whether labels of `multilabel` are written as lists.
    """

    source: TaskSource
    lists: bool

    def values(self, row: NewRow) -> dict[str, Any]:
        """Column -> value."""
        found: dict[str, Any] = dict(zip(text_columns(self.source), row.fields, strict=True))
        if self.source.id is not None:
            found[self.source.id] = row.id
        return found | self.labels(row.labels)

    def labels(self, labels: Names | None) -> dict[str, Any]:
        """Column of labels -> value."""
        if labels is None:
            return dict.fromkeys(label_columns(self.source), "")
        if self.source.kind != "multilabel":
            return {self.source.label: labels[0]}
        if self.source.labels is not None:
            return {name: int(name in labels) for name in self.source.labels}
        return {self.source.label: list(labels) if self.lists else self.source.label_separator.join(labels)}

    def read(self, row: dict[str, Any], where: str) -> tuple[Fields, Names | None]:
        """Texts and labels of a record.

        Raises:
            DataError: a column is missing.
        """
        try:
            texts = tuple(scalar(row[name], where) for name in text_columns(self.source))
            return texts, labels_of([row[name] for name in label_columns(self.source)], self.source, where)
        except KeyError as error:
            raise DataError(f"{where}: no column {error.args[0]!r}") from error


def edit_file(file: str, source: TaskSource, *, decide: Decide, added: Sequence[NewRow] = ()) -> int:
    """Write a labelled file again, with `added` at its end; a missing file is made.

    Args:
        file: as in params.yaml, `FILE` or `FILE#MEMBER`.
        source: of the task.
        decide: what becomes of each record.
        added: new rows.

    Returns:
        Number of records that were removed or changed.

    Raises:
        DataError: the file is damaged or cannot be written, or labels have a form that its format cannot hold.
    """
    name, _, member = file.partition("#")
    path, form = Path(source.path) / name, source.format_of(name)
    if form not in EDITED:
        raise DataError(
            f"{path}: labels cannot be written to format {form}; label in the tool that wrote it, or name a second "
            "train file that is made for them (train: [FILE, labels.jsonl])"
        )
    try:
        if form == "parallel":
            return _edit_parallel(path, source, decide, added)
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "parquet":
            content, count = _edited_parquet(path, source, decide, added)
        else:
            raw = _read(path, source.encoding)
            edited = {"jsonl": _jsonl, "label-first": _label_first, "csv": _separated, "tsv": _separated}.get(form)
            text, count = (
                _json(raw, member, source, decide, added, path)
                if edited is None
                else edited(raw, source, decide, added, path)
            )
            content = text.encode(source.encoding, _errors(source.encoding))
        _replace({path: content})
        return count
    except (UnicodeError, csv.Error, pa.ArrowException, ValueError) as error:
        raise DataError(f"{path}: cannot be edited ({error}); correct the file, or add the labels by hand") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); check the folder") from error


def _errors(encoding: str) -> str:
    return "surrogateescape" if encoding == "utf-8" else "strict"


def _read(path: Path, encoding: str) -> str:
    if not path.exists():
        return ""
    codec = _CODECS.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=codec) as stream:
        return str(stream.read().decode(encoding, _errors(encoding)))


def _replace(contents: dict[Path, bytes]) -> None:
    """Replace files; each is complete before the first of them is renamed."""
    if not contents:
        return
    path, *rest = contents
    with partial_path(path) as partial:
        codec = _CODECS.get(path.suffix.lower())
        with partial.open("wb") as file:
            file.write(
                pa.Codec(codec).compress(contents[path], asbytes=True)
                if codec == "zstd"
                else _zipped(path, contents[path])
            )
        if path.exists():
            partial.chmod(path.stat().st_mode & 0o777 | 0o200)
        sync(partial)
        _replace({other: contents[other] for other in rest})
        partial.replace(path)


def _zipped(path: Path, content: bytes) -> bytes:
    if path.suffix.lower() != ".gz":
        return content
    import gzip

    return gzip.compress(content, mtime=0)


def _lines(text: str) -> list[str]:
    """Lines with their ends; only line feeds end a line, as in the readers."""
    return list(io.StringIO(text, newline="\n"))


def _ending(lines: Sequence[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _closed(lines: list[str]) -> list[str]:
    """The lines, the last of which ends as the others do."""
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += _ending(lines)
    return lines


def _jsonl(text: str, source: TaskSource, decide: Decide, added: Sequence[NewRow], path: Path) -> tuple[str, int]:
    kept: list[str] = []
    count, lists = 0, source.kind == "multilabel"
    lines = _lines(text)
    for number, line in enumerate(lines, 1):
        if not line.strip().strip("\ufeff"):
            kept.append(line)
            continue
        row = json.loads(line.lstrip("\ufeff"))
        lists &= isinstance(row.get(source.label), list) or row.get(source.label) is None
        form = _Form(source, lists=isinstance(row.get(source.label), list))
        fate = decide(*form.read(row, f"{path}, line {number}"))
        count += fate != "keep"
        if fate == "keep":
            kept.append(line)
        elif fate != "remove":
            kept.append(json.dumps(row | form.labels(fate), ensure_ascii=False) + _ending(lines))
    form = _Form(source, lists=lists)
    new = [json.dumps(form.values(row), ensure_ascii=False) + _ending(lines) for row in added]
    return "".join([*_closed(kept), *new]), count


def _label_first(text: str, source: TaskSource, decide: Decide, added: Sequence[NewRow], path: Path) -> tuple[str, int]:
    def line_of(fields: Fields, labels: Names | None) -> str:
        if labels is None:
            raise DataError(f"{path}: in format label-first every text has a label")
        if any(character.isspace() for character in labels[0]) or "\n" in fields[0]:
            raise DataError(
                f"{path}: in format label-first a label has no white space and a text one line; {labels[0]!r}"
            )
        return f"{labels[0]} {fields[0]}{_ending(lines)}"

    kept: list[str] = []
    count, lines = 0, _lines(text)
    for line in lines:
        label, *rest = line.split(maxsplit=1) or [""]
        fields = ((rest[0].rstrip() if rest else ""),)
        fate = decide(fields, (label,)) if label else "keep"
        count += fate != "keep"
        if fate == "keep":
            kept.append(line)
        elif fate != "remove":
            kept.append(line_of(fields, fate))
    return "".join([*_closed(kept), *(line_of(row.fields, row.labels) for row in added)]), count


def _separated(text: str, source: TaskSource, decide: Decide, added: Sequence[NewRow], path: Path) -> tuple[str, int]:
    dialect = DIALECTS[f".{source.format_of(path.name)}"]
    delimiter = source.delimiter or dialect["delimiter"]
    quotes = dialect["quoting"] == csv.QUOTE_MINIMAL if source.quotes is None else source.quotes
    form, lines = _Form(source, lists=False), _lines(text)
    ending = _ending(lines)

    def record(values: Sequence[str]) -> str:
        if not quotes and any(character in value for value in values for character in (delimiter, "\n", "\r")):
            raise DataError(
                f"{path}: without quotes, no value can hold {delimiter!r} or a line break; set quotes: true"
            )
        if not quotes:
            return delimiter.join(values) + ending
        out = io.StringIO()
        row_writer(out, ending=ending, delimiter=delimiter)(values)
        return out.getvalue()

    csv.field_size_limit(LINE_BYTES)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    # As in the reader, a carriage return at the end of a line is not part of a value.
    plain = [line.removesuffix("\n").removesuffix("\r") + "\n" for line in lines]
    if plain:
        plain[0] = plain[0].removeprefix("\ufeff")
    rows = csv.reader(iter(plain), delimiter=delimiter, quoting=quoting, strict=True)
    kept: list[str] = []
    names: list[str] = []
    count = start = 0
    for values in rows:
        raw, start, first = "".join(lines[start : rows.line_num]), rows.line_num, not names
        if not values:
            kept.append(raw)
            continue
        if first:
            names = values if source.header else [str(index) for index in range(len(values))]
            if source.header:
                kept.append(raw)
                continue
        row = dict(zip(names, values, strict=True))
        fate = decide(*form.read(row, f"{path}, line {rows.line_num}"))
        count += fate != "keep"
        if fate == "keep":
            kept.append(raw)
        elif fate != "remove":
            kept.append(record([str(value) for value in (row | form.labels(fate)).values()]))
    if not names:
        names = _names(source)
        kept += [record(names)] if source.header else []
    new = [{name: str(value) for name, value in form.values(row).items()} for row in added]
    return "".join([*_closed(kept), *(record([row.get(name, "") for name in names]) for row in new)]), count


def _names(source: TaskSource) -> list[str]:
    """The columns of a new file; numbers in one without a header."""
    wanted = [*text_columns(source), *label_columns(source), *([source.id] if source.id is not None else [])]
    if source.header:
        return wanted
    if not all(name.isdigit() for name in wanted):
        raise DataError(f"{source.path}: header is false, so columns are numbers from 0; found {', '.join(wanted)}")
    return [str(index) for index in range(max(map(int, wanted)) + 1)]


def _json(
    text: str, member: str, source: TaskSource, decide: Decide, added: Sequence[NewRow], path: Path
) -> tuple[str, int]:
    document: Any = json.loads(text.lstrip("\ufeff")) if text.strip() else []
    holder: Any = [document]
    place: Any = 0
    if not text.strip() and member:
        holder = document = {}
        for key in member.split(".")[:-1]:
            holder = holder.setdefault(key, {})
        place = member.split(".")[-1]
        holder[place] = []
        root = document
    else:
        root = None
        for key in member.split(".") if member else []:
            holder, place = holder[place], key
    rows = holder[place]
    kept: list[Any] = []
    count, as_lists, lists = 0, bool(rows) and isinstance(rows[0], list), source.kind == "multilabel"
    width = len(rows[0]) if as_lists else 0
    for number, row in enumerate(rows, 1):
        members = {str(index): value for index, value in enumerate(row)} if isinstance(row, list) else row
        own = _Form(source, lists=isinstance(members.get(source.label), list))
        lists &= own.lists
        fate = decide(*own.read(members, f"{path}, row {number}"))
        count += fate != "keep"
        if fate == "keep":
            kept.append(row)
        elif fate != "remove":
            changed = members | own.labels(fate)
            kept.append(list(changed.values()) if isinstance(row, list) else changed)
    form = _Form(source, lists=lists)
    for new in added:
        values = form.values(new)
        kept.append([values.get(str(index), "") for index in range(width)] if as_lists else values)
    holder[place] = kept
    whole = root if root is not None else document if member else kept
    indent = 1 if "\n" in text.strip() or not text.strip() else None
    return json.dumps(whole, ensure_ascii=False, indent=indent) + "\n", count


def _edited_parquet(path: Path, source: TaskSource, decide: Decide, added: Sequence[NewRow]) -> tuple[bytes, int]:
    columns = [*text_columns(source), *label_columns(source)]
    if path.exists():
        table = pq.read_table(path)
    else:
        names = [*columns, *([source.id] if source.id is not None else [])]
        several = source.kind == "multilabel" and source.labels is None
        kinds = [pa.list_(pa.string()) if several and name == source.label else pa.string() for name in names]
        kinds = [
            pa.int64() if source.labels and name in source.labels else kind
            for name, kind in zip(names, kinds, strict=True)
        ]
        table = pa.table([pa.array([], kind) for kind in kinds], names=names)
    form = _Form(source, lists=source.labels is None and _holds_lists(table, source.label))
    kept: list[int] = []
    changes: dict[int, dict[str, Any]] = {}
    rows = table.select(columns).to_pylist()
    count = 0
    for index, row in enumerate(rows):
        fate = decide(*form.read(row, f"{path}, row {index + 1}"))
        count += fate != "keep"
        if fate != "remove":
            if fate != "keep":
                changes[len(kept)] = form.labels(fate)
            kept.append(index)
    table = table.take(pa.array(kept, pa.int64()))
    for name in label_columns(source) if changes else ():
        values = table.column(name).to_pylist()
        for index, new in changes.items():
            values[index] = new[name]
        table = table.set_column(table.column_names.index(name), table.schema.field(name), _array(values, table, name))
    if added:
        new_rows = [form.values(row) for row in added]
        arrays = [_array([row.get(name) for row in new_rows], table, name) for name in table.column_names]
        table = pa.concat_tables([table, pa.table(arrays, schema=table.schema)])
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue(), count


def _holds_lists(table: pa.Table, name: str) -> bool:
    return name in table.column_names and bool(pa.types.is_list(table.schema.field(name).type))


def _array(values: Sequence[Any], table: pa.Table, name: str) -> pa.Array:
    """Values in the type of a column: labels may be stored as numbers."""
    kind = table.schema.field(name).type
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return pa.array([None if value in (None, "") else str(value) for value in values], pa.string()).cast(kind)
    return pa.array([None if pa.types.is_list(kind) and value == "" else value for value in values], kind)


def _edit_parallel(path: Path, source: TaskSource, decide: Decide, added: Sequence[NewRow]) -> int:
    """Lines of the files in a folder: those of the task's columns, and further files with as many lines."""
    wanted = [*text_columns(source), *label_columns(source), *([source.id] if source.id is not None else [])]
    path.mkdir(parents=True, exist_ok=True)
    form = _Form(source, lists=False)
    lines = {name: _lines(_read(path / name, source.encoding)) for name in wanted}
    count = len(lines[wanted[0]])
    if any(len(found) != count for found in lines.values()):
        raise DataError(f"{path}: the files {', '.join(wanted)} have different numbers of lines")
    for file in sorted(path.iterdir()):
        if file.is_file() and not file.name.startswith(".") and file.name not in lines:
            found = _lines(_read(file, source.encoding))
            if count and len(found) == count:
                lines[file.name] = found
    kept: dict[str, list[str]] = {name: [] for name in lines}
    changed = 0
    for index in range(count):
        row = {name: lines[name][index].rstrip("\r\n") for name in wanted}
        fate = decide(*form.read(row, f"{path}, line {index + 1}")) if any(row.values()) else "keep"
        changed += fate != "keep"
        if fate == "remove":
            continue
        new = {} if fate == "keep" else {name: f"{value}\n" for name, value in form.labels(fate).items()}
        for name in lines:
            kept[name].append(new.get(name, lines[name][index]))
    for addition in added:
        values = form.values(addition)
        if any("\n" in str(value) for value in values.values()):
            raise DataError(f"{path}: a text of parallel files has one line; remove the line break")
        for name in lines:
            kept[name].append(f"{values.get(name, '')}\n")
    contents = {path / name: "".join(_closed(found)) for name, found in kept.items()}
    _replace({file: text.encode(source.encoding, _errors(source.encoding)) for file, text in contents.items()})
    return changed


def files_for(source: TaskSource) -> Iterator[str]:
    """The train files, the one that new rows are added to first: the last that is named."""
    yield from reversed(source.files("train"))
