"""Word vectors as text, the format of word2vec, GloVe and fastText.

A line has a word and its numbers, separated by spaces. Files of word2vec and fastText begin with a line "words width",
files of GloVe do not. Words of GloVe may contain spaces ("at name@domain.com"), so numbers are counted from the end of
the line.
"""

import gzip
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import partial_path
from components.core.errors import ArtifactError, DataError

#: Names of the unknown word in published files.
UNKNOWN: Final = ("<unk>", "[UNK]", "UNK")

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class WordVectors:
    """N distinct words and their vectors (N, D) float32, in file order."""

    words: list[str]
    vectors: Vectors

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """(len(rows), D), the vectors of the words with these indices."""
        return self.vectors[rows]

    def unseen(self, word: str) -> Vectors | None:
        """(D,), the vector of a word outside the file; None: it has none."""
        return None


def read_vectors(path: Path) -> WordVectors:
    """Read a file of word vectors, plain or .gz, with or without a header.
    Raises DataError: the file is missing, damaged or empty; a line has another width, a repeated word or a value that
    is not a finite number; the header has another number of words."""
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


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors) -> None:
    """Write word vectors, compressed if the name ends in .gz; `read_vectors` returns the same numbers.
    Raises DataError: a word is empty or contains white space, or there are not as many words as vectors; ArtifactError:
    the disk is full or the path cannot be written."""
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
                file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
                for word, vector in zip(words, vectors, strict=True):
                    file.write(f"{word} {numbers % tuple(vector.tolist())}\n".encode())
            aside.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another path"
        ) from error


def _read(path: Path, file: BinaryIO) -> WordVectors:
    width: int | None = None
    declared: int | None = None
    line_of: dict[str, int] = {}
    rows: list[Vectors] = []
    # A line ends at a line feed only: words may contain other Unicode line separators.
    for number, raw in enumerate(file, start=1):
        where = f"{path}, line {number}"
        try:
            line = raw.decode().rstrip("\r\n").rstrip(" ").replace("\t", " ")
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8; is it a binary file of vectors?") from error
        if not line:
            continue
        if width is None:
            fields = line.split(" ")
            width = len(fields) - 1
            if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
                declared, width = int(fields[0]), int(fields[1])
            if width < 1:
                raise DataError(f"{path}, line 1: expected a word and its numbers, or a header 'words width'")
            if declared is not None:
                continue
        word, values = _parsed(where, line, width)
        if word in line_of:
            raise DataError(f"{where}: {word!r} occurs in line {line_of[word]} already")
        line_of[word] = number
        rows.append(values)
    if declared is not None and declared != len(line_of):
        raise DataError(f"{path}: {declared} words in the header, {len(line_of)} in the file; is it truncated?")
    if not line_of:
        raise DataError(f"{path}: has no vectors")
    return WordVectors(list(line_of), np.stack(rows))


def _parsed(where: str, line: str, width: int) -> tuple[str, Vectors]:
    """The word of a line, and its numbers (width,)."""
    word, *numbers = line.rsplit(" ", width)
    if len(numbers) < width:
        raise DataError(f"{where}: {len(numbers)} numbers, expected {width}")
    # A word may contain spaces, but if it ends in a number, the line has too many numbers.
    if " " in word and _is_number(word.rsplit(" ", 1)[1]):
        raise DataError(f"{where}: more than {width} numbers")
    if not word:
        raise DataError(f"{where}: no word before its numbers")
    try:
        with np.errstate(over="ignore"):
            values = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        wrong = next(field for field in numbers if not _is_number(field))
        raise DataError(f"{where}: {wrong!r} is not a number") from error
    if not np.isfinite(values).all():
        raise DataError(f"{where}: has a number that is not finite")
    return word, values


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
