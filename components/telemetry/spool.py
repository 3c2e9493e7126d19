"""The files of a retraining from which its runs in MLflow are made.

`.headstart/telemetry/runs/ID/` holds `events.jsonl` (what the flow does), one file of measurements per stage, and
`forwarded.json` (what MLflow has received). It is removed when MLflow has received everything.
`.headstart/telemetry/unfinished/` holds the measurements of stages that have not been completed, as hard links: the
next attempt continues their curves.

| event   | keys                                                                                           |
|---------|------------------------------------------------------------------------------------------------|
| run     | id, name, pid, created (of the process), tags, registry and telemetry (sections of settings),  |
|         | expected (stages that are going to run -> seconds by earlier runs, or null)                     |
| stage   | stage, reasons, file, history (bytes of the file that belong to earlier attempts)              |
| done    | stage, outcome (Completed, Cached, Skipped, Failed, Interrupted), error, outputs, metrics       |
| file    | path, folder: a file for the run's artifacts                                                   |
| end     | status (FINISHED, FAILED, KILLED), reason, summary (lines), tags                               |
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from components.artifacts import private, private_folder
from components.masking import masked_values

#: Folder of the spools, relative to the repository.
FOLDER = Path(".headstart") / "telemetry"
EVENTS = "events.jsonl"
UNFINISHED = "unfinished"
RUNS = "runs"


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return int(1000 * time.time())


class Spool:
    """Writer of a retraining's events.

    Args:
        root: of the repository.
        run: id of the retraining.
    """

    def __init__(self, root: Path, run: str) -> None:
        self.folder = root / FOLDER / RUNS / run
        self._unfinished = root / FOLDER / UNFINISHED
        private_folder(root / FOLDER)
        for folder in (self.folder, self._unfinished):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, **facts: Any) -> None:
        """Append an event, without passwords and tokens. A full disk ends no run; the event is dropped."""
        line = json.dumps(masked_values({"event": event, "time": now_ms(), **facts}), default=str)
        with suppress(OSError), open(self.folder / EVENTS, "ab", buffering=0, opener=private) as file:
            file.write(line.encode() + b"\n")

    def begin(
        self,
        name: str,
        *,
        tags: Mapping[str, str],
        registry: Mapping[str, Any],
        telemetry: Mapping[str, Any],
        expected: Mapping[str, float | None],
    ) -> None:
        """Record the start of the retraining by this process."""
        pid = os.getpid()
        self.write(
            "run",
            id=self.folder.name,
            name=name,
            pid=pid,
            created=psutil.Process(pid).create_time(),
            tags=dict(tags),
            registry=dict(registry),
            telemetry=dict(telemetry),
            expected=dict(expected),
        )

    def begin_stage(self, stage: str, *, pipeline: str, identity: str, reasons: list[str]) -> Path:
        """Record the start of a stage.

        Args:
            stage: its name.
            pipeline: name of the settings file, to which unfinished measurements belong.
            identity: digest of the stage's identity: measurements of another one are not continued.
            reasons: why it runs.

        Returns:
            The file for its measurements.
        """
        file = self.folder / f"{_file_name(stage)}.jsonl"
        if not file.exists():
            link = self._link(stage, pipeline, identity)
            with suppress(OSError):
                for other in self._unfinished.glob(f"{_file_name(f'{pipeline} {stage}')}~*"):
                    if other != link:
                        other.unlink()
                if link.exists():
                    shutil.copyfile(link, file)
                    link.unlink()
            file.touch()
            with suppress(OSError):
                os.link(file, link)
        history = file.stat().st_size
        self.write("stage", stage=stage, reasons=reasons, file=file.name, history=history)
        return file

    def end_stage(self, stage: str, *, outcome: str, pipeline: str, identity: str, **facts: Any) -> None:
        """Record the end of a stage."""
        if outcome not in ("Failed", "Interrupted"):
            self._link(stage, pipeline, identity).unlink(missing_ok=True)
        self.write("done", stage=stage, outcome=outcome, **facts)

    def _link(self, stage: str, pipeline: str, identity: str) -> Path:
        return self._unfinished / f"{_file_name(f'{pipeline} {stage}')}~{identity[:16] or 'unknown'}"


def spools(root: Path) -> list[Path]:
    """The folders of all retrainings that MLflow has not received completely, oldest first."""
    folders = [file.parent for file in (root / FOLDER / RUNS).glob(f"*/{EVENTS}")]
    return sorted(folders, key=lambda folder: (folder / EVENTS).stat().st_ctime)


def read_lines(path: Path, *, start: int = 0, end: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The complete JSON lines of a file from a position on: (position after the line, content). Damaged lines, of a
    process that was killed while it wrote, are left out."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read() if end is None else file.read(end - start)
    except OSError:
        return
    position = start
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        position += len(line)
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict):
            yield position, content


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.@-]+", "-", text)
