"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999, An Empirical Study of Smoothing Techniques for
Language Modeling, sections 2.7 and 4.1.6), with KenLM's conventions.

    p(w | h) = max(a(hw) - D(a(hw)), 0) / sum_v a(hv)  +  gamma(h) p(w | h')         h' is h without its first piece
    p(w | )  = max(a(w) - D(a(w)), 0) / sum_v a(v)     +  gamma() / V
    gamma(h) = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3+(h)) / sum_v a(hv)

a is the number of occurrences for the longest n-grams and for those that begin a document, and else the number of
different pieces before the n-gram; N_i(h) is the number of pieces that follow h with a = i. The discounts D_1, D_2 and
D_3 (a >= 3) of a length come from its numbers n_i of n-grams with a = i:

    Y = n_1 / (n_1 + 2 n_2)        D_i = i - (i + 1) Y n_{i+1} / n_i

A directory holds arrays sorted by key, which are memory-mapped: keys and values a of the n-grams of each length;
keys, sums and gamma of their contexts.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.errors import ArtifactError, DataError
from components.studies.ngram_counts import (
    Buckets,
    Keys,
    Pieces,
    bucket_bits,
    count,
    inside_documents,
    merged,
    read_chunks,
    window_keys,
)

#: Discounts of a length whose n_1 to n_4 give none, as on a tiny corpus (the fallback of KenLM).
FALLBACK: Final = (0.5, 1.0, 1.5)
FACTS: Final = "ngrams.json"
#: Bytes of the header of a .npy file with one dimension.
HEADER: Final = 128
#: Tokens per chunk in prediction.
CHUNK: Final = 1_000_000

Floats = NDArray[np.float64]
_PAIR: Final = np.dtype([("context", "<u8"), ("adjusted", "<u4")])


def estimate(
    store: Pieces, directory: Path, *, order: int, vocabulary: int, memory: int, folder: Path | None = None
) -> NgramModel:
    """Estimate a model and write it to a directory.

    Args:
        store: the training tokens.
        directory: to write to; exists.
        order: N, the length of the longest n-grams.
        vocabulary: V, number of pieces that can be predicted.
        memory: bytes that counting may occupy; the buckets are on disk.
        folder: for temporary files; None: the system's.

    Raises:
        DataError: the store has no tokens.
    """
    if not store.tokens:
        raise DataError("there are no tokens to count; add text to the corpus")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        work = Path(temporary)
        bits = bucket_bits(store, memory=memory)
        left: Buckets | None = None
        discounts: list[list[float]] = [[] for _ in range(order)]
        sizes = [0] * order
        # From the longest n-grams to the shortest: the distinct ones of a length give the values a of the next.
        for length in range(order, 0, -1):
            shorter = Buckets(work, f"left-{length - 1}", bits=bits, dtype=np.dtype("<u8"), key=None)
            contexts = Buckets(work, f"contexts-{length}", bits=bits, dtype=_PAIR, key="context")
            numbers = np.zeros(5, dtype=np.int64)
            with _Column(directory, f"ngrams-{length}", key="<u8", adjusted="<u4") as written:
                before = None if left is None else left.take()
                for bucket in count(store, length=length, folder=work, memory=memory).take():
                    records = merged(bucket)
                    extensions = None if before is None else next(before)
                    if extensions is not None:
                        records["count"] = _adjusted(records, extensions)
                    numbers += np.bincount(np.minimum(records["count"], 5), minlength=6)[:5]
                    written.append(key=records["key"], adjusted=records["count"])
                    shorter.append(np.ascontiguousarray(records["suffix"]))
                    pairs = np.empty(len(records), dtype=_PAIR)
                    pairs["context"], pairs["adjusted"] = records["context"], records["count"]
                    contexts.append(pairs)
                sizes[length - 1] = written.rows
            discounts[length - 1] = list(_discounts(numbers))
            with _Column(directory, f"contexts-{length}", key="<u8", total="<u8", gamma="<f8") as written:
                for pairs in contexts.take():
                    written.append(**_contexts(pairs, discounts[length - 1]))
            left = shorter
    facts = {
        "order": order,
        "vocabulary": vocabulary,
        "tokens": store.tokens,
        "ngrams": sizes,
        "discounts": discounts,
    }
    (directory / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return load(directory)


def _adjusted(records: NDArray[Any], extensions: Keys) -> NDArray[np.uint32]:
    """The values a of n-grams that are not the longest.

    Args:
        records: distinct n-grams, ascending by key.
        extensions: the key of the suffix of every distinct n-gram that is longer by one.
    """
    keys, counts = np.unique(extensions, return_counts=True)
    result: NDArray[np.uint32] = records["count"].copy()
    if len(keys):
        at = np.minimum(np.searchsorted(keys, records["key"]), len(keys) - 1)
        extended = (keys[at] == records["key"]) & ~records["begins"]
        result[extended] = counts[at[extended]]
    return result


def _discounts(numbers: NDArray[np.int64]) -> tuple[float, float, float]:
    """D_1, D_2 and D_3 from (5,) the numbers of n-grams with a = 0 to 4."""
    if not numbers[1:].all():
        return FALLBACK
    _, n1, n2, n3, n4 = map(float, numbers)
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 <= value <= size for size, value in enumerate(found, 1)) else FALLBACK


