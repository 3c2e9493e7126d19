"""Statistics of a corpus or of one split of a task: what two versions of the data are compared by.

Statistics of files add up to those of their corpus, so that only new and changed files are read again.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from components.formats.textkey import text_key

#: Buckets of the hashed character trigrams.
BUCKETS = 256
#: Characters of a text by which its writing system and trigrams are counted.
EXCERPT = 2_000
#: Texts are counted in blocks of this many characters.
_BLOCK = 1_000_000
#: Number of positions that are kept per problem, for messages.
NAMED = 3
#: Distributions over categories that are compared.
DISTRIBUTIONS = ("classes", "lengths", "scripts")

Counts = dict[str, int]


@dataclass(frozen=True)
class Item:
    """One row of data: its text, its labels, its cluster and its position (`train.jsonl:17`, or its id)."""

    text: str
    position: str
    labels: tuple[str, ...] = ()
    group: str | None = None


@dataclass
class Statistics:
    """Statistics of rows.

    Attributes:
        rows: number of rows, without empty ones.
        empty: rows without text.
        clusters: number of clusters (service, author), because rows of one cluster are not independent; in a corpus,
            where rows have no cluster, the number of rows.
        duplicates: labelled rows whose text is that of an earlier row. Those of a corpus are dropped and counted by the
            stage `ingest`.
        conflicts: rows whose text also occurs with other labels.
        classes: label -> number of occurrences.
        lengths: interval of half an octave of the characters -> rows.
        scripts: writing system of most letters of a row -> rows; `none`: no letters.
        trigrams: (2, BUCKETS) hashed character trigrams of two random halves of the clusters. The divergence between
            the halves shows how much two samples of one distribution differ.
        columns: names of the columns of the files, if they have any.
        positions: problem (`empty`, `duplicate`, `conflict`) or `script:NAME` -> positions of the first rows.
    """

    rows: int = 0
    empty: int = 0
    clusters: int = 0
    duplicates: int = 0
    conflicts: int = 0
    classes: Counts = field(default_factory=dict)
    lengths: Counts = field(default_factory=dict)
    scripts: Counts = field(default_factory=dict)
    trigrams: list[list[int]] = field(default_factory=lambda: [[0] * BUCKETS, [0] * BUCKETS])
    columns: list[str] = field(default_factory=list)
    positions: dict[str, list[str]] = field(default_factory=dict)

    def share(self, count: float) -> float:
        """A count as a share of all rows, empty ones included."""
        return count / max(self.rows + self.empty, 1)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def compact(self) -> dict[str, Any]:
        """As JSON, without what is needed to name rows."""
        return self.as_dict() | {"positions": {}}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            ValueError: written by another version.
        """
        if set(raw) != {one.name for one in fields(cls)}:
            raise ValueError("statistics of another version of Headstart")
        return cls(**raw)


def measure(items: Iterable[Item], *, columns: Sequence[str] = ()) -> Statistics:
    """The statistics of rows, read once. Memory grows with the number of distinct labelled texts only."""
    found = Statistics(columns=list(columns))
    scripts: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    labels_of: dict[int, tuple[str, ...]] = {}
    conflicting: set[int] = set()
    keys: list[int] = []
    clusters: set[str] = set()
    trigrams = Trigrams()
    for item in items:
        if not item.text.strip():
            found.empty += 1
            _name(found, "empty", item)
            continue
        found.rows += 1
        key = _hash(text_key(item.text))
        if item.labels:
            if key in labels_of:
                found.duplicates += 1
                _name(found, "duplicate", item)
            keys.append(key)
            if labels_of.setdefault(key, item.labels) != item.labels:
                conflicting.add(key)
                _name(found, "conflict", item)
        excerpt = item.text[:EXCERPT]
        script, length = script_of(excerpt), str(int(2 * np.log2(1 + len(item.text))))
        if not scripts[script]:
            _name(found, f"script:{script}", item)
        scripts[script] += 1
        lengths[length] += 1
        classes.update(item.labels)
        if item.group is None:
            found.clusters += 1
        else:
            clusters.add(item.group)
        trigrams.add(excerpt, half=(key if item.group is None else _hash(item.group)) & 1)
    found.conflicts = sum(key in conflicting for key in keys)
    found.scripts, found.lengths, found.classes = dict(scripts), dict(lengths), dict(classes)
    found.trigrams = trigrams.counts()
    found.clusters += len(clusters)
    return found


def combine(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several files together; duplicates and conflicts within files are counted."""
    total = Statistics()
    for part in parts:
        total.rows += part.rows
        total.empty += part.empty
        total.clusters += part.clusters
        total.duplicates += part.duplicates
        total.conflicts += part.conflicts
        for name in DISTRIBUTIONS:
            merged = Counter(getattr(total, name))
            merged.update(getattr(part, name))
            setattr(total, name, dict(merged))
        total.trigrams = (np.asarray(total.trigrams) + np.asarray(part.trigrams)).tolist()
        total.columns += [name for name in part.columns if name not in total.columns]
        for problem, positions in part.positions.items():
            known = total.positions.setdefault(problem, [])
            known += positions[: NAMED - len(known)]
    return total


class Trigrams:
    """Counts of hashed character trigrams, in two halves."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, BUCKETS), dtype=np.int64)
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._size = 0

    def add(self, text: str, *, half: int) -> None:
        """Add a text to one of the halves, 0 or 1."""
        self._texts[half].append(text)
        self._size += len(text)
        if self._size > _BLOCK:
            self._flush()

    def counts(self) -> list[list[int]]:
        """(2, BUCKETS) counts of all texts so far."""
        self._flush()
        return [[int(count) for count in half] for half in self._counts]

    def _flush(self) -> None:
        for half, texts in enumerate(self._texts):
            if texts:
                self._counts[half] += trigram_counts(" \n ".join(texts))
            texts.clear()
        self._size = 0


def trigram_counts(text: str) -> NDArray[np.int64]:
    """(BUCKETS,) hashed counts of the trigrams of lower-case characters; all digits count as one character."""
    codes = np.frombuffer(text.lower().encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
    if len(codes) < 3:
        return np.zeros(BUCKETS, dtype=np.int64)
    codes = np.where((codes >= 48) & (codes <= 57), np.uint64(48), codes)
    # Multiplicative hashing modulo 2**64; the upper bits are well mixed.
    mixed = codes[:-2] * np.uint64(0x9E3779B97F4A7C15)
    mixed += codes[1:-1] * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed += codes[2:] * np.uint64(0x165667B19E3779F9)
    return np.bincount((mixed >> np.uint64(56)).astype(np.int64), minlength=BUCKETS)


class _Scripts(dict[str, str]):
    """Letter -> writing system: the first word of its Unicode name, such as LATIN, CYRILLIC, CJK, THAI."""

    def __missing__(self, letter: str) -> str:
        name = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
        self[letter] = name.partition("-")[0].lower()
        return self[letter]


_SCRIPTS = _Scripts()


def script_of(text: str) -> str:
    """The writing system of most letters of a text; `none` if it has no letters."""
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else "none"
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if name := _SCRIPTS[letter]:
            counts[name] += count
    return counts.most_common(1)[0][0] if counts else "none"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _name(found: Statistics, problem: str, item: Item) -> None:
    positions = found.positions.setdefault(problem, [])
    if len(positions) < NAMED:
        positions.append(item.position)
