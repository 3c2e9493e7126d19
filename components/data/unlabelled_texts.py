"""Texts without labels: the output of the stage `unlabelled`, and the identity of a text.

`texts.parquet` has a column `fields` (`components.data.tasks.data.Fields`).
"""

from pathlib import Path
from typing import Final

from components.core.artifacts import read_manifest
from components.data.formats.textkey import digest_of as digest_of
from components.data.tasks.data import Fields
from components.data.tasks.results import read_columns

KIND: Final = "unlabelled"
FILE: Final = "texts.parquet"


def read_unlabelled(directory: Path) -> list[Fields]:
    read_manifest(directory, kind=KIND)
    table = read_columns(directory / FILE, ["fields"], stage=KIND)
    return [tuple(parts) for parts in table.column("fields").to_pylist()]
