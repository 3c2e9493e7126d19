"""Texts without labels: the output of the stage `unlabelled`, and the identity of a text.

`texts.parquet` has a column `fields` (`components.tasks.data.Fields`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from components.artifacts import read_manifest
from components.formats.textkey import text_key
from components.tasks.data import Fields
from components.tasks.results import read_columns

KIND: Final = "unlabelled"
FILE: Final = "texts.parquet"


def read_unlabelled(directory: Path) -> list[Fields]:
    """The texts that `unlabelled` has written.

    Raises:
        ArtifactError: the directory is incomplete or damaged.
    """
    read_manifest(directory, kind=KIND)
    table = read_columns(directory / FILE, ["fields"], stage=KIND)
    return [tuple(parts) for parts in table.column("fields").to_pylist()]


def digest_of(fields: Fields) -> bytes:
    """Digest of an input; the same for inputs that differ in case, punctuation and white space only."""
    key = "\x1f".join(map(text_key, fields))
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
