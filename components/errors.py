"""Errors that a user can act on.

Everything a user can cause is a `HeadstartError`: the command line prints its message alone, without a
traceback, and ends with exit code 2. Anything else that escapes is a defect of Headstart and keeps its traceback.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

#: Environment variable with the path of a file: a command that ends with an error writes its message there instead of
#: to standard error, so that the process that started the command need not parse its output.
ERROR_FILE = "HEADSTART_ERROR_FILE"


class HeadstartError(Exception):
    """A problem with one clear message: where it is (file and line, or key), what is wrong, what to do."""


class ConfigError(HeadstartError):
    """params.yaml (or a flag) is wrong; lists every problem found, by key."""


class DataError(HeadstartError):
    """An input file is missing, damaged or does not hold what it should."""


class ArtifactError(HeadstartError):
    """A stage's output is incomplete, altered, or does not fit the one it is combined with."""


class TrainingError(HeadstartError):
    """Training cannot go on: a loss that is not finite, no space for a checkpoint, too few workers."""


class RegistryError(HeadstartError):
    """The model registry cannot be reached or does not hold what was asked for."""


class StorageError(HeadstartError):
    """The object store cannot be reached, or refuses."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known) or 'none'}"


def report(error: HeadstartError) -> None:
    """Write the message to the file that `ERROR_FILE` names or, without one, to standard error as `error: ...`."""
    try:
        Path(os.environ[ERROR_FILE]).write_text(str(error), encoding="utf-8", errors="replace")
    except (KeyError, OSError):
        print(f"error: {error}", file=sys.stderr)
