"""Words with tags, one a line, an empty line after each sentence: CoNLL and CoNLL-U.

CoNLL stands for any file of that shape, whatever its columns (CoNLL-2000, CoNLL-2003, WNUT17). CoNLL-U is the format
of Universal Dependencies (https://universaldependencies.org/format.html).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from components.errors import DataError, nearest
from components.formats.lines import UTF8, Reading, lines

#: The columns of CoNLL-U, in order.
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCSTART = "-DOCSTART-"


@dataclass
class Sentence:
    """W words and their tags.

    Attributes:
        line: where it begins, its comments included.
        lines: W lines, those of the words.
        comments: `key = value` of the comment lines before it.
    """

    line: int
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)


def read_conll(
    path: Path,
    reading: Reading,
    *,
    words: int = 0,
    tags: int = -1,
    delimiter: str | None = None,
    comments: str | None = None,
    encoding: str = UTF8,
) -> Iterator[Sentence]:
    """The sentences of a CoNLL file; lines of -DOCSTART- are skipped.

    Args:
        path: the file.
        reading: what was met on the way.
        words: number of the words' column, from 0, or from the end with -1 as the last.
        tags: of the tags' column.
        delimiter: between columns; None: a tab if the first line has one, else any white space.
        comments: what lines begin with that are comments, where they stand before a sentence's first word; None: "#",
            in lines without the tab that others have, and nothing where no tabs are (`#` is a word too).
        encoding: of the file.

    Raises:
        DataError: a line with another number of columns than the first, a column that is not there, an empty word.
    """
    sentence, width = Sentence(1), 0
    delimiter = delimiter or _tab(path, encoding)
    for number, line in lines(path, reading, encoding=encoding):
        if not line.strip():
            if sentence.words:
                yield sentence
            sentence = Sentence(number + 1)
            continue
        if not sentence.words and _is_comment(line, comments, delimiter):
            _note(sentence, line.removeprefix(comments or "#"))
            continue
        values = line.split(delimiter)
        if values[0].strip() == _DOCSTART:
            continue
        width = width or len(values)
        if len(values) != width:
            raise DataError(
                f"{path}, line {number}: {len(values)} columns, the first line has {width}; set delimiter where words "
                f"hold white space, comments where lines are no words"
            )
        for column in (words, tags):
            if not -width <= column < width:
                raise DataError(f"{path}, line {number}: no column {column}; there are {width}, numbered from 0")
        word = values[words].strip()
        if not word:
            raise DataError(f"{path}, line {number}: the word is empty; remove the line or fill it in")
        sentence.words.append(word)
        sentence.tags.append(values[tags].strip())
        sentence.lines.append(number)
    if sentence.words:
        yield sentence


def _tab(path: Path, encoding: str) -> str | None:
    """A tab if the first line that is surely no comment has one, else None: any white space."""
    for _, line in lines(path, Reading(), encoding=encoding):
        if line.strip() and ("\t" in line or not line.startswith("#")):
            return "\t" if "\t" in line else None
    return None


def _is_comment(line: str, comments: str | None, delimiter: str | None) -> bool:
    if comments is not None:
        return line.startswith(comments)
    return line.startswith("#") and delimiter == "\t" and "\t" not in line and len(line) > 1


def read_conllu(path: Path, reading: Reading, *, tags: str = "upos") -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file: its syntactic words, each with the named column.

    The line of a multi-word token (`1-2`) is passed over, its words follow; so are empty nodes (`5.1`).

    Raises:
        DataError: a line without ten columns, an id that is none, a word without the tag, an unknown column.
    """
    if tags not in CONLLU:
        raise DataError(f"{path}: CoNLL-U has no column {tags!r}{nearest(tags, CONLLU)}")
    column = CONLLU.index(tags)
    sentence = Sentence(1)
    for number, line in lines(path, reading):
        if not line.strip():
            if sentence.words:
                yield sentence
            sentence = Sentence(number + 1)
            continue
        if line.startswith("#"):
            _note(sentence, line[1:])
            continue
        values = line.split("\t")
        if len(values) != len(CONLLU):
            raise DataError(f"{path}, line {number}: {len(values)} columns, CoNLL-U has {len(CONLLU)}, set off by tabs")
        identifier = values[0]
        if not identifier.replace("-", "", 1).replace(".", "", 1).isdigit():
            raise DataError(f"{path}, line {number}: id {identifier!r} is no number, range (1-2) or empty node (5.1)")
        if not identifier.isdigit():
            continue
        if values[column] == "_":
            raise DataError(f"{path}, line {number}: word {values[1]!r} has no {tags}; fill it in, or set tags")
        sentence.words.append(values[1])
        sentence.tags.append(values[column])
        sentence.lines.append(number)
    if sentence.words:
        yield sentence


def _note(sentence: Sentence, comment: str) -> None:
    key, separator, value = comment.partition("=")
    if separator:
        sentence.comments[key.strip()] = value.strip()
