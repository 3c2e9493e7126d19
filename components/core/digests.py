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
    now, files = time.time_ns(), [(str(path.resolve()), _state(path)) for path in paths]
    with closing(_cache()) as database:
        rows = (database.execute("SELECT digest FROM digests WHERE path = ? AND state = ?", each) for each in files)
        kept = [row[0] if (row := rows_of.fetchone()) else "" for rows_of in rows]
        pending = [number for number, digest in enumerate(kept) if not digest]
        with ThreadPoolExecutor(cores()) as pool:
            for number, digest in zip(pending, pool.map(lambda each: digest_file(paths[each]), pending), strict=True):
                kept[number] = digest
        settled = [each for each in pending if paths[each].stat().st_mtime_ns < now - SETTLED_NS]
        new = [(*files[each], kept[each]) for each in settled if _state(paths[each]) == files[each][1]]
        with suppress(sqlite3.Error), database:
            database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", new)
    return kept


def _state(path: Path) -> str:
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns} {state.st_dev} {state.st_ino}"


def _cache() -> sqlite3.Connection:
    """The database; one in memory if it cannot be used, as it only saves time."""
    try:
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(CACHE, timeout=5)
        database.execute(_TABLE)
    except (sqlite3.Error, OSError):
        database = sqlite3.connect(":memory:")
        database.execute(_TABLE)
    return database
