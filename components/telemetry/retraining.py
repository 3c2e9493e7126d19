"""The spool of a retraining as its state: stages, their ends, the end of the whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from components.errors import ConfigError
from components.masking import MASK, masked_values
from components.settings.loading import load_params
from components.settings.section import Section
from components.telemetry.spool import EVENTS, FOLDER, now_ms, read_lines

Settings = TypeVar("Settings", bound=Section)

KILLED = "the process of the retraining ended without a result: it was killed, or the machine stopped"
#: Start times of processes are rounded; difference in seconds at which they are those of two processes.
START_PRECISION_S = 1.0


@dataclass
class Stage:
    """A stage of the retraining: its first start, its last end."""

    name: str
    start: int
    reasons: list[str]
    file: str
    history: int
    attempts: int = 1
    end: dict[str, Any] | None = None


class Retraining:
    """The state of a retraining, read from its spool.

    Args:
        folder: of the spool.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: dict[str, Any] = {}
        self.stages: dict[str, Stage] = {}
        self.files: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self._offset = 0

    def read(self) -> None:
        """Read new events."""
        for offset, event in read_lines(self.folder / EVENTS, start=self._offset):
            self._offset = offset
            match event["event"]:
                case "run":
                    self.run = event
                case "stage":
                    self._begin(event)
                case "done" if event["stage"] in self.stages:
                    self.stages[event["stage"]].end = event
                case "file":
                    self.files.append(event)
                case "end":
                    self.end = event

    def settings(self, section: str, kind: type[Settings]) -> Settings:
        """A section of the retraining's settings. The spool holds no password; one that belongs to an address is taken
        from the settings file.

        Raises:
            ConfigError: the settings file has another address by now.
        """
        recorded = self.run[section]
        if MASK not in json.dumps(recorded):
            return kind(**recorded)
        file = self.folder.parents[len(FOLDER.parts) + 1] / self.run["tags"]["params"]
        present = getattr(load_params(file), section)
        if not isinstance(present, kind) or masked_values(present.model_dump(mode="json")) != recorded:
            raise ConfigError(f"{file}: the section {section} is no longer that of the retraining {self.folder.name}")
        return present

    def _begin(self, event: Mapping[str, Any]) -> None:
        known = self.stages.get(event["stage"])
        if known is None:
            self.stages[event["stage"]] = Stage(
                event["stage"], event["time"], event["reasons"], event["file"], event["history"]
            )
        else:
            known.attempts += 1
            known.end = None

    @property
    def is_killed(self) -> bool:
        """Whether the process of the retraining has ended without recording the end."""
        if not self.run or self.end is not None:
            return False
        try:
            process = psutil.Process(self.run["pid"])
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            return not alive or abs(process.create_time() - self.run["created"]) > START_PRECISION_S
        except psutil.NoSuchProcess:
            return True

    def interrupt(self) -> None:
        """Treat the retraining as killed, at the time of the last sign of life."""
        files = [self.folder / EVENTS, *(self.folder / stage.file for stage in self.stages.values())]
        moment = max((int(1000 * file.stat().st_mtime) for file in files if file.is_file()), default=now_ms())
        self.end = {"event": "end", "time": moment, "status": "KILLED", "reason": KILLED}
        for stage in self.stages.values():
            if stage.end is None:
                stage.end = {"event": "done", "time": moment, "outcome": "Interrupted", "error": KILLED}
