"""Word vectors as text, the form in which word2vec, GloVe and fastText publish theirs.

A line holds a word and its numbers, with spaces between. word2vec and fastText begin with a line "words width", GloVe
does not. GloVe's words may hold spaces themselves ("at name@domain.com"), so numbers are counted from the line's end.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from components.artifacts import partial_path
from components.errors import ArtifactError, DataError

#: Lines whose numbers are read in one go.
TOGETHER: Final = 1024

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """N words, each once, and their vectors (N, D) float32, in the order of the file."""

    words: list[str]
    vectors: Vectors


def read_vectors(path: Path) -> WordVectors:
    """Read a file of word vectors, plain or .gz, with or without a header.

    Raises:
        DataError: the file is missing, damaged or empty, or (with its line) a line of another width, a word that comes
            twice, something that is no finite number, a header that promises another number of words.
    """
    path = Path(path)
    try:
        with _open(path) as file:
            return _read(path, file)
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut off ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors, *, header: bool = True) -> None:
    """Write word vectors, compressed if the name ends in .gz; `read_vectors` gives the same numbers back.

    Args:
        words: N different words without white space.
        vectors: (N, D).
        header: begin with "N D", as word2vec and fastText do; GloVe does not.

    Raises:
        DataError: a word that cannot stand in such a file, or another number of words than of vectors.
        ArtifactError: the disk is full or the path cannot be written.
    """
    path = Path(path)
    if len(words) != len(vectors):
        raise DataError(f"{len(words)} words for {len(vectors)} vectors")
    for word in words:
        if not word or any(character.isspace() for character in word):
            raise DataError(f"{word!r}: a word that is empty or holds white space cannot stand in a file of vectors")
    numbers = " ".join(["%.9g"] * vectors.shape[1])  # nine digits tell any two float32 apart
    try:
        with partial_path(path) as aside:
            # No time and no name in a compressed file: the same vectors make the same bytes.
            with aside.open("wb") as raw, _compressing(raw, path) as file:
                if header:
                    file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
                for word, vector in zip(words, vectors, strict=True):
                    file.write(f"{word} {numbers % tuple(vector.tolist())}\n".encode())
            aside.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another place"
        ) from error


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _compressing(raw: BinaryIO, path: Path) -> BinaryIO:
    if path.suffix != ".gz":
        return raw
    return cast(BinaryIO, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0))


def _read(path: Path, file: BinaryIO) -> WordVectors:
    lines = _lines(path, file)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: holds no vectors")
    fields = first[1].split(" ")
    promised = None
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        promised, width = int(fields[0]), int(fields[1])
        first = None
    else:
        width = len(fields) - 1
    if width < 1:
        raise DataError(f"{path}, line 1: expected a word and its numbers, or a header 'words width'")
    places: dict[str, int] = {}
    blocks: list[Vectors] = []
    block: list[tuple[int, str]] = []
    for number, line in [first] if first else []:
        block.append((number, _split(path, number, line, width, places)))
    for number, line in lines:
        block.append((number, _split(path, number, line, width, places)))
        if len(block) == TOGETHER:
            blocks.append(_numbers(path, block, width))
            block = []
    blocks.append(_numbers(path, block, width))
    if promised is not None and promised != len(places):
        raise DataError(f"{path}: the header says {promised} words, the file holds {len(places)}; is it cut off?")
    if not places:
        raise DataError(f"{path}: holds no vectors")
    return WordVectors(list(places), np.concatenate(blocks))


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Numbered lines. A line ends at "\\n" alone: words may hold what Unicode calls an end of line."""
    for number, raw in enumerate(file, start=1):
        try:
            line = raw.decode().rstrip("\r\n").rstrip(" ")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number}: not UTF-8; is it a binary file of vectors?") from error
        if line:
            yield number, line.replace("\t", " ")


def _split(path: Path, number: int, line: str, width: int, places: dict[str, int]) -> str:
    """The line's numbers, as text; its word goes into `places` with its line."""
    fields = line.rsplit(" ", width)
    if len(fields) <= width:
        raise DataError(f"{path}, line {number}: {len(fields) - 1} numbers, expected {width}")
    word = fields[0]
    # A word may hold spaces, but one that ends in a number is a line with numbers to spare.
    if " " in word and _is_number(word.rsplit(" ", 1)[1]):
        raise DataError(f"{path}, line {number}: more than {width} numbers")
    if not word:
        raise DataError(f"{path}, line {number}: no word before its numbers")
    if word in places:
        raise DataError(f"{path}, line {number}: {word!r} stands in line {places[word]} already")
    places[word] = number
    return line[len(word) + 1 :]


def _numbers(path: Path, block: Sequence[tuple[int, str]], width: int) -> Vectors:
    """(len(block), width) from the numbers of some lines."""
    values: Vectors = np.empty((len(block), width), np.float32)
    for row, (number, text) in zip(values, block, strict=True):
        try:
            with np.errstate(over="ignore"):
                row[:] = text.split(" ")
        except ValueError as error:
            wrong = next(field for field in text.split(" ") if not _is_number(field))
            raise DataError(f"{path}, line {number}: {wrong!r} is not a number") from error
    finite = np.isfinite(values).all(1)
    if not finite.all():
        number, _ = block[int(np.argmin(finite))]
        raise DataError(f"{path}, line {number}: holds a number that is not finite")
    return values


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
