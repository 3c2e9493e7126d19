"""Removal of the documents of deleted and edited raw files from a corpus: only the shards that held them are rewritten.

A document of an edited file stays if its text, line and id are unchanged, so that text may be appended to a file. A
document of another file that was dropped as a duplicate of a removed one is compared again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.formats.corpus import SPLITS, ShardWriter, read_batches
from components.formats.lines import Reading
from components.ingestion.cleaning import clean
from components.ingestion.dedup import exact_keys
from components.ingestion.documents import DROPPED, DROPPED_SCHEMA, Origin
from components.ingestion.readers import read_documents
from components.settings.data import CorpusSource, ParallelSource
from components.settings.ingest import IngestSettings

#: The columns of a document's text, or of a pair's texts.
_TEXTS = ("text", "target")
_UNBOUNDED = 1 << 62


@dataclass
class Removal:
    """What is removed from a corpus.

    Attributes:
        gone, edited: raw files, by name.
        staying: of the kept documents of edited files, the fingerprints (n,) of those that stay, sorted.
        keys: exact keys (16 bytes) of the removed documents.
        compared: origins of dropped documents of unchanged files that are compared again.
        kept, heldout, characters: totals of the removed documents.
        dropped: reason -> rows that are removed from dropped.parquet.
        shards: number of shards that have been rewritten.
    """

    gone: frozenset[str]
    edited: frozenset[str]
    staying: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    keys: set[bytes] = field(default_factory=set)
    compared: set[Origin] = field(default_factory=set)
    kept: int = 0
    heldout: int = 0
    characters: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    shards: int = 0

    @property
    def files(self) -> frozenset[str]:
        """The raw files whose documents may be removed."""
        return self.gone | self.edited

    def stays(self, origin: Origin, key: bytes) -> bool:
        """Whether a document of an edited file is in the corpus already."""
        wanted = _fingerprint(origin, key)
        at = int(np.searchsorted(self.staying, wanted))
        return at < len(self.staying) and self.staying[at] == wanted

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of dropped.parquet is removed."""
        return row["source"] in self.files or Origin(row["id"], row["source"], row["line"]) in self.compared

    def words(self) -> str:
        """What is removed, in words."""
        changed = [f"{name} is gone" for name in sorted(self.gone)]
        changed += [f"{name} changed" for name in sorted(self.edited)]
        named = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        return f"{named}: {self.kept:,} documents removed, {self.shards} shards rewritten"


def find_removal(
    corpus: Path,
    facts: Mapping[str, Any],
    *,
    gone: Collection[str],
    edited: Mapping[str, Path],
    source: CorpusSource | ParallelSource,
    settings: IngestSettings,
) -> Removal:
    """Find what has to be removed.

    Args:
        corpus: directory of the corpus.
        facts: of its manifest.
        gone: names of raw files that no longer exist.
        edited: name -> path of raw files that have changed.
        source: of the raw files.
        settings: of cleaning.

    Raises:
        DataError: an edited file is damaged.
    """
    removal = Removal(frozenset(gone), frozenset(edited))
    prints = (_prints(path, name, source=source, settings=settings) for name, path in edited.items())
    now = np.sort(np.concatenate([np.empty(0, np.uint64), *prints]))
    staying: list[int] = []
    touched: set[Origin] = set()
    for row in _rows(corpus, facts["keys"], ["exact", "id", "source", "line", "heldout"], removal.files):
        origin = Origin(row["id"], row["source"], row["line"])
        wanted = _fingerprint(origin, row["exact"])
        at = int(np.searchsorted(now, wanted))
        if row["source"] in removal.edited and at < len(now) and now[at] == wanted:
            staying.append(int(wanted))
        else:
            removal.keys.add(row["exact"])
            removal.kept += 1
            removal.heldout += row["heldout"]
            touched.add(origin)
    removal.staying = np.sort(np.array(staying, dtype=np.uint64))
    # A twin is an earlier document, so its own row, if it was dropped, comes first.
    for batch in read_batches(corpus / DROPPED, DROPPED_SCHEMA.names):
        for row in batch.to_pylist():
            origin = Origin(row["id"], row["source"], row["line"])
            twin = Origin(row["twin"], row["twin_source"], row["twin_line"])
            if row["source"] in removal.files:
                touched.add(origin)
            elif twin in touched:
                touched.add(origin)
                removal.compared.add(origin)
            else:
                continue
            removal.dropped[row["reason"]] = removal.dropped.get(row["reason"], 0) + 1
    return removal