def _contexts(pairs: NDArray[Any], discounts: list[float]) -> dict[str, NDArray[Any]]:
    """Keys, ascending, sums and gamma of the contexts of a bucket."""
    keys, group = np.unique(pairs["context"], return_inverse=True)
    adjusted = pairs["adjusted"].astype(np.float64)
    total = np.bincount(group, weights=adjusted, minlength=len(keys))
    given = np.asarray([0.0, *discounts])[np.minimum(pairs["adjusted"], 3)]
    freed = np.bincount(group, weights=given, minlength=len(keys))
    return {"key": keys, "total": total.astype(np.uint64), "gamma": freed / np.maximum(total, 1)}


class _Column:
    """Arrays of equal length that grow on disk; .npy files at the end."""

    def __init__(self, directory: Path, name: str, **types: str) -> None:
        self.directory, self.name = directory, name
        self.types = {column: np.dtype(kind) for column, kind in types.items()}
        self.rows = 0

    def __enter__(self) -> _Column:
        self.files = {column: self._path(column, ".raw").open("wb") for column in self.types}
        return self

    def append(self, **values: NDArray[Any]) -> None:
        """Add rows."""
        for column, file in self.files.items():
            np.ascontiguousarray(values[column], dtype=self.types[column]).tofile(file)
        self.rows += len(next(iter(values.values())))

    def __exit__(self, *error: object) -> None:
        for column, file in self.files.items():
            file.close()
            raw = self._path(column, ".raw")
            if error[0] is None and not self.rows:
                np.save(self._path(column, ".npy"), np.empty(0, dtype=self.types[column]), allow_pickle=False)
            elif error[0] is None:
                array = np.lib.format.open_memmap(
                    self._path(column, ".npy"), mode="w+", dtype=self.types[column], shape=(self.rows,)
                )
                for start in range(0, self.rows, CHUNK):
                    part = np.fromfile(
                        raw, dtype=self.types[column], count=CHUNK, offset=start * self.types[column].itemsize
                    )
                    array[start : start + len(part)] = part
                array.flush()
            raw.unlink()

    def _path(self, column: str, suffix: str) -> Path:
        return self.directory / f"{self.name}-{column}{suffix}"


class Stream:
    """Pieces in memory: documents with an END after each.

    Args:
        pieces: (T,) ids.
    """

    def __init__(self, pieces: NDArray[np.int64]) -> None:
        self._pieces = pieces
        self.tokens = len(pieces)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """(length,) pieces from position `start`."""
        return self._pieces[start : start + length]


