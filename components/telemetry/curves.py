"""The measurements of a stage as metrics: earlier attempts are continued, no step occurs twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from components.telemetry.spool import read_lines


class Point(NamedTuple):
    """A value of a metric; `time` in milliseconds since the epoch."""

    key: str
    value: float
    time: int
    step: int


@dataclass
class Position:
    """What of a stage's measurements has been read.

    Attributes:
        offset: bytes of the file.
        steps: metric -> its steps.
        continued: pieces whose measurements of earlier attempts have been read.
    """

    offset: int = 0
    steps: dict[str, list[int]] = field(default_factory=dict)
    continued: list[str] = field(default_factory=list)


def read_points(path: Path, position: Position, *, history: int, ended: bool = False) -> tuple[list[Point], Position]:
    """The points that were added since a position, and the position after them.

    The first `history` bytes belong to earlier attempts. Their points of a piece (a training in the stage) are used if
    the present attempt resumes it, up to the step at which it resumes, or does not repeat it at all.

    Args:
        path: file of measurements.
        position: so far; not changed.
        history: number of bytes.
        ended: whether the stage is completed, so that pieces without new points were completed by an earlier attempt.
    """
    after = Position(max(position.offset, history), position.steps, list(position.continued))
    steps = {key: set(known) for key, known in position.steps.items()}
    earlier = _earlier(path, history) if history else {}
    points: list[Point] = []
    for offset, line in read_lines(path, start=after.offset):
        piece = str(line.get("piece", ""))
        if line.get("begins") and piece not in after.continued:
            after.continued.append(piece)
            points += _new(earlier.get(piece, ()), steps, before=int(line["step"]))
        points += _new([line], steps)
        after.offset = offset
    if ended:
        for piece in earlier.keys() - {*after.continued}:
            after.continued.append(piece)
            points += _new(earlier[piece], steps)
    if points:
        after.steps = {key: sorted(known) for key, known in steps.items()}
    return points, after


def _earlier(path: Path, end: int) -> dict[str, list[dict[str, Any]]]:
    """Piece -> lines of earlier attempts; a later attempt replaces the steps from its beginning on."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _, line in read_lines(path, end=end):
        lines = found.setdefault(str(line.get("piece", "")), [])
        if line.get("begins"):
            lines[:] = [one for one in lines if one["step"] < line["step"]]
        lines.append(line)
    return found


def _new(lines: Iterable[dict[str, Any]], steps: dict[str, set[int]], *, before: int | None = None) -> Iterator[Point]:
    """The points of lines at steps that are not known yet; `steps` is updated."""
    for line in lines:
        step = int(line["step"])
        if before is not None and step >= before:
            continue
        for name, value in line["values"].items():
            key = f"{name}/{line['piece']}" if line.get("piece") else name
            if step not in steps.setdefault(key, set()):
                steps[key].add(step)
                yield Point(key, float(value), int(line["time"]), step)