def _rows(corpus: Path, shards: list[str], columns: list[str], sources: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of key shards whose raw file is one of `sources`."""
    wanted = pa.array(sorted(sources), pa.string())
    for name in shards:
        for batch in read_batches(corpus / name, columns):
            yield from batch.filter(pc.is_in(batch.column("source"), wanted)).to_pylist()


def _prints(
    path: Path, name: str, *, source: CorpusSource | ParallelSource, settings: IngestSettings
) -> npt.NDArray[np.uint64]:
    """Fingerprints of the documents of an edited file."""
    found = []
    for line, raw, row_id in read_documents(path, source, Reading()):
        document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
        if all(document):
            origin = Origin(row_id or f"{name}:{line}", name, line)
            found.append(_fingerprint(origin, key_of(document)))
    return np.array(found, dtype=np.uint64)


def key_of(document: list[str]) -> bytes:
    """The exact key of a document, as in the key shards."""
    return exact_keys(["\n".join(document)]).tobytes()


def _fingerprint(origin: Origin, key: bytes) -> np.uint64:
    """A hash of id, line and text."""
    data = f"{origin.id}\0{origin.source}\0{origin.line}\0".encode() + key
    return np.uint64(int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little"))


def remove(
    directory: Path, removal: Removal, *, shards: dict[str, list[str]], keys: list[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Rewrite the shards that hold removed documents; the others stay. Sets `characters` and `shards` of `removal`.

    Args:
        directory: draft of the corpus, with links to the earlier files.
        removal: what is removed.
        shards: split -> its shards, in order.
        keys: the key shards, in order.

    Returns:
        The shards of each split and the key shards afterwards. A shard without documents is left out.
    """

    def left(names: list[str]) -> list[str]:
        return [new for name in names if (new := _rewrite(directory, name, removal)) is not None]

    return {split: left(names) for split, names in shards.items()}, left(keys)


def _rewrite(directory: Path, name: str, removal: Removal) -> str | None:
    """The name of a shard without the removed documents; None if none is left."""
    path = directory / name
    sources = pq.read_table(path, columns=["source"]).column("source")
    if not pc.any(pc.is_in(sources, pa.array(sorted(removal.files), pa.string()))).as_py():
        return name
    schema = pq.read_schema(path)
    prefix = name.rpartition("-")[0]
    removed = 0
    # Decided before anything is written: most shards of an edited file may be unchanged.
    masks = []
    for batch in read_batches(path, schema.names):
        mask = np.array([key not in removal.keys for key in _keys(batch)], dtype=bool)
        masks.append(mask)
        gone = batch.filter(pa.array(~mask))
        removed += gone.num_rows
        removal.characters += sum(
            pc.sum(pc.utf8_length(gone.column(text))).as_py() or 0 for text in _TEXTS if text in schema.names
        )
    if not removed:
        return name
    removal.shards += prefix.partition("-")[0] in SPLITS
    writer = ShardWriter(directory, prefix, schema=schema.remove_metadata(), limit=_UNBOUNDED)
    for batch, mask in zip(read_batches(path, schema.names), masks, strict=True):
        writer.write(batch.filter(pa.array(mask)))
    path.unlink()
    return next(iter(writer.close()), None)


def _keys(batch: pa.RecordBatch) -> list[bytes]:
    """The exact keys of the rows of a shard."""
    if "exact" in batch.schema.names:
        found: list[bytes] = batch.column("exact").to_pylist()
        return found
    texts = [batch.column(name).to_pylist() for name in _TEXTS if name in batch.schema.names]
    rows = exact_keys(["\n".join(document) for document in zip(*texts, strict=True)])
    return [row.tobytes() for row in rows]