@dataclass(frozen=True)
class _Length:
    """The n-grams of one length and their contexts, memory-mapped and ascending by key."""

    keys: Keys
    adjusted: NDArray[np.uint32]
    contexts: Keys
    totals: NDArray[np.uint64]
    gammas: Floats
    discounts: Floats

    def interpolated(self, keys: Keys, contexts: Keys, lower: Floats) -> Floats:
        """p(w | h) of n-grams, from their keys, those of h, and p(w | h')."""
        at = np.minimum(np.searchsorted(self.contexts, contexts), max(0, len(self.contexts) - 1))
        known = self.contexts[at] == contexts if len(self.contexts) else np.zeros(len(contexts), dtype=bool)
        result = lower.copy()
        if not known.any():
            return result
        keys, at = keys[known], at[known]
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        adjusted = np.where(self.keys[place] == keys, self.adjusted[place], 0)
        left = adjusted - self.discounts[np.minimum(adjusted, 3)]
        result[known] = left / self.totals[at] + self.gammas[at] * lower[known]
        return result


@dataclass(frozen=True)
class NgramModel:
    """An estimated model.

    Attributes:
        facts: `order`, `vocabulary`, `tokens`; `ngrams` and `discounts` of each length.
        lengths: the n-grams of length 1 to N.
    """

    facts: dict[str, Any]
    lengths: list[_Length]

    def log_probs(self, store: Pieces) -> Floats:
        """Natural logarithms (T,) of the probability of every token of a store, given the preceding ones of its
        document."""
        order = len(self.lengths)
        found = np.empty(store.tokens)
        for position, pieces in read_chunks(store, size=CHUNK, overlap=order - 1):
            # The overlap precedes the predicted pieces here, except at the beginning of the stream.
            first = 1 if position == 0 else order - 1
            if len(pieces) > first:
                found[position + first - 1 : position + len(pieces) - 1] = np.log(self._probabilities(pieces, first))
        return found

    def _probabilities(self, pieces: NDArray[np.int64], first: int) -> Floats:
        """Probabilities (T - first,) of the pieces from index `first`."""
        keys = window_keys(pieces, len(self.lengths))
        targets = np.arange(first, len(pieces))
        result = np.full(len(targets), 1.0 / self.facts["vocabulary"])
        for length, entries in enumerate(self.lengths, 1):
            starts = targets - length + 1
            valid = starts >= 0
            valid[valid] = inside_documents(pieces, length)[starts[valid]]
            starts = starts[valid]
            result[valid] = entries.interpolated(keys[length][starts], keys[length - 1][starts], result[valid])
        return result


def load(directory: Path) -> NgramModel:
    """Open the model that `estimate` wrote.

    Raises:
        ArtifactError: files are missing or damaged.
    """
    try:
        facts = json.loads((directory / FACTS).read_text(encoding="utf-8"))
        lengths = [
            _Length(
                keys=_array(directory, f"ngrams-{length}", "key"),
                adjusted=_array(directory, f"ngrams-{length}", "adjusted"),
                contexts=_array(directory, f"contexts-{length}", "key"),
                totals=_array(directory, f"contexts-{length}", "total"),
                gammas=_array(directory, f"contexts-{length}", "gamma"),
                discounts=np.asarray([0.0, *facts["discounts"][length - 1]]),
            )
            for length in range(1, facts["order"] + 1)
        ]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ArtifactError(f"{directory}: no n-gram model, or a damaged one ({error}); run the stage again") from error
    return NgramModel(facts, lengths)


def _array(directory: Path, name: str, column: str) -> Any:
    path = directory / f"{name}-{column}.npy"
    # An empty array cannot be mapped; without data a file is as long as its header.
    return np.load(path, mmap_mode="r" if path.stat().st_size > HEADER else None, allow_pickle=False)
