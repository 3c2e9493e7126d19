"""Files of word vectors: as text (word2vec, GloVe, fastText), and binary (word2vec, fastText with its n-grams).

Text: a line has a word and its numbers, separated by spaces. Files of word2vec and fastText begin with a line "words
width", files of GloVe do not. Words of GloVe may contain spaces ("at name@domain.com"), so numbers are counted from the
end of the line.
word2vec (Mikolov et al. 2013, `word2vec.c`): a line "words width", then each word, a space and its float32 numbers.
fastText (`FastText::saveModel`): settings, dictionary, then the table of words and buckets of n-grams.
"""

import gzip
import struct
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import partial_path
from components.core.errors import ArtifactError, DataError
from components.models.fasttext import FastTextConfig, ngram_buckets

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
    """Read word vectors: a .bin file of word2vec or fastText, or text, plain or .gz, with or without a header.

    Raises:
        DataError: the file is missing, damaged, empty, or of a quantised model; a line has another width, a repeated
            word or a value that is not a finite number; the header has another number of words.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as opened:
            file = cast(BinaryIO, opened)
            if path.suffix != SUFFIX:
                return _read(path, file)
            if struct.unpack("<i", file.read(4).ljust(4, b"\0"))[0] == MAGIC:
                return _fasttext(path, file)
            file.seek(0)
            return _word2vec(path, file)
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile, struct.error) as error:
        what = "truncated" if path.suffix == SUFFIX else f"damaged or truncated ({error})"
        raise DataError(f"{path}: {what}; download it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors) -> None:
    """Write word vectors, compressed if the name ends in .gz; `read_vectors` returns the same numbers.

    Raises:
        DataError: a word is empty or contains white space, or there are not as many words as vectors.
        ArtifactError: the disk is full or the path cannot be written.
    """
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


SUFFIX: Final = ".bin"
#: First four bytes of a file of fastText, and the versions whose layout is read.
MAGIC: Final = 793_712_314
VERSIONS: Final = (11, 12)
#: Words of a file of fastText that keep a row, the most frequent ones; others are composed of their n-grams.
MOST_WORDS: Final = 200_000
#: Longest word of word2vec in bytes.
LONGEST: Final = 10_000


@dataclass(frozen=True)
class FastTextVectors(WordVectors):
    """Words of a file of fastText without their n-grams, rows of the n-grams (buckets, D), and their `config`."""

    grams: Vectors = field(default_factory=lambda: np.empty((0, 0), np.float32))
    config: FastTextConfig = field(default_factory=lambda: FastTextConfig(vocabulary=1))

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        return np.stack([self._composed(self.words[row], self.vectors[row]) for row in rows.tolist()])

    def unseen(self, word: str) -> Vectors | None:
        buckets = ngram_buckets(word, self.config) if len(self.grams) else []
        return np.asarray(self.grams[buckets].mean(0), np.float32) if buckets else None

    def _composed(self, word: str, row: Vectors) -> Vectors:
        # The end of a line has no n-grams.
        buckets = ngram_buckets(word, self.config) if len(self.grams) and word != "</s>" else []
        return np.asarray(np.vstack([row[None], self.grams[buckets]]).mean(0) if buckets else row, np.float32)


def _word2vec(path: Path, file: BinaryIO) -> WordVectors:
    header = file.readline(64).split()
    if len(header) != 2 or not all(number.isdigit() for number in header):
        raise DataError(f"{path}: neither a file of fastText nor of word2vec, whose first line is 'words width'")
    number, width = map(int, header)
    vectors = np.empty((number, width), np.float32)
    words: dict[str, int] = {}
    for row in range(number):
        word = bytearray()
        while (byte := _bytes(file, 1)) != b" ":
            word += byte
            if len(word) > LONGEST:
                raise DataError(f"{path}: word {row + 1} of {number} does not end; is it another format?")
        # Some writers end each vector with a line feed.
        name = word.lstrip(b"\n").decode("utf-8", errors="replace")
        vectors[len(words)] = np.frombuffer(_bytes(file, 4 * width), "<f4")
        # Words that are no UTF-8 may become equal; the first, more frequent one counts.
        words.setdefault(name, len(words))
    return _finite(path, WordVectors(list(words), vectors[: len(words)]))


def _fasttext(path: Path, file: BinaryIO) -> WordVectors:
    (version,) = struct.unpack("<i", _bytes(file, 4))
    if version not in VERSIONS:
        raise DataError(f"{path}: version {version} of fastText's format; {VERSIONS} are supported")
    width, *_, buckets, shortest, longest, _ = struct.unpack("<12i", _bytes(file, 48))
    _bytes(file, 8)  # the threshold of sub-sampling
    _, number, labels, _, pruned = struct.unpack("<3i2q", _bytes(file, 28))
    words: dict[str, int] = {}
    for row in range(number + labels):
        word = bytearray()
        while (byte := _bytes(file, 1)) != b"\0":
            word += byte
        _bytes(file, 9)  # its count and whether it is a label
        if row < number:
            words.setdefault(word.decode("utf-8", errors="replace"), row)
    if pruned > 0 or _bytes(file, 1) != b"\0":
        raise DataError(f"{path}: a quantised model (.ftz); save the model without quantize")
    rows, columns = struct.unpack("<2q", _bytes(file, 16))
    if columns != width or rows not in (number, number + buckets):
        raise DataError(f"{path}: a table of {rows} rows for {number} words and {buckets} n-grams; download it again")
    if path.stat().st_size < file.tell() + 4 * rows * width:
        raise EOFError
    table = np.memmap(path, "<f4", "r", file.tell(), (rows, width))
    # Without lengths, buckets hold n-grams of words.
    if rows == number or longest == 0:
        return _finite(path, WordVectors(list(words), np.array(table[list(words.values())])))
    kept = list(words)[:MOST_WORDS]
    config = FastTextConfig(
        vocabulary=1, width=width, shortest=max(1, shortest), longest=longest, buckets=buckets, sparse=True
    )
    vectors = np.array(table[[words[word] for word in kept]])
    return _finite(path, FastTextVectors(kept, vectors, table[number:], config))


def _bytes(file: BinaryIO, number: int) -> bytes:
    result = file.read(number)
    if len(result) < number:
        raise EOFError
    return result


def _finite(path: Path, read: WordVectors) -> WordVectors:
    if not read.words:
        raise DataError(f"{path}: has no vectors")
    if not (finite := np.isfinite(read.vectors).all(1)).all():
        raise DataError(f"{path}: {read.words[int(finite.argmin())]!r} has a number that is not finite")
    return read
