"""Locations and files of installed distributions."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path, PurePosixPath

from components.core.errors import DataError


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise DataError(
            f"built-in data: package {name!r} is not installed; install the packages of requirements.lock"
        ) from error


def locate(name: str) -> Path:
    """The folder that a distribution is installed in (site-packages).

    Raises:
        DataError: the distribution is not installed.
    """
    return Path(str(_distribution(name).locate_file("")))


def python_files(name: str) -> list[PurePosixPath]:
    """The .py files that a distribution installed, relative to `locate(name)`, sorted by their parts.

    Raises:
        DataError: the distribution is not installed or has no list of files.
    """
    files = _distribution(name).files
    if files is None:
        raise DataError(f"built-in data: package {name!r} has no list of its files (RECORD); reinstall it")
    names = {PurePosixPath(str(file)) for file in files if file.suffix == ".py"}
    return sorted((path for path in names if ".." not in path.parts), key=lambda path: path.parts)
