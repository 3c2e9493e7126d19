"""SHA-256 digests of files that are read again only if they have changed.

A digest is kept with the size, the time of change and the inode of its file in `.headstart/digests.db`. A file that
changed within the last seconds before it was read is not kept: a later change could have the same time.
"""

import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from components.core.artifacts import digest_file
from components.core.errors import DataError
from components.core.processors import cores

CACHE: Final = Path(".headstart/digests.db")
#: Nanoseconds between the change of a file and its reading from which a digest is kept.
SETTLED_NS: Final = 2 * 10**9
_TABLE = "CREATE TABLE IF NOT EXISTS digests (path TEXT PRIMARY KEY, state TEXT, digest TEXT) WITHOUT ROWID"


def kept_digests(paths: Sequence[Path]) -> list[str]:
    """The digests of files, in their order; changed files are read by one thread per core.

    Raises:
        DataError: a file cannot be read.
    """
    try:
        return _digests(paths)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _digests(paths: Sequence[Path]) -> list[str]:
    places = [str(path.resolve()) for path in paths]
    states = [_state(path) for path in paths]
    kept = _kept(places)
    pending = [number for number, place in enumerate(places) if kept.get(place, ("",))[0] != states[number]]
    now = time.time_ns()
    with ThreadPoolExecutor(cores()) as pool:
        digests = list(pool.map(lambda number: digest_file(paths[number]), pending))
    read = dict(zip(pending, digests, strict=True))
    new = [
        (places[number], states[number], digest)
        for number, digest in read.items()
        if paths[number].stat().st_mtime_ns < now - SETTLED_NS and _state(paths[number]) == states[number]
    ]
    if new:
        # The cache only saves time.
        with suppress(sqlite3.Error, OSError):
            CACHE.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(CACHE, timeout=5)) as database, database:
                database.execute(_TABLE)
                database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", new)
    return [read[number] if number in read else kept[place][1] for number, place in enumerate(places)]


def _state(path: Path) -> str:
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns} {state.st_dev} {state.st_ino}"


def _kept(places: Sequence[str]) -> dict[str, tuple[str, str]]:
    """path -> (state, digest)."""
    result = {}
    with suppress(sqlite3.Error):
        if CACHE.is_file():
            with closing(sqlite3.connect(CACHE, timeout=5)) as database:
                for place in places:
                    row = database.execute("SELECT state, digest FROM digests WHERE path = ?", (place,)).fetchone()
                    if row is not None:
                        result[place] = row
    return result
