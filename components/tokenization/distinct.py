"""Fast exact encoding: every distinct word is encoded once.

Every tokenizer has positions that no piece crosses: for BERT's normaliser and pre-tokenizer, the boundaries of ASCII
white space and punctuation. Splitting a text there and encoding the parts separately gives the ids of the whole text.
Split positions are a table look-up over bytes, distinct parts are found by Arrow's dictionary encoding, only new parts
go to the `tokenizers` library, and the ids of its parts are joined to the ids of a text.
"""

import string
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from components.core.artifacts import json_of, write_atomic
from components.core.errors import ArtifactError
from components.tokenization.base import Ids, Tokenizer, well_formed

#: File of a vocabulary.
VOCABULARY: Final = "tokenizer.json"
# Words per call: the library's result for a word is a hundred times larger than its ids.
_WORDS_PER_CALL: Final = 1 << 14
#: Bytes of text processed at a time: large enough that words repeat, small enough to bound memory.
CHUNK_BYTES: Final = 8 << 20
#: Size in bytes at which the cache of encoded words is cleared.
MEMORY_BYTES: Final = 64 << 20
#: Longer parts are not cached; they rarely repeat.
LONGEST_REMEMBERED: Final = 256

# ASCII white space of BERT's normaliser. It removes other control characters and so joins their neighbours.
_WHITE: Final = " \t\n\r"
_SPACE: Final = 1
_PUNCTUATION: Final = 2
_ONLY_SPACES = np.zeros(256, dtype=np.uint8)
_ONLY_SPACES[[ord(character) for character in _WHITE]] = _SPACE
_CLASS = _ONLY_SPACES.copy()
_CLASS[[ord(character) for character in string.punctuation]] = _PUNCTUATION

Bytes = NDArray[np.uint8]
#: (bytes of the concatenated texts, end of each text) -> start positions of all parts, also where a text starts.
Cut = Callable[[Bytes, NDArray[np.int32]], NDArray[np.int64]]
Integer = TypeVar("Integer", np.int32, np.int64)


def cut_bert_words(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """Split before words and punctuation marks; white space is part of the preceding part."""
    return _cut(_CLASS[data], ends)


def cut_at_spaces(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """Split after ASCII white space, which is part of the preceding part."""
    return _cut(_ONLY_SPACES[data], ends)


def _cut(kind: NDArray[np.uint8], ends: NDArray[np.int32]) -> NDArray[np.int64]:
    start = kind == _PUNCTUATION
    ordinary = kind == 0
    start[1:] |= ordinary[1:] & ~ordinary[:-1]
    return starts_of_texts_too(start, ends)


def starts_of_texts_too(start: NDArray[np.bool_], ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """The positions at which `start` is true or a text begins, ascending."""
    start[0] = True
    inner = ends[:-1]
    start[inner[inner < len(start)]] = True
    return np.flatnonzero(start)


class DistinctWordEncoder:
    """Encodes texts through `encode_words`, which is called once per distinct word. `lowercase`: it ignores the case of
    ASCII letters; `stripped`: it ignores surrounding ASCII white space."""

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
        #: The ids of all rows, and the offsets of the rows in them; both over-allocated.
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
            # Position k of the result is in a word w; its id is at first[w] + (k - start of w).
            source = np.repeat(first - (word_ends - lengths), lengths)
            source += np.arange(len(source))
            ids = self._flat[source]
        # Number of words that start before the end of each text.
        before = np.searchsorted(starts, ends)
        return ids, np.concatenate(([0], word_ends))[before]

    def _rows(self, words: list[str]) -> NDArray[np.int64]:
        if self._bytes > MEMORY_BYTES:
            self._forget()
        numbers = self._row
        rows = [numbers.get(word, -1) for word in words]
        unseen = [index for index, row in enumerate(rows) if row < 0]
        if unseen:
            # Variants in case and white space share a row if the encoder ignores them.
            plain = [self._plain(words[index]) for index in unseen]
            added = self._add([word for word in dict.fromkeys(plain) if word not in numbers])
            for index, word in zip(unseen, plain, strict=True):
                rows[index] = added[word] if word in added else numbers[word]
                self._remember(words[index], rows[index])
            for word, row in added.items():
                self._remember(word, row)
        return np.asarray(rows, dtype=np.int64)

    def _add(self, words: list[str]) -> dict[str, int]:
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
    """Word counts of `texts`; `cut_words` splits a part into words, the other arguments are the encoder's."""
    number: dict[str, int] = {}

    def numbers(parts: list[str]) -> list[list[int]]:
        return [[number.setdefault(word, len(number)) for word in cut_words(part)] for part in parts]

    ids, _ = DistinctWordEncoder(numbers, lowercase=lowercase, cut=cut, stripped=stripped).encode(texts)
    return Counter(dict(zip(number, np.bincount(ids, minlength=len(number)).tolist(), strict=True)))


def _with_room(array: NDArray[Integer], size: int) -> NDArray[Integer]:
    """The array if it has `size` elements; otherwise a copy with at least twice the capacity (amortised growth)."""
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    """Consecutive runs of texts of about CHUNK_BYTES characters each; a longer text is a separate run."""
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


class LibraryTokenizer(Tokenizer):
    """Base class of tokenizers whose `backend`, of the library, encodes each distinct word once."""

    backend: Backend
    _distinct: DistinctWordEncoder

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        return self._distinct.encode(texts)

    def _encode_words(self, words: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(words), _WORDS_PER_CALL):
            group = words[start : start + _WORDS_PER_CALL]
            ids += [encoding.ids for encoding in self.backend.encode_batch_fast(group, add_special_tokens=False)]
        return ids

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        spaced, inserted = self.segmentation.spaced_with_insertions(well_formed(text), self.separator)
        encoding = self.backend.encode(spaced, add_special_tokens=False)
        spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        # Subtract the number of separators that were inserted before each position.
        spans = spans - np.searchsorted(np.asarray(inserted, dtype=np.int64), spans)
        return np.asarray(encoding.ids, dtype=np.int32), [(start, end) for start, end in spans.tolist()]

    def _write_vocabulary(self, directory: Path) -> None:
        write_atomic(directory / VOCABULARY, self.backend.to_str(pretty=True) + "\n")

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        vocabulary = json_of(directory / VOCABULARY)["model"]["vocab"]
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise ArtifactError(f"{directory / VOCABULARY}: ids are not 0..{len(pieces) - 1}, each once")
        return pieces
