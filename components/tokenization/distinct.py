"""Exact encoding at a multiple of the usual speed: every distinct word is encoded once.

Every kind of tokenizer has places in a text across which it never joins anything. BERT's normaliser and pre-tokenizer,
for one, look at one character at a time, apart from combining marks, and never join what stands on the two sides of
ASCII white space or ASCII punctuation. So cutting a text at such places first and encoding the parts by themselves
gives exactly the ids of the whole. The parts are few: the cut is a table look-up over bytes, the distinct parts are
found by Arrow's dictionary encoding, only new ones go to the `tokenizers` library, and the ids of the text are gathered
from the ids of its parts.
"""

from __future__ import annotations

import string
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.tokenization.base import Ids, well_formed

#: Bytes of text cut and counted at a time: large enough to make words repeat, small enough to bound memory.
CHUNK_BYTES: Final = 8 << 20
#: The memory is emptied when the distinct words in it reach this many bytes (of UTF-8) ...
MEMORY_BYTES: Final = 64 << 20
#: ... and a part longer than this is not remembered: it will hardly come again.
LONGEST_REMEMBERED: Final = 256

# White space that the normaliser keeps as such (other ASCII controls vanish, which joins their neighbours: no cut).
_WHITE: Final = " \t\n\r"
_SPACE: Final = 1
_PUNCTUATION: Final = 2
_ONLY_SPACES = np.zeros(256, dtype=np.uint8)
_ONLY_SPACES[[ord(character) for character in _WHITE]] = _SPACE
_CLASS = _ONLY_SPACES.copy()
_CLASS[[ord(character) for character in string.punctuation]] = _PUNCTUATION

Bytes = NDArray[np.uint8]
#: (bytes of texts, where each text ends) -> positions at which a part begins: that of every text, and further ones.
Cut = Callable[[Bytes, NDArray[np.int32]], NDArray[np.int64]]
Integer = TypeVar("Integer", np.int32, np.int64)


