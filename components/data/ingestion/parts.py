"""The steps of the stage `ingest` on one part of the raw files: reading, and writing what is kept.

A part is one or several consecutive raw files, about `PART_BYTES` of text. `read_part` cleans its documents and writes
them and their keys to the work folder; when the duplicates are known, `write_part` writes the shards of the part.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.cluster.shards import Facts, Work
from components.data.batches import batches
from components.data.formats.corpus import PAIR_SCHEMA, SCHEMA, SPLITS, ShardWriter
from components.data.formats.lines import Reading
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import PERMUTATIONS, Shingles, exact_keys, packed_rows
from components.data.ingestion.documents import DROPPED_SCHEMA, JUDGED, ORIGINS, Origin
from components.data.ingestion.matching import SEARCH_PERMUTATIONS, HeldOut
from components.data.ingestion.readers import read_documents
from components.settings.data import CorpusSource, IngestSettings, ParallelSource

#: Size of a part; a compressed file counts as the text that it is likely to hold.
PART_BYTES = 32_000_000
COMPRESSION: Final = {".gz": 4, ".zst": 4, ".parquet": 3, ".zip": 4}
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192
#: Files of a part in the work folder, after its key: the documents and their keys, in the same batches; and what was
#: left out.
DOCUMENTS, KEYS, LEFT_OUT = "documents", "keys", "left-out"
#: A document with its origin, and the reason for which it is left out, or "".
Read = tuple[Origin, list[str], str]


def divided(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Consecutive files as parts of about `PART_BYTES`; the boundaries depend on names and sizes only."""
    part: list[str] = []
    total = 0
    for name, size in sizes.items():
        size *= COMPRESSION.get(Path(name).suffix.lower(), 1)
        if part and total + size > PART_BYTES:
            yield part
            part, total = [], 0
        part.append(name)
        total += size
    if part:
        yield part


def texts_schema(source: CorpusSource | ParallelSource) -> pa.Schema:
    return PAIR_SCHEMA if isinstance(source, ParallelSource) else SCHEMA


def keys_schema(settings: IngestSettings) -> pa.Schema:
    """`exact` and `sketch` (`components.data.ingestion.dedup`), the latter to find near duplicates; and the origin."""
    near = [("sketch", pa.binary(2 * PERMUTATIONS))] if settings.near_duplicates else []
    return pa.schema([("exact", pa.binary(16)), *near, *ORIGINS])


@dataclass(frozen=True)
class ReadPart:
    """Inputs of `read_part`.

    Attributes:
        files: name in the corpus -> name by which a worker reads the file.
        read: name in the corpus -> number of its documents that earlier runs have read.
        judged: name of a JSON list of texts whose copies are left out.
        size: bytes of the files.
    """

    files: Mapping[str, str]
    read: Mapping[str, int]
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    judged: str
    size: int


def read_part(item: ReadPart, key: str, work: Work) -> Facts:
    """Read and clean the documents of a part. Returns the number of documents as `rows`, of those left out by reason,
    and of documents, bytes, replaced bytes and lines of each file.

    Raises:
        DataError: a raw file is damaged.
    """
    near = item.settings.near_duplicates
    shingles = Shingles() if near else None
    held = json.loads(work.read(item.judged).read_text(encoding="utf-8"))
    judged = HeldOut(held, permutations=PERMUTATIONS if near else SEARCH_PERMUTATIONS) if held else None
    schemas = {DOCUMENTS: texts_schema(item.source), KEYS: keys_schema(item.settings), LEFT_OUT: DROPPED_SCHEMA}
    files: dict[str, list[int]] = {}
    dropped, rows = Counter[str](), 0
    with work.scratch() as folder:
        with ExitStack() as stack:
            streams = {
                name: stack.enter_context(
                    pa.ipc.new_stream(stack.enter_context(pa.OSFile(str(folder / name), "wb")), of)
                )
                for name, of in schemas.items()
            }
            documents_read = _documents(item, work, files)
            for batch in batches(documents_read, size=_characters, most=_BATCH_CHARACTERS, count=_BATCH_ROWS):
                left_out = [(*origin, reason, None, None, None, None) for origin, _, reason in batch if reason]
                documents = [(origin, texts) for origin, texts, reason in batch if not reason]
                wholes = ["\n".join(texts) for _, texts in documents]
                sketches = shingles.sketches(wholes) if shingles else None
                copies: set[int] = set()
                if judged and documents:
                    # Of a pair, on either side.
                    sides = [*zip(*(texts for _, texts in documents), strict=True)]
                    alone = len(sides) == 1
                    copies.update(*(judged.copies(side, sketches if alone else None) for side in sides))
                left_out += [(*documents[index][0], JUDGED, None, None, None, None) for index in sorted(copies)]
                kept = [index for index in range(len(documents)) if index not in copies]
                if left_out:
                    streams[LEFT_OUT].write_batch(pa.record_batch([*zip(*left_out, strict=True)], DROPPED_SCHEMA))
                if kept:
                    ids, sources, lines = zip(*(documents[index][0] for index in kept), strict=True)
                    first, *second = zip(*(documents[index][1] for index in kept), strict=True)
                    streams[DOCUMENTS].write_batch(pa.record_batch([ids, first, sources, *second], schemas[DOCUMENTS]))
                    keys = [packed_rows(exact_keys([wholes[index] for index in kept]))]
                    keys += [] if sketches is None else [packed_rows(sketches[kept])]
                    streams[KEYS].write_batch(pa.record_batch([*keys, ids, sources, lines], schemas[KEYS]))
                rows += len(kept)
                dropped.update(row[3] for row in left_out)
        for name in streams:
            work.put(folder / name, f"{key}.{name}")
    return {"rows": rows, "dropped": dropped, "files": files}


