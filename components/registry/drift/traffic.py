"""The log of served rows: append-only segment files, several writers, bounded size.

FOLDER/TASK/DIGEST/START-PID-RANDOM.rows: lines of JSON, {schema, kind, labels}, then a line per batch: {rows:
records of type `ROW` in base64; with `drift.text` also texts}

DIGEST is the first 16 characters of the model's content digest. A writer has segments of its own and locks the one that
it appends to, so writers neither wait for each other nor delete each other's current segment. SIGKILL can cut the last
line of a segment, which readers ignore. Once all segments of a task exceed the bound, the oldest ones are deleted. No
error of the log reaches a prediction.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from components.core.artifacts import try_lock
from components.data.tasks.data import Fields
from components.registry.drift.measurements import ROW, Measured, ObservedClassifier, packed, unpacked
from components.settings.registry import DriftSettings, find_repository

if TYPE_CHECKING:
    from components.learners.prediction import Classifier
    from components.registry.tracking import Version

ROWS_SUFFIX = ".rows"
#: Folder of the logs, relative to the repository. The variable HEADSTART_TRAFFIC takes precedence.
FOLDER: Final = ".headstart/traffic"
#: Maximum size of a task's log; the oldest rows are deleted first.
MEGABYTES: Final = 64.0
#: A bound is divided into so many segments.
SEGMENTS: Final = 16
#: Seconds without attempts after a failed one.
PAUSE_S = 60.0
DIGEST_LENGTH = 16
#: Version of the format of a segment.
LINES: Final = 2


class TrafficLog:
    """Appends the measurements of one model's rows; safe to use from several threads."""

    def __init__(
        self, folder: Path, *, task: str, digest: str, megabytes: float = MEGABYTES, text: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._folder = Path(folder) / task / digest[:DIGEST_LENGTH]
        self._text, self._say, self._bound = text, say, int(megabytes * 1e6)
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._silent_until = 0.0

    def append(self, inputs: Sequence[Fields], measured: Measured) -> None:
        """Append the rows of a batch. After an error the log pauses; it is reported once."""
        content: dict[str, Any] = {"rows": packed(measured.rows)}
        with self._lock:
            if time.monotonic() < self._silent_until:
                return
            try:
                if self._file is None or self._file.tell() > self._bound // SEGMENTS:
                    self._open({"schema": LINES, "kind": measured.kind, "labels": measured.labels})
                self._write(content | ({"texts": ["\n".join(parts) for parts in inputs]} if self._text else {}))
            except OSError as error:
                self._close()
                if not self._silent_until:
                    self._say(f"warning: {self._folder}: the traffic log cannot be written ({error.strerror or error})")
                self._silent_until = time.monotonic() + PAUSE_S

    def close(self) -> None:
        """End the current segment."""
        with self._lock:
            self._close()

    def _open(self, head: dict[str, Any]) -> None:
        self._close()
        self._folder.mkdir(parents=True, exist_ok=True)
        prune(self._folder.parent, most=self._bound - self._bound // SEGMENTS)
        path = self._folder / f"{time.time_ns():019d}-{os.getpid()}-{secrets.token_hex(3)}{ROWS_SUFFIX}"
        # No buffer: what was written survives the end of the process.
        self._file = path.open("ab", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write(head)

    def _write(self, content: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(content).encode() + b"\n")

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = None


def segments(folder: Path) -> list[Path]:
    """The segments below a folder, oldest first."""
    return sorted(folder.rglob(f"*{ROWS_SUFFIX}"), key=lambda path: path.name)


def is_written(path: Path) -> bool:
    """Whether a process writes to a segment."""
    try:
        with path.open("r+b") as file:  # NFS locks no file that is opened for reading only
            return not try_lock(file)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def prune(folder: Path, *, most: int) -> None:
    """Delete the oldest segments of a task that nobody writes to until their sizes sum to at most `most` bytes."""
    sizes: dict[Path, int] = {}
    for path in segments(folder):
        with suppress(OSError):  # another process has deleted it
            sizes[path] = path.stat().st_size
    total = sum(sizes.values())
    for path, size in sizes.items():
        if total > most and not is_written(path):
            delete(path)
            total -= size


def delete(path: Path) -> None:
    """Delete a segment, and the file of texts that earlier versions wrote beside it."""
    for each in (path.with_suffix(".text"), path):
        each.unlink(missing_ok=True)


def read_traffic(folder: Path, *, task: str, digest: str, since: float = 0.0) -> Measured:
    """The logged rows of a model, in the order of time, without those before `since`, in seconds since the epoch."""
    parts = [part for path in segments(Path(folder) / task / digest[:DIGEST_LENGTH]) for part in _read(path)]
    if not parts:
        return Measured("", (), np.zeros(0, dtype=ROW))
    rows = np.concatenate([part.rows for part in parts])
    texts = tuple(text for part in parts for text in part.texts) if all(part.texts for part in parts) else ()
    order = np.argsort(rows["time"], kind="stable")
    return replace(parts[-1], rows=rows, texts=texts).take(order[rows["time"][order] >= since])


def _read(path: Path) -> Iterator[Measured]:
    """The batches of a segment, up to a line that is cut or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
        head, *lines = file
        if (facts := json.loads(head))["schema"] == LINES:
            for line in map(json.loads, lines):
                texts = tuple(line.get("texts", ()))
                yield Measured(facts["kind"], tuple(facts["labels"]), unpacked(line["rows"]), texts)


def logged(
    classifier: Classifier, version: Version, task: str, settings: DriftSettings, folder: Path | None = None
) -> Classifier:
    """The classifier of a version, with a log of its rows; itself if `drift.log` is off or the version was not made by
    Headstart."""
    if not settings.log or not version.digest:
        return classifier
    say = partial(print, file=sys.stderr, flush=True)
    log = TrafficLog(folder or traffic_folder(), task=task, digest=version.digest, text=settings.text, say=say)
    return ObservedClassifier(classifier, log.append)


def traffic_folder() -> Path:
    """The folder of all logs, which several servers may share."""
    return (find_repository(Path()) or Path()) / (os.environ.get("HEADSTART_TRAFFIC") or FOLDER)
