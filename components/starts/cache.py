"""The folder of installed starts: `.headstart/starts` in the project's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from components.errors import ConfigError
from components.settings.registry import find_repository
from components.starts.registry import Start, find_start

#: Environment variable with another folder.
VARIABLE: Final = "HEADSTART_STARTS"


def cache_folder() -> Path:
    """Where starts are installed: the folder that the variable HEADSTART_STARTS names, or `.headstart/starts` in the
    repository of the present folder, or in the present folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return (find_repository(Path()) or Path()) / ".headstart" / "starts"


def installed(start: Start) -> Path | None:
    """The model's folder of an installed start; None: it is not installed."""
    folder = cache_folder() / start.name
    return folder if folder.is_dir() else None


def folder_of(start: str | Path) -> Path:
    """The folder of a start: itself, or that of an installed start.

    Args:
        start: a folder, or the name of a start.

    Raises:
        ConfigError: there is neither a folder nor a start of that name, or the start is not installed.
    """
    if Path(start).exists():
        return Path(start)
    if isinstance(start, Path) or os.sep in str(start):
        raise ConfigError(f"start: {start}: does not exist; name a folder, or a start of `headstart starts`")
    found = find_start(start)
    folder = installed(found)
    if folder is None:
        raise ConfigError(f"start {start!r}: is not installed; run `headstart starts --install {start}`")
    return folder
