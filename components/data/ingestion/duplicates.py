"""Duplicates in a corpus of any size, as group-bys over partitions of the keys.

The documents of a corpus are numbered in order: those of earlier runs, then those of each part of the raw files. A part
has its keys in files (`write_keys`): in document order, and for every group-by sorted by key. A group-by compares the
documents of one range of keys with the first document of equal key:

- exact duplicates have the same BLAKE2b-128 hash;
- near duplicates share a band of their MinHash signatures, and at least the threshold of all values. Bands are compared
  one after the other, because a document that one band finds takes no part in the next.

So the result depends neither on the number of ranges nor on the order in which they are computed. Documents of earlier
runs are never dropped; of their keys only those are read that a new document shares (`search_keys`).

Arrays: n documents, p hash permutations, b bands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from components.cluster.shards import Facts, Steps, Work, digest_of
from components.core.artifacts import digest_file
from components.data.formats.corpus import read_batches
from components.data.ingestion.dedup import (
    PERMUTATIONS,
    Documents,
    Flags,
    Sketches,
    Words64,
    band_key,
    band_rows,
    unpacked_rows,
)
from components.data.ingestion.documents import Origin

#: Documents whose keys are compared at once, on average; they take about 10 MB.
RANGE_KEYS = 100_000
#: Pairs that are verified at once.
_PAIRS = 50_000
#: The group-by of exact duplicates; those of near duplicates have the numbers of their bands.
EXACT: Final = -1
PAIR: Final = np.dtype([("later", "<i8"), ("earlier", "<i8"), ("similarity", "<f8"), ("exact", "?")])
#: A document of an earlier run that has a key in common with a new document. `second` is the other half of an exact
#: key; `sketch` is empty without signatures.
_HIT: Final = [("group", "<i8"), ("key", "<u8"), ("second", "<u8"), ("number", "<i8")]


def _hit(width: int) -> np.dtype[Any]:
    return np.dtype([*_HIT, ("sketch", "<u2", (width,))])


def write_keys(folder: Path, *, exact: Words64, sketches: Sketches | None, rows: int) -> list[str]:
    """Write the keys of a part: exact (n, 2), sketches (n, p), and the keys of each group-by in ascending order with
    the documents that they belong to; returns the names of the files.

    Args:
        sketches: None: near duplicates are kept.
        rows: values in a band.
    """
    columns = [exact[:, 0]]
    if sketches is not None:
        bands = sketches.shape[1] // rows
        columns += [band_key(sketches[:, band * rows : (band + 1) * rows]) for band in range(bands)]
        sketches.tofile(folder / "sketches")
    exact.tofile(folder / "exact")
    with (folder / "keys").open("wb") as keys, (folder / "order").open("wb") as orders:
        for column in columns:
            order = np.argsort(column, kind="stable")
            keys.write(np.ascontiguousarray(column[order]).data)
            orders.write(order.astype(np.uint32).data)
    return ["exact", "keys", "order", *(["sketches"] if sketches is not None else [])]


@dataclass(frozen=True)
class Part:
    """Documents of a part: the key of its files in the work folder, and the numbers of its documents."""

    key: str
    first: int
    rows: int

    def array(self, work: Work, name: str, type_: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """A memory-mapped file of the part."""
        return np.memmap(work.read(f"{self.key}.{name}"), dtype=type_, mode="r", shape=shape)

    def exact(self, work: Work) -> Words64:
        """Keys (n, 2) in document order."""
        return self.array(work, "exact", np.uint64, (self.rows, 2))

    def sketches(self, work: Work) -> Sketches:
        """Signatures (n, p) in document order."""
        return self.array(work, "sketches", np.uint16, (self.rows, PERMUTATIONS))

    def sorted_keys(self, work: Work, group: int) -> tuple[Words64, npt.NDArray[np.uint32]]:
        """The keys of a group-by (n,), ascending, and their documents within the part."""
        size = self.rows * (group + 1)
        keys = np.memmap(work.read(f"{self.key}.keys"), np.uint64, "r", offset=8 * size, shape=(self.rows,))
        order = np.memmap(work.read(f"{self.key}.order"), np.uint32, "r", offset=4 * size, shape=(self.rows,))
        return keys, order


@dataclass(frozen=True)
class Catalogue:
    """The parts, the keys shared with the `old` documents of earlier runs, and the files of `search_keys`, in order."""

    parts: tuple[Part, ...]
    old: int
    hits: tuple[str, ...]
    near: bool

    @classmethod
    def read(cls, work: Work, name: str) -> Catalogue:
        raw = json.loads(work.read(name).read_bytes())
        return cls(tuple(Part(**part) for part in raw["parts"]), raw["old"], tuple(raw["hits"]), raw["near"])

    def hits_of(self, work: Work, group: int, low: int, high: int) -> npt.NDArray[Any]:
        """The first documents of earlier runs with the keys of a range that new documents have too, (h,) hits."""
        width = PERMUTATIONS if self.near else 0
        hits = [np.load(work.read(name)) for name in self.hits]
        chosen = [each[(each["group"] == group) & _inside(each["key"], low, high)] for each in hits]
        return np.concatenate([np.empty(0, _hit(width)), *chosen])


def _inside(keys: Words64, low: int, high: int) -> Flags:
    return (keys >= np.uint64(low)) & (keys <= np.uint64(high))


@dataclass(frozen=True)
class KeyShard:
    """A key shard of an earlier run, whose first document has the number `first`; `parts` are the new documents."""

    name: str
    first: int
    parts: tuple[Part, ...]
    near: bool
    rows: int


def search_keys(item: KeyShard, key: str, work: Work) -> Facts:
    """Write the documents of a key shard that have a key in common with a new document, and their origins."""
    width = PERMUTATIONS if item.near else 0
    path, columns = work.read(item.name), ["exact", *(["sketch"] if item.near else [])]
    batches = list(read_batches(path, columns))
    exact = np.concatenate([unpacked_rows(batch.column(0), np.uint64) for batch in batches])
    sketches = np.empty((len(exact), 0), np.uint16)
    if item.near:
        sketches = np.concatenate([unpacked_rows(batch.column(1), np.uint16) for batch in batches])
    hits = []
    for group in range(EXACT, width // item.rows):
        values = exact[:, 0] if group == EXACT else band_key(sketches[:, group * item.rows : (group + 1) * item.rows])
        wanted = np.unique(np.concatenate([part.sorted_keys(work, group)[0] for part in item.parts]))
        places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
        shared = np.flatnonzero(wanted[places] == values)
        # The first document of each key: the others are never compared with.
        rows = shared[np.unique(values[shared], return_index=True)[1]] if group != EXACT else shared
        shared_by = np.zeros(len(rows), _hit(width))
        shared_by["group"], shared_by["key"], shared_by["number"] = group, values[rows], rows + item.first
        shared_by["second"], shared_by["sketch"] = exact[rows, 1], sketches[rows]
        hits.append(shared_by)
    every = np.concatenate(hits)
    numbers = np.unique(every["number"])
    with work.scratch() as folder:
        with (folder / "hits").open("wb") as file:
            np.save(file, every)
        write_origins(folder / "origins", numbers, _origins(path, numbers - item.first))
        for name in ("hits", "origins"):
            work.put(folder / name, f"{key}.{name}")
    return {"hits": len(every)}


def _origins(path: Path, rows: Documents) -> pa.Table:
    parts, first = [], 0
    for batch in read_batches(path, list(Origin._fields)):
        inside = rows[slice(*np.searchsorted(rows, [first, first + batch.num_rows]))] - first
        parts.append(batch.take(pa.array(inside)))
        first += batch.num_rows
    return pa.Table.from_batches(parts)


def write_origins(path: Path, numbers: Documents, origins: pa.Table) -> None:
    """Write the numbers and origins of documents as an Arrow file."""
    table = origins.add_column(0, "number", pa.array(numbers, pa.int64()))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@dataclass(frozen=True)
class Group:
    """One range of keys of one or several group-bys.

    Attributes:
        catalogue, flags: names of files. `flags` has a bit for each new document, which is set if an earlier group-by
            has found that it is a duplicate.
        groups: `EXACT`, or the numbers of bands, which are compared in this order.
        low, high: the first and the last key of the range.
    """

    catalogue: str
    flags: str
    groups: tuple[int, ...]
    low: int
    high: int
    threshold: float


def find_pairs(item: Group, key: str, work: Work) -> Facts:
    """Write the duplicates of a range of keys, each with the document that it was compared with (`PAIR`)."""
    catalogue = Catalogue.read(work, item.catalogue)
    bits = np.fromfile(work.read(item.flags), np.uint8)
    pairs = []
    for group in item.groups:
        hits = catalogue.hits_of(work, group, item.low, item.high)
        keys, numbers = _range(catalogue, work, group, item, bits, hits)
        if group == EXACT:
            second = _gather(catalogue, work, numbers, hits, lambda part: part.exact(work)[:, 1], "second")
            later, earlier = _first_of_equal(numbers, keys, second)
            similarity = np.ones(len(later))
        else:
            later, earlier = _first_of_equal(numbers, keys)
            similarity = _similarity(catalogue, work, later, earlier, hits)
        # Documents of earlier runs are only compared with.
        chosen = (later >= catalogue.old) & (similarity >= item.threshold)
        later, earlier, similarity = later[chosen], earlier[chosen], similarity[chosen]
        np.bitwise_or.at(bits, *_bit(later - catalogue.old))
        of_group = np.zeros(len(later), PAIR)
        of_group["later"], of_group["earlier"], of_group["similarity"] = later, earlier, similarity
        of_group["exact"] = group == EXACT
        pairs.append(of_group)
    every = np.concatenate(pairs)
    with work.scratch() as folder:
        with (folder / "pairs").open("wb") as file:
            np.save(file, every)
        work.put(folder / "pairs", f"{key}.pairs")
    return {"pairs": len(every)}


def _range(
    catalogue: Catalogue, work: Work, group: int, item: Group, bits: npt.NDArray[np.uint8], hits: npt.NDArray[Any]
) -> tuple[Words64, Documents]:
    """The keys and numbers of all documents in a range, without those flagged; earlier documents come first."""
    keys, numbers = [hits["key"]], [hits["number"]]
    for part in catalogue.parts:
        ordered, order = part.sorted_keys(work, group)
        inside = slice(
            np.searchsorted(ordered, np.uint64(item.low), "left"),
            np.searchsorted(ordered, np.uint64(item.high), "right"),
        )
        documents = order[inside].astype(np.int64) + part.first
        places, masks = _bit(documents - catalogue.old)
        kept = bits[places] & masks == 0
        keys.append(ordered[inside][kept])
        numbers.append(documents[kept])
    return np.concatenate(keys), np.concatenate(numbers)


def _bit(documents: Documents) -> tuple[Documents, npt.NDArray[np.uint8]]:
    # As `numpy.packbits` orders them.
    return documents >> 3, np.right_shift(128, documents & 7).astype(np.uint8)


def _first_of_equal(numbers: Documents, *keys: Words64) -> tuple[Documents, Documents]:
    """(later, first) of all documents with equal keys; of documents with equal keys, the earliest comes first."""
    # Both sorts are stable. The keys are sorted runs, which this one merges.
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1])
    numbers, keys = numbers[order], tuple(column[order] for column in keys)
    same = np.zeros(len(numbers), dtype=bool)
    if len(numbers) > 1:
        same[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in keys])
    heads = np.maximum.accumulate(np.where(same, 0, np.arange(len(numbers))))
    later = np.flatnonzero(same)
    return numbers[later], numbers[heads[later]]


def _similarity(
    catalogue: Catalogue, work: Work, later: Documents, earlier: Documents, hits: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Estimated Jaccard similarity of pairs: the share of equal values of their signatures."""
    result = np.empty(len(later))
    for start in range(0, len(later), _PAIRS):
        block = slice(start, start + _PAIRS)
        left, right = (
            _gather(catalogue, work, numbers[block], hits, lambda part: part.sketches(work), "sketch")
            for numbers in (later, earlier)
        )
        result[block] = (left == right).mean(axis=1)
    return result


