"""Measurements of a running stage for monitoring: loss, learning rate, speed, dev scores.

A stage appends them as JSON lines to the file of the retraining, which the environment variable FILE names; without it
nothing is written. A process beside the retraining reads them (`components.pipeline.telemetry`). Results do not depend
on this module, so an edit of it repeats no stage, and a measurement that cannot be written is dropped.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

#: Environment variable with a JSON object: `path` of the file, and what every line of this process has, such as the
#: name of the stage.
FILE = "HEADSTART_MEASUREMENTS"
#: Environment variable with the id of the retraining, which is the id of its Prefect flow run.
RUN_ID = "HEADSTART_RUN_ID"
#: Number of points of a curve. A stage has one curve per quantity and training.
POINTS = 200


def run_id() -> str:
    """The id of the retraining that this process is a part of; empty outside of one."""
    return os.environ.get(RUN_ID, "")


def append(path: Path, **line: Any) -> None:
    """Append a JSON object to a file, to which several processes append."""
    with suppress(OSError), path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


class Curve:
    """The measurements of one training, thinned to about `points` steps.

    Args:
        piece: name of the training, if a stage has several, such as `20 labels seed 1`.
        points: number of steps of which measurements are written.
    """

    def __init__(self, piece: str = "", *, total: int = 1, points: int = POINTS) -> None:
        self._of: dict[str, str] = json.loads(os.environ.get(FILE) or "{}")
        self._path = self._of.pop("path", "")
        self._piece = piece
        self._total = total
        self._stride = total / points
        self._last: tuple[int, float, float] | None = None

    def step(self, step: int, *, tokens: float, seconds: float, **values: float | None) -> None:
        """Write the measurements after a step, unless a point near it has been written.

        Args:
            step: number of steps so far, this one included.
            tokens: number of input tokens so far.
            seconds: training time so far, from which the speed since the previous point is computed.
            values: quantity -> value; None is left out.
        """
        if not self._path:
            return
        if self._last is not None:
            last, before_tokens, before_seconds = self._last
            if step <= last or (step < last + self._stride and step < self._total):
                return
            if seconds > before_seconds:
                values["tokens_per_second"] = (tokens - before_tokens) / (seconds - before_seconds)
        self._last = (step, tokens, seconds)
        self.add(step, **values)

    def add(self, step: int, **values: float | None) -> None:
        """Write measurements."""
        if not self._path:
            return
        numbers = {
            name: float(value) for name, value in values.items() if value is not None and math.isfinite(float(value))
        }
        append(
            Path(self._path),
            **self._of,
            piece=self._piece,
            step=step,
            time=int(1000 * time.time()),
            values=numbers,
        )


class Point(NamedTuple):
    """A value of a metric; `time` in milliseconds since the epoch."""

    key: str
    value: float
    time: int
    step: int


def points_of(line: Mapping[str, Any]) -> Iterator[Point]:
    """The measurements of a line; a key is `QUANTITY` or `QUANTITY/PIECE`."""
    for name, value in line["values"].items():
        yield Point(f"{name}/{line['piece']}" if line["piece"] else name, float(value), line["time"], line["step"])


class Lines:
    """The lines of a file that other processes append to."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset = path, 0

    def read(self) -> Iterator[dict[str, Any]]:
        """The complete lines since the last call; a killed process may have left damaged ones, which are left out."""
        data = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._offset += len(line)
            with suppress(ValueError):
                content = json.loads(line)
                if isinstance(content, dict):
                    yield content
