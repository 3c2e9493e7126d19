"""Bounds of input before it is unpacked: a small file can hold gigabytes of the same bytes, or a table of 17 billion
cells."""

import os
import zipfile
from pathlib import Path
from typing import Final

from components.core.errors import ConfigError, DataError

#: Environment variable with the largest ratio of unpacked to packed bytes, and its default. Text packs by 3 to 20.
RATIO_KEY: Final = "HEADSTART_UNPACK_RATIO"
RATIO: Final = 100.0
#: Unpacked bytes that are read from a file of any size.
FREE_BYTES: Final = 64 << 20


def largest_ratio() -> float:
    """The largest ratio of unpacked to packed bytes.

    Raises:
        ConfigError: the variable HEADSTART_UNPACK_RATIO is not a positive number.
    """
    given = os.environ.get(RATIO_KEY) or str(RATIO)
    try:
        if (ratio := float(given)) > 0:
            return ratio
    except ValueError:
        pass
    raise ConfigError(f"{RATIO_KEY}: {given!r} is not a positive number")


def largest_unpacked(path: Path) -> float:
    """The number of bytes that a packed file may have unpacked."""
    return max(FREE_BYTES, largest_ratio() * path.stat().st_size)


def too_large(path: Path) -> DataError:
    return DataError(
        f"{path}: holds more than {largest_unpacked(path) / 1e6:,.0f} MB unpacked, and has {path.stat().st_size:,} "
        f"bytes; if that is right, raise {RATIO_KEY} ({largest_ratio():g})"
    )


def check_archive(path: Path) -> None:
    """Check the sizes that a zip archive, such as a workbook, states; other files pass.

    Raises:
        DataError: it is too large unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError):
        return  # its reader says what is wrong
    if unpacked > largest_unpacked(path):
        raise too_large(path)
