"""The corpus directory: append-only Parquet shards of documents, in order.

`train-<digest>.parquet` and `heldout-<digest>.parquet` have the columns id, text and source (the raw file), and target
(the translation) in a corpus of pairs. `keys-<digest>.parquet` have the deduplication keys and the origin of each
document; `dropped.parquet` lists the dropped documents. The manifest names the shards of each split in order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import digest_file, read_manifest
from components.core.errors import ArtifactError

KIND = "corpus"
Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("source", pa.string())])
PAIR_SCHEMA = SCHEMA.append(pa.field("target", pa.string()))
_BATCH_ROWS = 4_096


def shards(directory: Path, split: Split = "train") -> list[Path]:
    """The shards of a split, in document order.

    Raises:
        ArtifactError: the directory is not a complete corpus.
    """
    manifest = read_manifest(directory, kind=KIND)
    return [directory / name for name in manifest.facts["shards"][split]]


def read_documents(directory: Path, split: Split = "train") -> Iterator[str]:
    """Iterate over the texts of a split, in order; only one batch is in memory.

    Raises:
        ArtifactError: the directory is not a complete corpus, or a shard is damaged.
    """
    for shard in shards(directory, split):
        for batch in read_batches(shard, ["text"]):
            yield from batch.column(0).to_pylist()


def read_rows(shard: Path) -> Iterator[tuple[str, ...]]:
    """Iterate over the rows of one shard: (text,), or (text, target) in a corpus of pairs.

    Raises:
        ArtifactError: the shard is damaged.
    """
    columns = ["text", "target"] if holds_pairs(shard) else ["text"]
    for batch in read_batches(shard, columns):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def holds_pairs(shard: Path) -> bool:
    try:
        return "target" in pq.read_schema(shard).names
    except (pa.ArrowException, OSError) as error:
        raise _damaged(shard, error) from error


def read_batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Iterate over columns of a Parquet file in batches of at most 4,096 rows.

    Raises:
        ArtifactError: the file is damaged.
    """
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(f"{path}: damaged ({str(error).splitlines()[0]}); run the stage again")


class ShardWriter:
    """Writes rows as Parquet files of a bounded size, named `<prefix>-<digest of the bytes>.parquet`."""

    def __init__(self, directory: Path, prefix: str, *, schema: pa.Schema, limit: int) -> None:
        self.names: list[str] = []
        #: Name of a finished file -> its size and SHA-256, as in a manifest.
        self.files: dict[str, dict[str, Any]] = {}
        self._directory, self._prefix, self._schema, self._limit = directory, prefix, schema, limit
        self._path = directory / f".{prefix}"
        self._open: pq.ParquetWriter | None = None
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._open is None:
            # Texts are distinct, so dictionaries and statistics would not help.
            self._open = pq.ParquetWriter(
                self._path,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in self._schema.names if name == "source"],
                write_statistics=False,
            )
        self._open.write_batch(batch)
        self._size += batch.nbytes
        if self._size >= self._limit:
            self.close()

    def close(self) -> list[str]:
        """Finish the current file; returns the names of all files, in order."""
        if self._open is not None:
            self._open.close()
            digest = digest_file(self._path)
            name = f"{self._prefix}-{digest[:16]}.parquet"
            self._path.rename(self._directory / name)
            self.names.append(name)
            self.files[name] = {"bytes": (self._directory / name).stat().st_size, "sha256": digest}
            self._open, self._size = None, 0
        return self.names
