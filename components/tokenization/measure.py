"""How much text a shard of the corpus holds, from its footer alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import ArtifactError


class Size(NamedTuple):
    """Rows, and bytes of uncompressed UTF-8 text."""

    documents: int
    text_bytes: int


def measure(shard: Path) -> Size:
    """The size of one Parquet shard of the corpus.

    Raises:
        ArtifactError: the shard is damaged.
    """
    try:
        metadata = pq.read_metadata(shard)
        column = next(number for number, name in enumerate(metadata.schema.names) if name == "text")
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return Size(metadata.num_rows, sum(group.column(column).total_uncompressed_size for group in groups))
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ArtifactError(f"{shard}: no readable shard of a corpus ({error}); run the ingest stage again") from error
