"""Word vectors as text, the format of word2vec, GloVe and fastText.

A line has a word and its numbers, separated by spaces. Files of word2vec and fastText begin with a line "words width",
those of GloVe do not. Words of GloVe may contain spaces ("at name@domain.com"), so numbers are counted from the end of
the line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from components.artifacts import partial_path
from components.errors import ArtifactError, DataError

#: Names of the unknown word in published files.
UNKNOWN: Final = ("<unk>", "[UNK]", "UNK")
#: Lines whose numbers are parsed together.
TOGETHER: Final = 1024

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """N distinct words and their vectors (N, D) float32, in file order."""

    words: list[str]
    vectors: Vectors


def read_vectors(path: Path) -> WordVectors:
    """Read a file of word vectors, plain or .gz, with or without a header.

    Raises:
        DataError: the file is missing, damaged or empty; a line has another width, a repeated word or a value that is
            not a finite number; the header has another number of words.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return _read(path, cast(BinaryIO, file))
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or truncated ({error}); download it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors, *, header: bool = True) -> None:
    """Write word vectors, compressed if the name ends in .gz; `read_vectors` returns the same numbers.

    Args:
        header: whether the first line is "N D", as in word2vec and fastText.

    Raises:
        DataError: a word is empty or contains white space, or there are not as many words as vectors.
        ArtifactError: the disk is full or the path cannot be written.
    """
    path = Path(path)
    if len(words) != len(vectors):
        raise DataError(f"{len(words)} words for {len(vectors)} vectors")
    for word in words:
        if not word or any(character.isspace() for character in word):
            raise DataError(f"{word!r}: words in a file of vectors must not be empty or contain white space")
    numbers = " ".join(["%.9g"] * vectors.shape[1])  # nine digits represent every float32 exactly
    try:
        with partial_path(path) as aside:
            # Compressed files contain no time and no name: the same vectors give the same bytes.
            with aside.open("wb") as raw, ExitStack() as stack:
                file = cast(BinaryIO, raw)
                if path.suffix == ".gz":
                    file = cast(BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0)))
                if header:
                    file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
                for word, vector in zip(words, vectors, strict=True):
                    file.write(f"{word} {numbers % tuple(vector.tolist())}\n".encode())
            aside.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another path"
        ) from error


def _read(path: Path, file: BinaryIO) -> WordVectors:
    lines = _lines(path, file)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: has no vectors")
    fields, declared = first[1].split(" "), None
    width = len(fields) - 1
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        declared, width = int(fields[0]), int(fields[1])
    else:
        lines = chain([first], lines)
    if width < 1:
        raise DataError(f"{path}, line 1: expected a word and its numbers, or a header 'words width'")
    line_of: dict[str, int] = {}
    blocks: list[Vectors] = []
    while block := [(number, _split(path, number, line, width, line_of)) for number, line in islice(lines, TOGETHER)]:
        blocks.append(_numbers(path, block, width))
    if declared is not None and declared != len(line_of):
        raise DataError(f"{path}: {declared} words in the header, {len(line_of)} in the file; is it truncated?")
    if not line_of:
        raise DataError(f"{path}: has no vectors")
    return WordVectors(list(line_of), np.concatenate(blocks))


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Numbered lines. A line ends at "\\n" only: words may contain other Unicode line separators."""
    for number, raw in enumerate(file, start=1):
        try:
            line = raw.decode().rstrip("\r\n").rstrip(" ")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number}: not UTF-8; is it a binary file of vectors?") from error
        if line:
            yield number, line.replace("\t", " ")


def _split(path: Path, number: int, line: str, width: int, line_of: dict[str, int]) -> str:
    """The numbers of a line, as text; adds its word and line number to `line_of`."""
    fields = line.rsplit(" ", width)
    if len(fields) <= width:
        raise DataError(f"{path}, line {number}: {len(fields) - 1} numbers, expected {width}")
    word = fields[0]
    # A word may contain spaces, but if it ends in a number, the line has too many numbers.
    if " " in word and _is_number(word.rsplit(" ", 1)[1]):
        raise DataError(f"{path}, line {number}: more than {width} numbers")
    if not word:
        raise DataError(f"{path}, line {number}: no word before its numbers")
    if word in line_of:
        raise DataError(f"{path}, line {number}: {word!r} occurs in line {line_of[word]} already")
    line_of[word] = number
    return line[len(word) + 1 :]


def _numbers(path: Path, block: Sequence[tuple[int, str]], width: int) -> Vectors:
    """(len(block), width) float32 from the numbers of several lines."""
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
        raise DataError(f"{path}, line {number}: has a number that is not finite")
    return values


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
