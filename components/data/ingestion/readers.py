"""The raw files of a corpus as streams of documents: txt, and the tables of `components.settings.formats` that a corpus
can have; plain, .gz or .zst."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from components.core.errors import DataError
from components.data.formats.kinds import inner_name
from components.data.formats.lines import CODECS, Reading, lines
from components.data.formats.rows import read_columns
from components.data.formats.tables import PLAIN
from components.settings.data import CorpusSource, ParallelSource
from components.settings.formats import FORMATS, by_name, suffix_of

#: A document of a text file that is longer than this ends at the next empty line.
TEXT_DOCUMENT_CHARACTERS = 100_000
_WIKITEXT_TITLE = re.compile(r"\s?= [^=].* =\s*")


def text_documents(path: Path, reading: Reading) -> Iterator[tuple[int, str]]:
    """Documents of a text file, in order, each numbered by its first line.

    A document ends at a form feed, and at two consecutive empty lines; in files with WikiText titles (` = Title = `),
    before each title instead. Beyond 100,000 characters it ends at the next empty line, beyond 200,000 at the next
    line.
    """
    parts: list[str] = []
    start, size, empty, titled = 1, 0, 0, False
    for number, line in lines(path, reading):
        blank, title = not line.strip(), _WIKITEXT_TITLE.fullmatch(line) is not None
        empty, titled = empty + 1 if blank else 0, titled or title
        full = size >= TEXT_DOCUMENT_CHARACTERS and (blank or size >= 2 * TEXT_DOCUMENT_CHARACTERS)
        ends = title or full or (empty == 2 and not titled)
        for index, piece in enumerate(line.split("\f")):
            if parts and (ends or index > 0):
                yield start, "\n".join(parts)
                parts, size = [], 0
            if not parts:
                start = number
            if parts or piece.strip():
                parts.append(piece)
                size += len(piece) + 1
    if parts:
        yield start, "\n".join(parts)


#: Format of text files without columns.
TEXT: Final = "text"


def _suffixes() -> str:
    return ", ".join([".txt", *(suffix for format in FORMATS.values() if format.corpus for suffix in format.suffixes)])


def form_for(path: Path) -> str:
    """The format of a raw file; all but Parquet may be compressed.

    Raises:
        DataError: a corpus cannot have such files.
    """
    name = inner_name(path)
    form = TEXT if suffix_of(name) == ".txt" else by_name(name)
    is_packed = path.suffix.lower() in CODECS
    if form != TEXT and (not form or not FORMATS[form].corpus or (form == "parquet" and is_packed)):
        raise DataError(f"{path}: no reader for this format; known: {_suffixes()}, and these with .gz or .zst")
    return form


def raw_files(source: Path) -> tuple[list[Path], list[Path]]:
    """The readable files of a folder, sorted by path, and the other files; hidden files are in neither list.

    Raises:
        DataError: the path does not exist or has no readable file.
    """
    if source.is_file():
        form_for(source)
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
                form_for(path)
                readable.append(path)
            except DataError:
                others.append(path)
    if not readable:
        hint = f"; {others[0].name} and {len(others) - 1} other(s) have an unknown format" if others else ""
        raise DataError(f"{source}: has no {_suffixes()} file (plain, .gz or .zst){hint}")
    return readable, others


def read_documents(
    path: Path, source: CorpusSource | ParallelSource, reading: Reading
) -> Iterator[tuple[int, list[str], str | None]]:
    """(line, [text] or [text, target], id) of every document of a raw file; null texts become "".

    Raises:
        DataError: the file of pairs is plain text; see also the reader of the format.
    """
    form = form_for(path)
    if form == TEXT:
        if isinstance(source, ParallelSource):
            raise DataError(f"{path}: a text file has no pairs; use jsonl, csv, tsv or parquet")
        yield from ((number, [text], None) for number, text in text_documents(path, reading))
        return
    columns = [source.source, source.target] if isinstance(source, ParallelSource) else [source.text]
    named = columns if source.id is None else [*columns, source.id]
    for number, values in read_columns(path, form, named, PLAIN, reading):
        row_id = None if source.id is None else values[-1]
        yield number, [value or "" for value in values[: len(columns)]], row_id
