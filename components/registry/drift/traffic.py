"""The log of served rows: append-only segment files, several writers, bounded size.

FOLDER/TASK/DIGEST/START-PID-RANDOM.rows: lines of JSON, {schema, kind, labels, version}, then a line per batch: {rows:
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

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
        self,
        folder: Path,
        *,
        task: str,
        digest: str,
        version: str = "",
        megabytes: float,
        text: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self._task_folder = Path(folder) / task
        self._folder = self._task_folder / digest[:DIGEST_LENGTH]
        self._version, self._text, self._say = version, text, say
        self._bound = int(megabytes * 1e6)
        self._lock = threading.Lock()
        self._rows: IO[bytes] | None = None
        self._written = 0
        self._silent_until = 0.0
        self._warned = False

    def append(self, inputs: Sequence[Fields], measured: Measured) -> None:
        """Append the rows of a batch. After an error the log pauses; it is reported once."""
        with self._lock:
            if time.monotonic() < self._silent_until:
                return
            try:
                self._append(inputs, measured)
            except OSError as error:
                self._close()
                self._silent_until = time.monotonic() + PAUSE_S
                if not self._warned:
                    self._say(f"warning: {self._folder}: the traffic log cannot be written ({error.strerror or error})")
                    self._warned = True

    def close(self) -> None:
        """End the current segment."""
        with self._lock:
            self._close()

    def _append(self, inputs: Sequence[Fields], measured: Measured) -> None:
        if self._rows is None or self._written > self._bound // SEGMENTS:
            self._close()
            self._open(measured)
        content: dict[str, Any] = {"rows": packed(measured.rows)}
        self._write(content | ({"texts": ["\n".join(parts) for parts in inputs]} if self._text else {}))

    def _write(self, content: dict[str, Any]) -> None:
        assert self._rows is not None
        # One write per batch and no buffer: what was written survives the end of the process.
        self._written += self._rows.write(json.dumps(content).encode() + b"\n")

    def _open(self, measured: Measured) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        prune(self._task_folder, most=self._bound - self._bound // SEGMENTS)
        path = self._folder / f"{time.time_ns():019d}-{os.getpid()}-{secrets.token_hex(3)}{ROWS_SUFFIX}"
        self._rows, self._written = path.open("ab", buffering=0), 0
        fcntl.flock(self._rows, fcntl.LOCK_EX)
        head = {"schema": LINES, "kind": measured.kind, "labels": measured.labels, "version": self._version}
        self._write(head)

    def _close(self) -> None:
        if self._rows is not None:
            with suppress(OSError):
                self._rows.close()
        self._rows = None


@dataclass(frozen=True)
class Segment:
    """One segment."""

    path: Path
    size: int

    @property
    def written(self) -> bool:
        try:
            with self.path.open("r+b") as file:  # NFS locks no file that is opened for reading only
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def delete(self) -> None:
        """Delete the segment; another process may have done so."""
        for path in (self.path.with_suffix(".text"), self.path):  # earlier versions wrote texts apart
            path.unlink(missing_ok=True)


def segments(folder: Path) -> list[Segment]:
    """The segments below a folder, oldest first."""
    present = []
    for path in sorted(folder.rglob(f"*{ROWS_SUFFIX}"), key=lambda path: path.name):
        with suppress(OSError):
            present.append(Segment(path, path.stat().st_size))
    return present


def prune(folder: Path, *, most: int) -> None:
    """Delete the oldest segments of a task that nobody writes to until their sizes sum to at most `most` bytes."""
    present = segments(folder)
    total = sum(segment.size for segment in present)
    for segment in present:
        if total <= most:
            return
        if not segment.written:
            segment.delete()
            total -= segment.size


def read_traffic(folder: Path, *, task: str, digest: str, since: float = 0.0, most: int | None = None) -> Measured:
    """The logged rows of a model, in the order of their segments.

    Args:
        since: time in seconds since the epoch; older rows are left out.
        most: maximum number of rows, evenly spaced over the time; None: all.
    """
    parts = [part for segment in segments(Path(folder) / task / digest[:DIGEST_LENGTH]) for part in _read(segment.path)]
    if not parts:
        return Measured("", (), np.zeros(0, dtype=ROW))
    rows = np.concatenate([part.rows for part in parts])
    texts = tuple(text for part in parts for text in part.texts) if all(part.texts for part in parts) else ()
    order = np.argsort(rows["time"], kind="stable")
    joined = Measured(parts[-1].kind, parts[-1].labels, rows, texts).take(order[rows["time"][order] >= since])
    return joined if most is None else joined.spread(most)


def _read(path: Path) -> Iterator[Measured]:
    """The batches of a segment, up to a line that is cut or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
        head, *lines = file
        if (facts := json.loads(head))["schema"] == LINES:
            for line in lines:
                content = json.loads(line)
                texts = tuple(content.get("texts", ()))
                yield Measured(facts["kind"], tuple(facts["labels"]), unpacked(content["rows"]), texts)


def logged(
    classifier: Classifier, version: Version, task: str, settings: DriftSettings, folder: Path | None = None
) -> Classifier:
    """The classifier of a version, with a log of its rows; itself if `drift.log` is off or the version was not made by
    Headstart."""
    if not settings.log or not version.digest:
        return classifier
    log = TrafficLog(
        folder or traffic_folder(),
        task=task,
        digest=version.digest,
        version=version.number,
        megabytes=MEGABYTES,
        text=settings.text,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    return ObservedClassifier(classifier, log.append)


def traffic_folder(root: Path | None = None) -> Path:
    """The folder of all logs, which several servers may share."""
    return (root or find_repository(Path()) or Path()) / (os.environ.get("HEADSTART_TRAFFIC") or FOLDER)