def _documents(item: ReadPart, work: Work, files: dict[str, list[int]]) -> Iterator[Read]:
    """The new documents of the files, cleaned; adds the numbers of each file to `files`."""
    for name, place in item.files.items():
        reading, read = Reading(), 0
        for number, raw, row_id in read_documents(work.read(place), item.source, reading):
            read += 1
            if read > item.read[name]:
                texts = [clean(text, strip_markup=item.settings.strip_markup) for text in raw]
                short = "too_short" if len(texts[0]) < item.settings.min_characters else ""
                yield Origin(row_id or f"{name}:{number}", name, number), texts, short if all(texts) else "empty"
        files[name] = [read, reading.text_bytes, reading.bad_bytes, reading.bad_lines]


def _characters(document: Read) -> int:
    return sum(map(len, document[1]))


@dataclass(frozen=True)
class WritePart:
    """Inputs of `write_part`.

    Attributes:
        key: of the part.
        splits: name of a file with a byte per document: the index of its split in `SPLITS`; -1: it is a duplicate.
        size: bytes of a shard.
    """

    key: str
    splits: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    size: int


def write_part(item: WritePart, key: str, work: Work) -> Facts:
    """Write the kept documents of a part to shards of their split, and their keys and origins to key shards. Returns
    the names of the shards by prefix, their sizes and digests as in a manifest, and numbers of documents and
    characters."""
    schema = keys_schema(item.settings).append(pa.field("heldout", pa.bool_()))
    splits, first, characters = np.fromfile(work.read(item.splits), np.int8), 0, 0
    with work.scratch() as folder:
        writers = {
            name: ShardWriter(
                folder, name, schema=schema if name == KEYS else texts_schema(item.source), limit=item.size
            )
            for name in (*SPLITS, KEYS)
        }
        for texts, keys in zip(written(work, item.key, DOCUMENTS), written(work, item.key, KEYS), strict=True):
            of_batch = splits[first : first + len(texts)]
            first += len(texts)
            for number, split in enumerate(SPLITS):
                chosen = texts.filter(pa.array(of_batch == number))
                writers[split].write(chosen)
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    characters += pc.sum(pc.utf8_length(column)).as_py() or 0
            every = pa.record_batch([*keys.columns, pa.array(of_batch == SPLITS.index("heldout"))], schema)
            writers[KEYS].write(every.filter(pa.array(of_batch >= 0)))
        shards = {name: writer.close() for name, writer in writers.items()}
        files = {name: entry for writer in writers.values() for name, entry in writer.files.items()}
        for name in files:
            work.put(folder / name, name)
    heldout = int((splits == SPLITS.index("heldout")).sum())
    counts = {"kept": int((splits >= 0).sum()), "heldout": heldout, "characters": characters}
    return {"counts": counts, "shards": shards, "files": files}


def written(work: Work, key: str, name: str) -> Iterator[pa.RecordBatch]:
    """The batches of a file that the step `read_part` with this key has written."""
    # Read, not memory-mapped: mapped pages count as resident memory of the process.
    with pa.OSFile(str(work.read(f"{key}.{name}"))) as source, pa.ipc.open_stream(source) as reader:
        yield from reader
