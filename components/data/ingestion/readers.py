"""The raw files of a corpus as streams of rows: txt, jsonl, csv, tsv and parquet; plain, .gz or .zst.

`READERS` maps suffixes to readers, generators over one file; readers of tables are in `components.data.formats.tables`.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.core.errors import DataError
from components.data.formats.kinds import inner_name
from components.data.formats.lines import Reading, lines
from components.data.formats.tables import COMPRESSED, PLAIN, TABLES, Layout, Row, Table, read_parquet, suffix
from components.data.formats.workbook import SUFFIXES as WORKBOOKS
from components.settings.data import CorpusSource, ParallelSource

#: A document of a text file that is longer than this ends at the next empty line.
TEXT_DOCUMENT_CHARACTERS = 100_000
_WIKITEXT_TITLE = re.compile(r"\s?= [^=].* =\s*")


def read_text(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Documents of a text file, in order, each numbered by its first line; every column is the document's text.

    A document ends at a form feed and at two consecutive empty lines; in files with WikiText titles (` = Title = `), it
    ends before each title instead. Beyond 100,000 characters it ends at the next empty line, beyond 200,000 at the next
    line.
    """
    parts: list[str] = []
    start, size, empty, titled = 1, 0, 0, False
    for number, line in lines(path, reading):
        blank = not line.strip()
        empty = empty + 1 if blank else 0
        title = _WIKITEXT_TITLE.fullmatch(line) is not None
        titled = titled or title
        full = size >= TEXT_DOCUMENT_CHARACTERS and (blank or size >= 2 * TEXT_DOCUMENT_CHARACTERS)
        apart = title or full or (empty == 2 and not titled)
        for index, piece in enumerate(line.split("\f")):
            if parts and (apart or index > 0):
                yield start, ("\n".join(parts),) * len(columns)
                parts, size = [], 0
            if not parts:
                start = number
            if parts or piece.strip():
                parts.append(piece)
                size += len(piece) + 1
    if parts:
        yield start, ("\n".join(parts),) * len(columns)


#: Suffix -> reader; all but Parquet also read compressed files (.gz, .zst).
READERS: dict[str, Table] = {
    ".txt": read_text,
    ".jsonl": TABLES["jsonl"],
    ".ndjson": TABLES["jsonl"],
    ".csv": TABLES["csv"],
    ".tsv": TABLES["tsv"],
    ".tab": TABLES["tsv"],
    **dict.fromkeys(WORKBOOKS, TABLES["workbook"]),
    ".parquet": read_parquet,
}


def reader_for(path: Path) -> Table:
    name = inner_name(path) if path.suffix.lower() == ".zip" and path.is_file() else path.name
    reader = READERS.get(suffix(name))
    if reader is None or (reader is read_parquet and path.name.lower().endswith(COMPRESSED)):
        raise DataError(f"{path}: no reader for this format; known: {', '.join(READERS)}, and these with .gz or .zst")
    return reader


def raw_files(source: Path) -> tuple[list[Path], list[Path]]:
    """The readable files of a folder, sorted by path, and the other files; hidden files are in neither list.

    Raises:
        DataError: the path does not exist or has no readable file.
    """
    if source.is_file():
        reader_for(source)
        return [source], []
    if not source.is_dir():
        raise DataError(
            f"{source}: does not exist; put text there (`headstart data` makes the built-in data) or name another path"
        )
    readable: list[Path] = []
    others: list[Path] = []
    for path in sorted(source.rglob("*"), key=lambda path: path.relative_to(source).parts):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            try:
                reader_for(path)
                readable.append(path)
            except DataError:
                others.append(path)
    if not readable:
        hint = f"; {others[0].name} and {len(others) - 1} other(s) have an unknown format" if others else ""
        raise DataError(f"{source}: has no {', '.join(READERS)} file (plain, .gz or .zst){hint}")
    return readable, others


def read_texts(path: Path, source: CorpusSource, reading: Reading) -> Iterator[tuple[int, str, str | None]]:
    """(line, text, id) of every document of a raw file; a null text becomes "", a missing id column gives None.

    Raises:
        DataError: see the reader of the format.
    """
    for number, (text,), row_id in read_documents(path, source, reading):
        yield number, text, row_id


def read_documents(
    path: Path, source: CorpusSource | ParallelSource, reading: Reading
) -> Iterator[tuple[int, list[str], str | None]]:
    """(line, [text] or [text, target], id) of every document of a raw file; null texts become "".

    Raises:
        DataError: the file of pairs is plain text; see also the reader of the format.
    """
    reader = reader_for(path)
    if isinstance(source, ParallelSource) and reader is read_text:
        raise DataError(f"{path}: a text file has no pairs; use jsonl, csv, tsv or parquet")
    columns = [source.source, source.target] if isinstance(source, ParallelSource) else [source.text]
    identified = source.id is not None and reader is not read_text
    for number, values in reader(path, [*columns, str(source.id)] if identified else columns, PLAIN, reading):
        yield number, [value or "" for value in values[: len(columns)]], values[-1] if identified else None
