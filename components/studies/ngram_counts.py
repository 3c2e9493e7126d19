"""Counts of the n-grams of a token stream, in bounded memory (Heafield et al. 2013, Scalable Modified Kneser-Ney
Language Model Estimation).

The stream is read in chunks. The distinct n-grams of a chunk are written to buckets on disk by the upper bits of their
key, and every bucket is merged in memory. The key of an n-gram is a 64-bit hash of its pieces, as in KenLM's probing
model; two n-grams of the same length share one with a probability of about 3e-12 for ten million n-grams.

A document is END w_1 ... w_T END: n-grams do not cross documents, and an END at the beginning of an n-gram is the
beginning of the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from components.tokenization.special import END


class Pieces(Protocol):
    """A stream of documents, END after each; `components.tokenization.store.TokenStore` is one."""

    @property
    def tokens(self) -> int: ...

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """(length,) pieces from position `start`."""
        ...


Keys = NDArray[np.uint64]
Records = NDArray[Any]

#: A counted n-gram: its key, the key without its first piece, the key without its last piece, whether it begins a
#: document, and its number of occurrences.
NGRAM: Final = np.dtype([("key", "<u8"), ("suffix", "<u8"), ("context", "<u8"), ("begins", "?"), ("count", "<u4")])
#: Bytes of memory per token of a chunk, and per record of a bucket, with all temporary copies.
CHUNK_BYTES: Final = 160
RECORD_BYTES: Final = 4 * NGRAM.itemsize


def window_keys(pieces: NDArray[np.int64], order: int) -> list[Keys]:
    """Keys of all windows of a sequence.

    Args:
        pieces: (T,) ids.
        order: N.

    Returns:
        For k = 0 to N the keys (T - k + 1,) of the windows of k pieces, by their first position; the key of the empty
        window is 0.
    """
    found = [np.zeros(len(pieces) + 1, dtype=np.uint64)]
    words = pieces.astype(np.uint64) + np.uint64(1)
    for length in range(1, order + 1):
        count = max(0, len(pieces) - length + 1)
        found.append(_mixed(found[-1][:count] * np.uint64(0x9E3779B97F4A7C15) + words[length - 1 : length - 1 + count]))
    return found


def _mixed(keys: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele et al. 2014), a bijection in which every input bit affects every output."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = keys ^ (keys >> np.uint64(31))
    return mixed


def inside_documents(pieces: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """(T - k + 1,) whether a window of k pieces lies within one document: only its first and its last piece may be
    END."""
    ends = np.concatenate([[0], np.cumsum(pieces == END)])
    first = np.arange(max(0, len(pieces) - length + 1))
    if length <= 2:
        return np.ones(len(first), dtype=bool)
    inside: NDArray[np.bool_] = ends[first + length - 1] == ends[first + 1]
    return inside


def read_chunks(store: Pieces, *, size: int, overlap: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The stream after an END, in chunks of `size` pieces and the following `overlap` ones; with the position of each
    chunk, in which the stream begins at 1."""
    total = store.tokens + 1
    for start in range(0, total, size):
        end = min(total, start + size + overlap)
        if start == 0:
            yield start, np.concatenate([[END], store.span(0, end - 1)]).astype(np.int64)
        else:
            yield start, store.span(start - 1, end - start)


class Buckets:
    """Records on disk, distributed by the upper bits of a key, so that consecutive buckets have ascending keys.

    Args:
        folder: of the files.
        name: of these records.
        bits: there are 2^bits buckets.
        dtype: of a record.
        key: field that decides; None: the record is the key.
    """

    def __init__(self, folder: Path, name: str, *, bits: int, dtype: np.dtype[Any], key: str | None) -> None:
        self.folder, self.name, self.bits, self.dtype, self.key = folder, name, bits, dtype, key

    def append(self, records: Records) -> None:
        """Add records."""
        keys = records if self.key is None else records[self.key]
        numbers = (keys >> np.uint64(64 - self.bits)).astype(np.int64) if self.bits else np.zeros(len(keys), np.int64)
        order = np.argsort(numbers, kind="stable")
        sorted_records = records[order]
        edges = np.searchsorted(numbers[order], np.arange(2**self.bits + 1))
        for number, (first, last) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
            if last > first:
                with self._path(number).open("ab") as file:
                    sorted_records[first:last].tofile(file)

    def take(self) -> Iterator[Records]:
        """The records of each bucket, which is then deleted."""
        for number in range(2**self.bits):
            path = self._path(number)
            yield np.fromfile(path, dtype=self.dtype) if path.exists() else np.empty(0, dtype=self.dtype)
            path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number}.bin"


def bucket_bits(store: Pieces, *, memory: int) -> int:
    """Number of upper bits of a key that select a bucket, so that a bucket fits into `memory` bytes."""
    return max(0, int(np.ceil(np.log2(max(1.0, store.tokens * RECORD_BYTES / memory)))))


def count(store: Pieces, *, length: int, folder: Path, memory: int) -> Buckets:
    """Count the n-grams of one length; returns the buckets, by key, of the records (`NGRAM`) of every chunk.

    Args:
        store: the tokens.
        length: number of pieces of an n-gram.
        folder: for the buckets.
        memory: bytes.
    """
    size = max(4 * length, memory // CHUNK_BYTES)
    bits = bucket_bits(store, memory=memory)
    buckets = Buckets(folder, f"counted-{length}", bits=bits, dtype=NGRAM, key="key")
    for position, pieces in read_chunks(store, size=size, overlap=length - 1):
        if len(pieces) < length:
            continue
        keys = window_keys(pieces, length)
        valid = inside_documents(pieces, length)
        # The overlap belongs to the next chunk. The END before the stream is no prediction.
        valid[size:] = False
        valid[0] &= length > 1 or position > 0
        starts = np.flatnonzero(valid)
        distinct, first, counts = np.unique(keys[length][starts], return_index=True, return_counts=True)
        records = np.empty(len(distinct), dtype=NGRAM)
        at = starts[first]
        records["key"], records["count"] = distinct, counts
        records["suffix"], records["context"] = keys[length - 1][at + 1], keys[length - 1][at]
        records["begins"] = (pieces[at] == END) & (length > 1)
        buckets.append(records)
    return buckets


def merged(records: Records) -> Records:
    """The distinct n-grams of a bucket, ascending by key, with their total counts."""
    if not len(records):
        return records
    ordered = records[np.argsort(records["key"], kind="stable")]
    first = np.flatnonzero(np.concatenate([[True], ordered["key"][1:] != ordered["key"][:-1]]))
    result = ordered[first]
    result["count"] = np.add.reduceat(ordered["count"], first)
    return result
