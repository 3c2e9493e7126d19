"""CoNLL and CoNLL-U: one word with its tags per line, an empty line after each sentence.

CoNLL is any file of that shape, whatever its columns (CoNLL-2000, CoNLL-2003, WNUT17). CoNLL-U is the format of
Universal Dependencies (https://universaldependencies.org/format.html).

A row is a sentence, with its comment lines before it. Its columns are, as far as they are asked for: the columns of the
lines, each a list with a value per word, by number in CoNLL (negative ones count from the end) and by name in CoNLL-U;
`lines`, the number of each word's line; `marks` and `empty_lines`, the numbers of marks of a new document (-DOCSTART-,
`# newdoc`) and of gaps of two or more empty lines before it; its comments of the form `key = value`, null if missing.
"""

from collections import Counter
from itertools import chain

from components.core.errors import DataError
from components.data.formats.tables import Numbered, Row, Rows

#: The columns of CoNLL-U, in order.
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def read_conll(file: Rows) -> Numbered:
    """The sentences of a file. In CoNLL with tabs, lines that begin with `#` and have no tab before a sentence are
    comments. Of CoNLL-U the syntactic words: lines of multi-word tokens (`1-2`) and of empty nodes (`5.1`) are skipped;
    a value `_` of another column than `form` is empty.

    Raises:
        DataError: the number of columns differs from the first line's, a column does not exist, or an id is invalid.
    """
    universal, names = file.form == "conllu", file.columns or ("words", "tags")
    delimiter = "\t" if universal else file.layout.delimiter or _tab(file)
    counts, gap, width = Counter(marks=0, empty_lines=0), 0, len(CONLLU) if universal else 0
    first, words, further = 1, dict[int, list[str]](), Row()
    for number, line in chain(file.lines(), [(0, "")]):
        if not line.strip():
            if words:
                yield first, {name: _column(file, name, first, words, further) for name in names}
            gap += 1
            counts["empty_lines"] += gap == 2
            first, words, further = number + 1, {}, {}
            continue
        gap = 0
        comment = not words and delimiter == "\t" and "\t" not in line and len(line) > 1
        if line.startswith("#") and (universal or comment):
            key, separator, value = line[1:].partition("=")
            counts["marks"] += universal and line[1:].split()[:1] == ["newdoc"]
            further |= {key.strip(): value.strip()} if separator else {}
            continue
        cells = line.split("\t") if universal else [cell.strip() for cell in line.split(delimiter)]
        if cells[0] == "-DOCSTART-" and not universal:
            counts["marks"] += 1
            continue
        width = width or len(cells)
        if len(cells) != width:
            expected = f"CoNLL-U has {width}, separated by tabs" if universal else f"the first line has {width}"
            do = "" if universal else "set {key} if words contain white space"
            raise DataError(f"{len(cells)} columns, {expected}", where=file.at(number), key="delimiter", do=do)
        if universal and not cells[0].isdigit():
            if cells[0].replace("-", "", 1).replace(".", "", 1).isdigit():
                continue
            what = f"id {cells[0]!r} is not a number, a range (1-2) or an empty node (5.1)"
            raise DataError(what, where=file.at(number))
        if universal:
            cells = ["" if cell == "_" and at != 1 else cell for at, cell in enumerate(cells)]
        further |= {} if words else counts
        words[number] = cells


def _column(file: Rows, name: str, first: int, words: dict[int, list[str]], further: Row) -> list[str] | object:
    universal = file.form == "conllu"
    named = {name: number for number, name in enumerate(CONLLU)} if universal else {}
    number = (named | {"words": int(universal), "tags": 3 if universal else -1}).get(name)
    if number is None and not name.removeprefix("-").isdigit():
        return (further | {"lines": [*words]}).get(name)
    number, width = int(name) if number is None else number, len(next(iter(words.values())))
    if not -width <= number < width:
        raise DataError(f"no column {number}; there are {width}, numbered from 0", where=file.at(first))
    return [cells[number] for cells in words.values()]


def _tab(file: Rows) -> str | None:
    """A tab if the first line that cannot be a comment has one; otherwise None, any white space."""
    lines = (line for _, line in Rows(file.path, file.layout).lines())
    first = next((line for line in lines if line.strip() and ("\t" in line or not line.startswith("#"))), "")
    return "\t" if "\t" in first else None