def _gather(
    catalogue: Catalogue, work: Work, numbers: Documents, hits: npt.NDArray[Any], values: Any, name: str
) -> npt.NDArray[Any]:
    """The values of documents, by number: of new ones from the arrays of their parts, of others from the hits."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    split = int(np.searchsorted(ordered, catalogue.old))
    by_number = np.argsort(hits["number"], kind="stable")
    places = np.searchsorted(hits["number"][by_number], ordered[:split])
    parts = [hits[name][by_number[places]]]
    for part in catalogue.parts:
        inside = ordered[slice(*np.searchsorted(ordered, [part.first, part.first + part.rows]))]
        if len(inside):
            parts.append(np.asarray(values(part)[inside - part.first]))
    gathered = np.concatenate(parts)
    result = np.empty_like(gathered)
    result[order] = gathered
    return result


def find_duplicates(
    steps: Steps, parts: Sequence[Part], *, key_shards: Mapping[str, Path], threshold: float | None
) -> tuple[npt.NDArray[Any], Flags, list[str]]:
    """The duplicates among new documents and with documents of earlier runs, in document order.

    Args:
        key_shards: name -> file of the key shards of earlier runs, in order.
        threshold: estimated Jaccard similarity from which two documents are near duplicates; None: they are kept.

    Returns:
        Pairs (`PAIR`); (n,) whether each new document is a duplicate; files with the origins of earlier documents.
    """
    work, near = steps.work, threshold is not None
    rows = band_rows(threshold) if threshold is not None else 1
    parts = [part for part in parts if part.rows]
    old = parts[0].first if parts else 0
    searched: dict[str, KeyShard] = {}
    first = 0
    for name, path in key_shards.items() if parts else ():
        published = work.publish(path, name)
        item = KeyShard(published, first, tuple(parts), near, rows)
        searched[digest_of("search", name, first, [part.key for part in parts], near, rows)] = item
        first += pq.read_metadata(path).num_rows
    steps.map(search_keys, searched)
    hits = tuple(f"{key}.hits" for key in searched)
    catalogue = stored(work, json.dumps(asdict(Catalogue(tuple(parts), old, hits, near))).encode())
    flags = np.zeros(sum(part.rows for part in parts), dtype=bool)
    ranges = max(1, -(-len(flags) // RANGE_KEYS))
    bounds = [2**64 * number // ranges for number in range(ranges + 1)]
    bands = range(PERMUTATIONS // rows) if near else range(0)
    # One range needs no exchange of flags between the bands.
    groups = [(EXACT,), *([tuple(bands)] if bands and ranges == 1 else [(band,) for band in bands])]
    pairs = [np.empty(0, PAIR)]
    for group in groups if len(flags) else ():
        bits = stored(work, np.packbits(flags).tobytes())
        items = [Group(catalogue, bits, group, low, high - 1, threshold or 1.0) for low, high in pairwise(bounds)]
        keyed = {digest_of("pairs", vars(item)): item for item in items}
        steps.map(find_pairs, keyed)
        for key in keyed:
            pairs.append(np.load(work.read(f"{key}.pairs")))
            flags[pairs[-1]["later"] - old] = True
    every = np.concatenate(pairs)
    return every[np.argsort(every["later"])], flags, [f"{key}.origins" for key in searched]


def stored(work: Work, content: bytes) -> str:
    """Put a small file into the work folder, under its digest."""
    with work.scratch() as folder:
        (folder / "content").write_bytes(content)
        name = digest_file(folder / "content")[:32]
        work.put(folder / "content", name)
    return name


def near_pairs(
    sketches: Sketches, threshold: float, *, rows: int
) -> Iterator[tuple[Documents, Documents, npt.NDArray[np.float64]]]:
    """(later, earlier, similarity) of signatures in memory (n, p) whose estimated similarity is at least `threshold`:
    in each band every document is compared with the first of equal key."""
    numbers = np.arange(len(sketches))
    for start in range(0, sketches.shape[1] // rows * rows, rows):
        later, earlier = _first_of_equal(numbers, band_key(sketches[:, start : start + rows]))
        similarity = (sketches[later] == sketches[earlier]).mean(axis=1)
        alike = similarity >= threshold
        yield later[alike], earlier[alike], similarity[alike]
