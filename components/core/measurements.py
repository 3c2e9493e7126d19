"""Measurements of a running stage for monitoring: loss, learning rate, speed, dev scores.

A stage appends them as JSON lines to the file that the environment variable FILE names; without it nothing is written.
The flow reads the file while the stage runs (`Points`). Results do not depend on this module, so an edit of it repeats
no stage, and a measurement that cannot be written is dropped.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

#: Environment variable with the path of the file.
FILE = "HEADSTART_MEASUREMENTS"
#: Environment variable with the id of the retraining, which is the id of its Prefect flow run.
RUN_ID = "HEADSTART_RUN_ID"
#: Number of points of a curve. A stage has one curve per quantity and training.
POINTS = 200


def run_id() -> str:
    """The id of the retraining that this process is a part of; empty outside of one."""
    return os.environ.get(RUN_ID, "")


class Curve:
    """The measurements of one training, thinned to about `points` steps.

    Args:
        piece: name of the training, if a stage has several, such as `20 labels seed 1`.
        points: number of steps of which measurements are written.
    """

    def __init__(self, piece: str = "", *, total: int = 1, points: int = POINTS) -> None:
        self._path = os.environ.get(FILE, "")
        self._piece = piece
        self._total = total
        self._stride = total / points
        self._begun = False
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
        point = {"piece": self._piece, "step": step, "time": int(1000 * time.time()), "values": numbers}
        if not self._begun:
            # A training that resumes begins after its first step; its curve continues the one of the earlier attempt.
            point["begins"] = self._begun = True
        # One write of a whole line: several processes append to the same file.
        with suppress(OSError), Path(self._path).open("ab", buffering=0) as file:
            file.write(json.dumps(point).encode() + b"\n")


class Point(NamedTuple):
    """A value of a metric; `time` in milliseconds since the epoch."""

    key: str
    value: float
    time: int
    step: int


class Points:
    """The new measurements in a stage's file; no step of a curve occurs twice.

    What the file holds at the beginning belongs to earlier attempts of the stage. Their measurements of a piece (a
    training in the stage) are used if the present attempt resumes it, up to the step at which it resumes, or does not
    repeat it at all.

    Args:
        history: size of the file in bytes when the present attempt began.
    """

    def __init__(self, path: Path, *, history: int = 0) -> None:
        self.path, self._offset = path, 0
        self._seen: set[tuple[str, int]] = set()
        self._earlier: dict[str, list[dict[str, Any]]] = {}
        for line in self._lines(history):
            piece = self._earlier.setdefault(line["piece"], [])
            if line.get("begins"):  # an attempt replaces the steps of the one before it
                piece[:] = [other for other in piece if other["step"] < line["step"]]
            piece.append(line)

    def read(self, *, ended: bool = False) -> list[Point]:
        """The points since the last call; `ended`: the stage is complete, so that a piece without new points was
        completed by an earlier attempt."""
        points: list[Point] = []
        for line in self._lines():
            if line.get("begins"):
                earlier = self._earlier.pop(line["piece"], [])
                points += self._new(other for other in earlier if other["step"] < line["step"])
            points += self._new([line])
        if ended:
            points += self._new(line for lines in self._earlier.values() for line in lines)
        return points

    def _lines(self, end: int | None = None) -> Iterator[dict[str, Any]]:
        """The complete lines up to a position; a killed process may have left damaged ones, which are left out."""
        data = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read() if end is None else file.read(end - self._offset)
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._offset += len(line)
            with suppress(ValueError):
                content = json.loads(line)
                if isinstance(content, dict):
                    yield content

    def _new(self, lines: Iterable[dict[str, Any]]) -> Iterator[Point]:
        for line in lines:
            for name, value in line["values"].items():
                key = f"{name}/{line['piece']}" if line["piece"] else name
                if (key, line["step"]) not in self._seen:
                    self._seen.add((key, line["step"]))
                    yield Point(key, float(value), line["time"], line["step"])
