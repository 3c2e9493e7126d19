"""CoNLL and CoNLL-U: one word with its tags per line, an empty line after each sentence.

CoNLL is any file of that shape, whatever its columns (CoNLL-2000, CoNLL-2003, WNUT17). CoNLL-U is the format of
Universal Dependencies (https://universaldependencies.org/format.html).

A row is a sentence, with its comment lines before it. Its columns are, as far as they are asked for: the columns of the
lines, each a list with a value per word, by number in CoNLL (negative ones count from the end) and by name in CoNLL-U;
`lines`, the number of each word's line; `marks` and `empty_lines`, the numbers of marks of a new document (-DOCSTART-,
`# newdoc`) and of gaps of two or more empty lines before it; its comments of the form `key = value`, null if missing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from components.core.errors import DataError
from components.data.formats.tables import Opening, Row, Rows

#: The columns of CoNLL-U, in order.
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCSTART = "-DOCSTART-"
_NEWDOC = "newdoc"


def conll_rows(file: Opening) -> Rows:
    """The sentences of a CoNLL file. In files with tabs, lines that begin with `#` and have no tab before a sentence
    are comments.

    Raises:
        DataError: the number of columns differs from the first line's, or a column does not exist.
    """
    return _rows(file, {"words": 0, "tags": -1}, universal=False)


def conllu_rows(file: Opening) -> Rows:
    """The sentences of a CoNLL-U file: its syntactic words. Lines of multi-word tokens (`1-2`) and of empty nodes
    (`5.1`) are skipped; a value `_` of another column than `form` is empty.

    Raises:
        DataError: a line does not have ten columns, or an id is invalid.
    """
    numbers = {name: number for number, name in enumerate(CONLLU)}
    return _rows(file, {**numbers, "words": numbers["form"], "tags": numbers["upos"]}, universal=True)


def _rows(file: Opening, numbers: Mapping[str, int], *, universal: bool) -> Rows:
    names = list(file.columns or ("words", "tags"))

    def row(first: int, words: Sequence[tuple[int, list[str]]], further: Row) -> tuple[int, Row]:
        columns = list(map(list, zip(*(cells for _, cells in words), strict=True)))
        result = further | {"lines": [number for number, _ in words]}
        for name in names:
            number = numbers.get(name, int(name) if name.removeprefix("-").isdigit() else None)
            if number is None:
                result.setdefault(name, None)
            elif -len(columns) <= number < len(columns):
                result[name] = columns[number]
            else:
                where = f"{file.path}, line {first}"
                raise DataError(f"{where}: no column {number}; there are {len(columns)}, numbered from 0")
        return first, {name: result[name] for name in names}

    return file.rows(names, (row(*each) for each in _sentences(file, universal)))


def _sentences(file: Opening, universal: bool) -> Iterator[tuple[int, list[tuple[int, list[str]]], Row]]:
    """(number of the first line, (number, columns) of the line of each word, what else is known) of each sentence."""
    delimiter = "\t" if universal else file.layout.delimiter or _tab(file)
    counts, gap, width = Counter(marks=0, empty_lines=0), 0, len(CONLLU) if universal else 0
    first, words, further = 1, list[tuple[int, list[str]]](), Row()
    for number, line in chain(file.lines(), [(0, "")]):
        if not line.strip():
            if words:
                yield first, words, further
            gap += 1
            counts["empty_lines"] += gap == 2
            first, words, further = number + 1, [], {}
            continue
        gap = 0
        comment = not words and delimiter == "\t" and "\t" not in line and len(line) > 1
        if line.startswith("#") and (universal or comment):
            key, separator, value = line[1:].partition("=")
            counts["marks"] += universal and line[1:].split()[:1] == [_NEWDOC]
            further |= {key.strip(): value.strip()} if separator else {}
            continue
        cells = line.split("\t") if universal else [cell.strip() for cell in line.split(delimiter)]
        if cells[0] == _DOCSTART and not universal:
            counts["marks"] += 1
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise DataError(
                f"{len(cells)} columns, "
                + (f"CoNLL-U has {width}, separated by tabs" if universal else f"the first line has {width}"),
                where=f"{file.path}, line {number}",
                key="delimiter",
                do="" if universal else "set {key} if words contain white space",
            )
        if universal and not (identifier := cells[0]).isdigit():
            if identifier.replace("-", "", 1).replace(".", "", 1).isdigit():
                continue
            where = f"{file.path}, line {number}"
            raise DataError(f"{where}: id {identifier!r} is not a number, a range (1-2) or an empty node (5.1)")
        if universal:
            cells = ["" if cell == "_" and name != "form" else cell for name, cell in zip(CONLLU, cells, strict=True)]
        if not words:
            further |= counts
        words.append((number, cells))


def _tab(file: Opening) -> str | None:
    """A tab if the first line that cannot be a comment has one; otherwise None, any white space."""
    for _, line in Opening(file.path, file.layout).lines():
        if line.strip() and ("\t" in line or not line.startswith("#")):
            return "\t" if "\t" in line else None
    return None
