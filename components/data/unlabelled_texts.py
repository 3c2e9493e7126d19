"""Texts without labels: the output of the stage `unlabelled`, and the identity of a text.

`texts.parquet` has a column `fields` (`components.data.tasks.data.Fields`).
"""

from pathlib import Path
from typing import Final

from components.core.artifacts import read_manifest
from components.data.formats.textkey import digest_of as digest_of
from components.data.tasks.data import Fields
from components.data.tasks.results import read_fields

KIND: Final = "unlabelled"
FILE: Final = "texts.parquet"


def read_unlabelled(directory: Path) -> list[Fields]:
    read_manifest(directory, kind=KIND)
    return read_fields(directory / FILE, stage=KIND)
