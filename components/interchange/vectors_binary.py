"""Binary files of word vectors: word2vec's, and fastText's with its n-grams, whose words outside the file have vectors.

word2vec (Mikolov et al. 2013, `word2vec.c`): a line "words width", then each word, a space and its float32 numbers.
fastText (`FastText::saveModel`): settings, dictionary, then the table of words and buckets of n-grams.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from components.core.errors import DataError
from components.interchange.vectors_text import Vectors, WordVectors, read_vectors
from components.models.fasttext import FastTextConfig, ngram_buckets

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


def read_any(path: Path) -> WordVectors:
    """Read word vectors: a .bin file of word2vec or fastText, or text (`read_vectors`).
    Raises DataError: the file is missing, damaged, or of a quantised model."""
    if path.suffix != SUFFIX:
        return read_vectors(path)
    try:
        with path.open("rb") as file:
            if struct.unpack("<i", file.read(4).ljust(4, b"\0"))[0] == MAGIC:
                return _fasttext(path, file)
            file.seek(0)
            return _word2vec(path, file)
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (struct.error, EOFError) as error:
        raise DataError(f"{path}: truncated; download it again") from error


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
