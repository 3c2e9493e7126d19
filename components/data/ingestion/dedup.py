"""Keys of documents: equal documents have equal BLAKE2b-128 hashes; near duplicates are found by MinHash over word
n-grams (Broder 1997; the signatures come from the `rensa` library): candidates by locality-sensitive hashing, each
verified on the whole signature (`components.data.ingestion.duplicates`).

Arrays: n documents, p hash permutations.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rensa import RMinHash

from components.data.batches import batches

Words64 = npt.NDArray[np.uint64]
Sketches = npt.NDArray[np.uint16]
Flags = npt.NDArray[np.bool_]
Documents = npt.NDArray[np.int64]

#: Words of an n-gram, and values of the signatures that the stage `ingest` stores.
NGRAM: Final = 5
PERMUTATIONS: Final = 64
#: Least share of the pairs at the threshold that have to share a band.
RECALL: Final = 0.99
_SEED = 0x5EED
# Characters of text hashed at a time: few enough that the arrays stay in the processor's cache.
_TEXT_BLOCK_CHARACTERS = 250_000


def exact_keys(texts: Sequence[str]) -> Words64:
    """BLAKE2b-128 hashes of n texts as (n, 2) halves."""
    digests = b"".join([hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts])
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)


class Shingles:
    """MinHash signatures over word n-grams: `Shingles(ngram=5, permutations=64).sketches(texts)`.

    Words are runs of letters and digits, case-insensitive for ASCII; in scripts without spaces (Thai, Lao, Khmer,
    Burmese, Chinese, Japanese) every character is a word. A text with fewer words than `ngram` is one n-gram; a text
    without words is represented by the hash of the whole text.
    """

    def __init__(self, *, ngram: int = NGRAM, permutations: int = PERMUTATIONS) -> None:
        self.ngram = ngram
        self.permutations = permutations

    def sketches(self, texts: Sequence[str]) -> Sketches:
        """(n, p) signatures: the low 16 bits of each MinHash value; unrelated values agree with probability 2^-16."""
        result = [np.empty((0, self.permutations), dtype=np.uint16)]
        for block in blocks(texts):
            matrix = RMinHash.digest_matrix_from_flat_token_hashes(*self._shingles(block), self.permutations, _SEED)
            result.append(np.array(matrix.to_rows(), dtype=np.uint32).astype(np.uint16))
        return np.concatenate(result)

    def _shingles(self, texts: Sequence[str]) -> tuple[Words64, Words64]:
        """Hashes of the n-grams of all texts, concatenated, and the n + 1 offsets that delimit the texts."""
        words, bounds = hashed_words(texts)
        lengths = np.diff(bounds)
        begin, end = np.repeat(bounds[:-1], lengths), np.repeat(bounds[1:], lengths)
        # An n-gram is cut off at the end of its text, so a short text has exactly one.
        position = np.arange(len(words))
        hashes = hash_between(*word_sums(words), position, np.minimum(position + self.ngram, end))
        hashes = _mix(hashes[(position + self.ngram <= end) | (position == begin)])
        counts = np.where(lengths == 0, 0, np.maximum(lengths - self.ngram + 1, 1))
        if (wordless := np.flatnonzero(lengths == 0)).size:
            whole = exact_keys([texts[index] for index in wordless.tolist()])[:, 0]
            hashes = np.insert(hashes, np.concatenate([[0], np.cumsum(counts)])[wordless], whole)
            counts[wordless] = 1
        return hashes, np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)


#: Base of the polynomial hashes of word sequences.
MULTIPLIER = 0x9E3779B97F4A7C15


def hashed_words(texts: Sequence[str]) -> tuple[Words64, npt.NDArray[np.int64]]:
    """The hash of every word of all texts, and the n + 1 indices of the first word of each text."""
    # NUL bytes separate the texts: clean text contains none. Lower-casing bytes affects ASCII only.
    data = b"\0".join([text.encode() for text in texts]).lower()
    starts, ends = _word_bounds(np.frombuffer(data, dtype=np.uint8))
    separators = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0)
    bounds = np.concatenate([[0], np.searchsorted(starts, separators), [len(starts)]])
    # The hash of a word is of its length, first eight bytes and last eight bytes: the eight bytes at every offset as
    # integers are overlapping views, no copy.
    padded = bytes(8) + data + bytes(8)
    eights = np.ndarray((len(data) + 9,), dtype="<u8", buffer=padded, strides=(1,))
    lengths = ends - starts
    short = np.minimum(lengths, 8)
    first = eights[starts + 8] & _LOWEST[short]
    last = eights[ends] >> (np.uint64(8) * (np.uint64(8) - short.astype(np.uint64)) % np.uint64(64))
    return _mix(first * np.uint64(MULTIPLIER) ^ _mix(last + lengths.astype(np.uint64))), bounds


def word_sums(words: Words64) -> tuple[Words64, Words64]:
    """Prefix sums (w + 1,) of the words' polynomial, and the inverse powers (w + 1,) of its base."""
    sums = np.zeros(len(words) + 1, dtype=np.uint64)
    np.cumsum(words * _powers(MULTIPLIER, len(words)), out=sums[1:])
    return sums, _powers(pow(MULTIPLIER, -1, 2**64), len(words) + 1)