def cut_bert_words(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """Cut before words and punctuation marks; white space belongs to what it follows."""
    return _cut(_CLASS[data], ends)


def cut_at_spaces(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """Cut where ASCII white space ends; it belongs to what it follows."""
    return _cut(_ONLY_SPACES[data], ends)


def _cut(kind: NDArray[np.uint8], ends: NDArray[np.int32]) -> NDArray[np.int64]:
    start = kind == _PUNCTUATION
    ordinary = kind == 0
    start[1:] |= ordinary[1:] & ~ordinary[:-1]
    return starts_of_texts_too(start, ends)


def starts_of_texts_too(start: NDArray[np.bool_], ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """The positions where `start` is true or a text begins, ascending."""
    start[0] = True
    inner = ends[:-1]
    start[inner[inner < len(start)]] = True
    return np.flatnonzero(start)


class DistinctWordEncoder:
    """Encodes many texts through `encode_words`, which sees each distinct word once.

    Args:
        encode_words: words -> ids of each; must be free of context across the cuts.
        lowercase: `encode_words` makes no difference between the cases of ASCII letters.
        cut: where texts are cut into words.
        stripped: ASCII white space around a word changes nothing.
    """

    def __init__(
        self,
        encode_words: Callable[[list[str]], list[list[int]]],
        *,
        lowercase: bool = False,
        cut: Cut = cut_bert_words,
        stripped: bool = True,
    ) -> None:
        self._encode_words = encode_words
        self._lowercase = lowercase
        self._cut = cut
        self._stripped = stripped
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._row: dict[str, int] = {}
        self._bytes = 0
        #: The ids of all rows, and where each row begins in them and the last one ends; with room for more.
        self._flat: Ids = np.empty(0, dtype=np.int32)
        self._starts: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._rows_held = self._ids_held = 0

    def encode(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        """Flat ids (N,) int32 and offsets (len(texts) + 1,) int64 of the texts in them."""
        flat: list[Ids] = []
        offsets = [np.zeros(1, dtype=np.int64)]
        total = 0
        for chunk in chunks(texts):
            ids, ends = self._encode_chunk(chunk)
            flat.append(ids)
            offsets.append(ends + total)
            total += len(ids)
        return (np.concatenate(flat) if flat else np.empty(0, dtype=np.int32)), np.concatenate(offsets)

    def _encode_chunk(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        try:
            array = pa.array(texts, type=pa.string())
        except UnicodeEncodeError:
            array = pa.array([well_formed(text) for text in texts], type=pa.string())
        _, text_offsets, data = array.buffers()
        ends = np.frombuffer(text_offsets, dtype=np.int32)[1 : len(texts) + 1]
        if len(ends) == 0 or ends[-1] == 0:
            return np.empty(0, dtype=np.int32), np.zeros(len(texts), dtype=np.int64)
        starts = self._cut(np.frombuffer(data, dtype=np.uint8, count=int(ends[-1])), ends)
        boundaries = np.append(starts, ends[-1]).astype(np.int32)
        words = pa.StringArray.from_buffers(len(starts), pa.py_buffer(boundaries), data).dictionary_encode()
        with self._lock:
            rows = self._rows(words.dictionary.to_pylist())[words.indices.to_numpy()]
            first = self._starts[rows]
            lengths = self._starts[rows + 1] - first
            word_ends = np.cumsum(lengths)
            # Position k of the result lies in some word w and is read at first[w] + (k - where w begins).
            source = np.repeat(first - (word_ends - lengths), lengths)
            source += np.arange(len(source))
            ids = self._flat[source]
        # The number of words that start before a text's end leads to the number of ids before it.
        before = np.searchsorted(starts, ends)
        return ids, np.concatenate(([0], word_ends))[before]

    def _rows(self, words: list[str]) -> NDArray[np.int64]:
        """Row of each distinct word in the memory, after encoding those that were not there."""
        if self._bytes > MEMORY_BYTES:
            self._forget()
        known = self._row
        rows = [known.get(word, -1) for word in words]
        unseen = [index for index, row in enumerate(rows) if row < 0]
        if unseen:
            # White space around a word and its case make no other word, where nothing depends on them.
            plain = [self._plain(words[index]) for index in unseen]
            added = self._add([word for word in dict.fromkeys(plain) if word not in known])
            for index, word in zip(unseen, plain, strict=True):
                rows[index] = added[word] if word in added else known[word]
                self._remember(words[index], rows[index])
            for word, row in added.items():
                self._remember(word, row)
        return np.asarray(rows, dtype=np.int64)

    def _add(self, words: list[str]) -> dict[str, int]:
        """Encode new words and append their ids to the memory; returns the row of each."""
        first, held = self._rows_held, self._ids_held
        encoded = self._encode_words(words)
        ends = held + np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)))
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int32)
        self._rows_held, self._ids_held = first + len(words), held + len(flat)
        self._starts = _with_room(self._starts, self._rows_held + 1)
        self._starts[first + 1 : self._rows_held + 1] = ends
        self._flat = _with_room(self._flat, self._ids_held)
        self._flat[held : self._ids_held] = flat
        self._bytes += flat.nbytes
        return {word: first + position for position, word in enumerate(words)}

    def _remember(self, word: str, row: int) -> None:
        if len(word) <= LONGEST_REMEMBERED:
            self._row[word] = row
            self._bytes += len(word)

    def _plain(self, word: str) -> str:
        word = word.strip(_WHITE) if self._stripped else word
        return word.lower() if self._lowercase and word.isascii() else word


def count_distinct(
    texts: Sequence[str],
    cut_words: Callable[[str], Iterable[str]],
    *,
    lowercase: bool = False,
    cut: Cut = cut_bert_words,
    stripped: bool = True,
) -> Counter[str]:
    """How often each word of `texts` comes; `cut_words` gives the words of a part, the rest is as for the encoder."""
    number: dict[str, int] = {}

    def numbers(parts: list[str]) -> list[list[int]]:
        return [[number.setdefault(word, len(number)) for word in cut_words(part)] for part in parts]

    ids, _ = DistinctWordEncoder(numbers, lowercase=lowercase, cut=cut, stripped=stripped).encode(texts)
    return Counter(dict(zip(number, np.bincount(ids, minlength=len(number)).tolist(), strict=True)))


def _with_room(array: NDArray[Integer], size: int) -> NDArray[Integer]:
    """The array itself if it has `size` places; or a copy with at least twice as many as now, so that a memory which
    grows word by word, as texts come one by one, is not copied each time."""
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    """Runs of texts of about CHUNK_BYTES characters each; a longer text is a run by itself."""
    runs: list[Sequence[str]] = []
    first = size = 0
    for index, text in enumerate(texts):
        if size and size + len(text) > CHUNK_BYTES:
            runs.append(texts[first:index])
            first, size = index, 0
        size += len(text)
    if first < len(texts):
        runs.append(texts[first:])
    return runs
