"""The size of a corpus shard, from its Parquet footer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import ArtifactError


class Size(NamedTuple):
    """Rows, and uncompressed bytes of UTF-8 text."""

    documents: int
    text_bytes: int


def measure(shard: Path) -> Size:
    """The size of a Parquet shard of the corpus.

    Raises:
        ArtifactError: the shard is damaged.
    """
    try:
        metadata = pq.read_metadata(shard)
        column = next(number for number, name in enumerate(metadata.schema.names) if name == "text")
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return Size(metadata.num_rows, sum(group.column(column).total_uncompressed_size for group in groups))
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ArtifactError(f"{shard}: not a readable corpus shard ({error}); run the stage ingest again") from error