def hash_between(sums: Words64, inverse: Words64, start: Any, end: Any) -> Any:
    """Polynomial hash of the words from `start` to `end`, numbers or arrays: independent of their position."""
    with np.errstate(over="ignore"):
        return (sums[end] - sums[start]) * inverse[start]


def _powers(base: int, count: int) -> Words64:
    powers = np.full(count, base, dtype=np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _mix(values: Words64) -> Words64:
    """The 64-bit finalizer of MurmurHash3: every input bit affects every output bit."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


_WORD_BYTE = np.zeros(256, dtype=bool)
_WORD_BYTE[[*b"abcdefghijklmnopqrstuvwxyz0123456789", *range(128, 256)]] = True
#: _LOWEST[n]: bit mask of the n least significant bytes.
_LOWEST = np.array([2 ** (8 * count) - 1 for count in range(9)], dtype=np.uint64)


def _word_bounds(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Byte offsets of the start and the end of every word in lower-case UTF-8."""
    inside = np.zeros(len(data) + 2, dtype=bool)
    np.take(_WORD_BYTE, data, out=inside[1:-1])
    if not data.size or data.max() < 0xE0:
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        return edges[::2], edges[1::2]
    following = np.append(data[1:], np.uint8(0))
    unspaced = (data >= 0xE3) & (data <= 0xE9)  # Chinese, Japanese
    unspaced |= (data == 0xE0) & (following >= 0xB8) & (following <= 0xBB)  # Thai, Lao
    unspaced |= (data == 0xE1) & (following >= 0x80) & (following <= 0x82)  # Burmese
    unspaced |= (data == 0xE1) & (following >= 0x9E) & (following <= 0x9F)  # Khmer
    begins = (inside[1:-1] & ~inside[:-2]) | unspaced
    stops = inside[1:-1] & (~inside[2:] | np.append(begins[1:], True))
    return np.flatnonzero(begins), np.flatnonzero(stops) + 1


def blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Consecutive texts that are hashed at once."""
    return batches(texts, size=len, most=_TEXT_BLOCK_CHARACTERS)


def band_rows(threshold: float, *, permutations: int = PERMUTATIONS) -> int:
    """MinHash values per band: the largest number (2 to 4) for which 99% of the pairs at the threshold share a band.

    A signature is split into bands; documents that agree in all values of a band are compared. At Jaccard similarity s,
    that is so with probability 1 - (1 - s^rows)^(permutations / rows) (Leskovec et al. 2014, section 3.4). Four values
    of 16 bits fill a 64-bit key; with one value, unrelated documents would share too many bands.
    """
    shared = (rows for rows in (4, 3) if 1 - (1 - threshold**rows) ** (permutations // rows) >= RECALL)
    return next(shared, 2)


def stores_signatures(settings: dict[str, Any]) -> bool:
    """Whether a corpus has signatures of this form, by the settings in its manifest."""
    near = settings.get("near_duplicates")
    stored = near and (near.get("ngram", NGRAM), near.get("permutations", PERMUTATIONS))
    return stored == (NGRAM, PERMUTATIONS)


def band_key(values: Sketches) -> Words64:
    """The key (n,) of a band (n, rows): its values as one 64-bit integer, the last value in the highest bits."""
    key = np.zeros(len(values), dtype=np.uint64)
    for shift, column in zip(range(48, -1, -16), values.T[::-1], strict=False):
        key |= column.astype(np.uint64) << np.uint64(shift)
    return key


def packed_rows(rows: npt.NDArray[Any]) -> pa.Array:
    """(n, width) numbers as n fixed-width binary values."""
    rows = np.ascontiguousarray(rows)
    width = rows.dtype.itemsize * rows.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows.data)])


def unpacked_rows(column: pa.Array, type_: Any) -> npt.NDArray[Any]:
    """(n, width) numbers of n fixed-width binary values."""
    width = column.type.byte_width
    buffer = column.buffers()[1]
    rows = np.frombuffer(buffer, dtype=np.uint8, count=width * len(column), offset=width * column.offset)
    return rows.view(type_).reshape(len(column), -1)
