"""Statistics of a corpus or of one split of a task: what two versions of the data are compared by.

Statistics of files add up to those of their corpus, so that only new and changed files are read again. The unit of the
design effects is the cluster of a row (service, author), because rows of one cluster are not independent.
"""

from __future__ import annotations

import heapq
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
#: Number of smallest hashes from which distinct texts are estimated (Bar-Yossef et al. 2002); the relative standard
#: error is 1 / sqrt(SKETCH).
SKETCH = 2048
#: Characters of a text by which its writing system and trigrams are counted.
EXCERPT = 2_000
#: Texts are counted in blocks of this many characters.
_BLOCK = 1_000_000
#: Number of positions that are kept per problem, for messages.
NAMED = 3
#: Rows from which a design effect is estimated, at most.
_DESIGN_ROWS = 20_000
_HASHES = 2.0**64
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
        duplicates: rows whose text is that of an earlier row; an estimate above SKETCH distinct texts in a corpus.
        conflicts: rows whose text also occurs with other labels.
        classes: label -> number of occurrences.
        lengths: interval of half an octave of the characters -> rows.
        scripts: writing system of most letters of a row -> rows; `none`: no letters.
        trigrams: (2, BUCKETS) hashed character trigrams of two random halves of the clusters. The divergence between
            the halves shows how much two samples of one distribution differ.
        sketch: the SKETCH smallest hashes of the texts, ascending.
        design: distribution -> design effect: variance of its shares relative to that of independent rows.
        columns: names of the columns of the files, if they have any.
        positions: problem (`empty`, `duplicate`, `conflict`) or `script:NAME` -> positions of the first rows.
    """

    rows: int = 0
    empty: int = 0
    duplicates: float = 0
    conflicts: int = 0
    classes: Counts = field(default_factory=dict)
    lengths: Counts = field(default_factory=dict)
    scripts: Counts = field(default_factory=dict)
    trigrams: list[list[int]] = field(default_factory=lambda: [[0] * BUCKETS, [0] * BUCKETS])
    sketch: list[int] = field(default_factory=list)
    design: dict[str, float] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    positions: dict[str, list[str]] = field(default_factory=dict)

    def share(self, count: float) -> float:
        """A count as a share of all rows, empty ones included."""
        return count / max(self.rows + self.empty, 1)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def compact(self) -> dict[str, Any]:
        """As JSON, without what is needed to combine files and to name rows."""
        return self.as_dict() | {"positions": {}, "sketch": []}

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
    sketch = Sketch()
    labels_of: dict[int, tuple[str, ...]] = {}
    conflicting: set[int] = set()
    keys: list[int] = []
    repeats = 0
    sample: list[tuple[str, str, str, tuple[str, ...]]] = []
    trigrams = Trigrams()
    for item in items:
        if not item.text.strip():
            found.empty += 1
            _name(found, "empty", item)
            continue
        found.rows += 1
        key = _hash(text_key(item.text))
        repeated = not sketch.add(key)
        if item.labels:
            repeated = key in labels_of
            keys.append(key)
            if labels_of.setdefault(key, item.labels) != item.labels:
                conflicting.add(key)
                _name(found, "conflict", item)
        repeats += repeated
        if repeated:
            _name(found, "duplicate", item)
        excerpt = item.text[:EXCERPT]
        script, length = script_of(excerpt), str(int(2 * np.log2(1 + len(item.text))))
        if not scripts[script]:
            _name(found, f"script:{script}", item)
        scripts[script] += 1
        lengths[length] += 1
        classes.update(item.labels)
        cluster = str(key) if item.group is None else item.group
        trigrams.add(excerpt, half=_hash(cluster) & 1)
        if len(sample) < _DESIGN_ROWS:
            sample.append((cluster, script, length, item.labels))
    found.conflicts = sum(key in conflicting for key in keys)
    found.scripts, found.lengths, found.classes = dict(scripts), dict(lengths), dict(classes)
    found.trigrams = trigrams.counts()
    found.sketch = sketch.values()
    found.duplicates = repeats if found.classes else repeated_rows(found.rows, found.sketch)
    clusters = [row[0] for row in sample]
    found.design = {
        "classes": design_effect(clusters, [row[3] for row in sample]),
        "lengths": design_effect(clusters, [(row[2],) for row in sample]),
        "scripts": design_effect(clusters, [(row[1],) for row in sample]),
    }
    return found


def combine(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several files together; duplicates between files are counted, conflicts within files only."""
    total = Statistics()
    rows = max(sum(part.rows for part in parts), 1)
    for part in parts:
        total.rows += part.rows
        total.empty += part.empty
        total.conflicts += part.conflicts
        for name in DISTRIBUTIONS:
            merged = Counter(getattr(total, name))
            merged.update(getattr(part, name))
            setattr(total, name, dict(merged))
            total.design[name] = total.design.get(name, 0.0) + part.design.get(name, 1.0) * part.rows / rows
        total.trigrams = (np.asarray(total.trigrams) + np.asarray(part.trigrams)).tolist()
        total.columns += [name for name in part.columns if name not in total.columns]
        for problem, positions in part.positions.items():
            known = total.positions.setdefault(problem, [])
            known += positions[: NAMED - len(known)]
    total.sketch = heapq.nsmallest(SKETCH, {value for part in parts for value in part.sketch})
    total.duplicates = repeated_rows(total.rows, total.sketch)
    return total


