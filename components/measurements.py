"""Measurements of a running stage for monitoring: loss, learning rate, speed, dev scores.

A stage appends them as JSON lines to the file that the environment variable FILE names; without it nothing is written.
`components.telemetry` reads the file while the stage runs. Results do not depend on this module, so an edit of it
repeats no stage, and a measurement that cannot be written is dropped.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path

#: Environment variable with the path of the file.
FILE = "HEADSTART_MEASUREMENTS"
#: Environment variable with the id of the retraining, which is that of its Prefect flow run.
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
        total: total number of steps.
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
            # A training that resumes begins after its first step; its curve continues that of the earlier attempt.
            point["begins"] = self._begun = True
        # One write of a whole line: several processes append to the same file.
        with suppress(OSError), Path(self._path).open("ab", buffering=0) as file:
            file.write(json.dumps(point).encode() + b"\n")
