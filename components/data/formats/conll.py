"""CoNLL and CoNLL-U: one word with its tags per line, an empty line after each sentence.

CoNLL is any file of that shape, whatever its columns (CoNLL-2000, CoNLL-2003, WNUT17). CoNLL-U is the format of
Universal Dependencies (https://universaldependencies.org/format.html).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from components.core.errors import DataError, nearest
from components.data.formats.lines import Reading, lines
from components.data.formats.tables import Opening, Rows

#: The columns of CoNLL-U, in order.
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCSTART = "-DOCSTART-"
_NEWDOC = "newdoc"


@dataclass
class Sentence:
    """A sentence of W words.

    Attributes:
        line: number of its first line, from 1; comment lines are part of the sentence.
        lines: W line numbers.
        comments: key -> value of the preceding comment lines of the form `key = value`.
        document: number of the marks of a new document before it: -DOCSTART- in CoNLL, `# newdoc` in CoNLL-U.
        block: number of gaps of two or more empty lines before it.
    """

    line: int
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)
    document: int = 0
    block: int = 0


def read_conll(
    path: Path,
    reading: Reading,
    *,
    words: int = 0,
    tags: int = -1,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Iterator[Sentence]:
    """Iterate over the sentences of a CoNLL file; lines with -DOCSTART- are skipped, and in files with tabs lines
    before a sentence that begin with `#` and have no tab.

    Args:
        words, tags: indices of the columns, from 0; negative ones count from the end.
        delimiter: column separator; None: a tab if the first line has one, otherwise any white space.

    Raises:
        DataError: the number of columns differs from the first line's, a column does not exist, or a word is empty.
    """
    sentence, width, document, block, empty = Sentence(1), 0, 0, 0, 0
    delimiter = delimiter or _tab(path, encoding)
    for number, line in lines(path, reading, encoding=encoding):
        if not line.strip():
            if sentence.words:
                yield sentence
            empty += 1
            block += empty == 2
            sentence = Sentence(number + 1, document=document, block=block)
            continue
        empty = 0
        if not sentence.words and delimiter == "\t" and line.startswith("#") and "\t" not in line and len(line) > 1:
            _note(sentence, line.removeprefix("#"))
            continue
        values = line.split(delimiter)
        if values[0].strip() == _DOCSTART:
            document += 1
            if not sentence.words:
                sentence.document = document
            continue
        width = width or len(values)
        if len(values) != width:
            raise DataError(
                f"{len(values)} columns, the first line has {width}",
                where=f"{path}, line {number}",
                key="delimiter",
                do="set {key} if words contain white space",
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


def _tab(path: Path, encoding: str | None) -> str | None:
    """A tab if the first line that cannot be a comment has one; otherwise None, any white space."""
    for _, line in lines(path, Reading(), encoding=encoding):
        if line.strip() and ("\t" in line or not line.startswith("#")):
            return "\t" if "\t" in line else None
    return None


def read_conllu(path: Path, reading: Reading, *, tags: str = "upos") -> Iterator[Sentence]:
    """Iterate over the sentences of a CoNLL-U file: its syntactic words, each with one column as its tag.

    Lines of multi-word tokens (`1-2`) and of empty nodes (`5.1`) are skipped.

    Raises:
        DataError: a line does not have ten columns, an id is invalid, a word has no tag, or the column is unknown.
    """
    if tags not in CONLLU:
        raise DataError(f"{path}: CoNLL-U has no column {tags!r}{nearest(tags, CONLLU)}")
    column = CONLLU.index(tags)
    sentence, document = Sentence(1), 0
    for number, line in lines(path, reading):
        if not line.strip():
            if sentence.words:
                yield sentence
            sentence = Sentence(number + 1, document=document)
            continue
        if line.startswith("#"):
            if (line[1:].split() or [""])[0] == _NEWDOC:
                document += 1
                sentence.document = document
            _note(sentence, line[1:])
            continue
        values = line.split("\t")
        if len(values) != len(CONLLU):
            raise DataError(
                f"{path}, line {number}: {len(values)} columns, CoNLL-U has {len(CONLLU)}, separated by tabs"
            )
        identifier = values[0]
        if not identifier.replace("-", "", 1).replace(".", "", 1).isdigit():
            raise DataError(
                f"{path}, line {number}: id {identifier!r} is not a number, a range (1-2) or an empty node (5.1)"
            )
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


def conll_rows(file: Opening) -> Rows:
    layout = file.layout
    return _rows(file, read_conll(file.path, file.reading, delimiter=layout.delimiter, encoding=layout.encoding))


def conllu_rows(file: Opening) -> Rows:
    return _rows(file, read_conllu(file.path, file.reading))


def _rows(file: Opening, sentences: Iterator[Sentence]) -> Rows:
    rows = ((each.line, {"words": each.words, "tags": each.tags}) for each in sentences)
    return file.rows(["words", "tags"], rows, kind="tagging")