def repeated_rows(rows: int, sketch: Sequence[int]) -> float:
    """Number of rows whose text is that of an earlier row; exact below SKETCH distinct texts, otherwise an estimate."""
    if len(sketch) < SKETCH:
        return rows - len(sketch)
    return max(0.0, rows - (SKETCH - 1) / (sketch[-1] / _HASHES))


def design_effect(clusters: Sequence[str], labels: Sequence[tuple[str, ...]]) -> float:
    """The mean design effect of the shares of categories (Rao and Scott 1981): the sum of their variances between
    clusters relative to the sum for independent draws; at least 1.

    Args:
        clusters: N clusters of rows.
        labels: N tuples of categories.
    """
    number = {name: index for index, name in enumerate(dict.fromkeys(clusters))}
    category = {name: index for index, name in enumerate(dict.fromkeys(one for own in labels for one in own))}
    if len(number) < 2 or len(category) < 2:
        return 1.0
    cells: Counter[tuple[int, int]] = Counter()
    for cluster, own in zip(clusters, labels, strict=True):
        cells.update((number[cluster], category[one]) for one in own)
    counts = np.fromiter(cells.values(), dtype=np.float64)
    row = np.fromiter((cell[0] for cell in cells), dtype=np.int64)
    column = np.fromiter((cell[1] for cell in cells), dtype=np.int64)
    total = counts.sum()
    share = np.bincount(column, counts, len(category)) / total
    size = np.bincount(row, counts, len(number))
    # sum over clusters of (count - size * share) ** 2, without the dense matrix
    squares = np.bincount(column, counts**2 - 2 * counts * size[row] * share[column], len(category))
    squares += share**2 * np.sum(size**2)
    between = len(number) / (len(number) - 1) * squares.sum() / total**2
    independent = np.sum(share * (1 - share)) / total
    return float(max(1.0, between / independent))


class Sketch:
    """The SKETCH smallest distinct hashes of a stream."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._known: set[int] = set()

    def add(self, value: int) -> bool:
        """Add a hash; returns False if it is in the sketch already."""
        if value in self._known:
            return False
        if len(self._heap) < SKETCH:
            heapq.heappush(self._heap, -value)
            self._known.add(value)
        elif value < -self._heap[0]:
            self._known.discard(-heapq.heapreplace(self._heap, -value))
            self._known.add(value)
        return True

    def values(self) -> list[int]:
        """The hashes, ascending."""
        return sorted(self._known)


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
