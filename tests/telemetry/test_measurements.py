"""Measurements as lines of a file, thinned, each read once."""

import json
from pathlib import Path

import pytest

from components.core.measurements import FILE, Curve, Lines, points_of


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stage.jsonl"
    monkeypatch.setenv(FILE, json.dumps({"path": str(path), "stage": "adapt"}))
    return path


def losses(path: Path, *, key: str = "loss") -> list[tuple[int, float]]:
    points = [point for line in Lines(path).read() for point in points_of(line)]
    return [(point.step, point.value) for point in points if point.key == key]


@pytest.mark.parametrize("path", ["", "missing/stage.jsonl"])
def test_measurements_that_cannot_be_written_are_dropped(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FILE, path and json.dumps({"path": path}))
    Curve(total=10).step(1, tokens=1, seconds=1, loss=1.0)
    assert list(tmp_path.iterdir()) == []


def test_steps_are_thinned_but_the_first_and_the_last_are_kept(file):
    curve = Curve(total=1001, points=10)
    for step in range(1, 1002):
        curve.step(step, tokens=64 * step, seconds=step / 8, loss=float(step), rate=None)
    assert [step for step, _ in losses(file)] == [1, 102, 203, 304, 405, 506, 607, 708, 809, 910, 1001]
    speeds = losses(file, key="tokens_per_second")
    assert set(speeds) == {(step, 512.0) for step in [*range(102, 1002, 101), 1001]}
    assert losses(file, key="rate") == []


def test_points_are_read_once(file):
    lines = Lines(file)
    assert [*lines.read()] == []
    Curve("a", total=3).add(1, loss=1.0)
    (line,) = lines.read()
    assert line.pop("time") > 0
    assert line == {"stage": "adapt", "piece": "a", "step": 1, "values": {"loss": 1.0}}
    # Of a line that is being written nothing is read yet; a damaged one is left out.
    with file.open("a") as half:
        half.write('{"piece": "", "st\n{"piece": "", "step": 2')
    assert [*lines.read()] == []
    with file.open("a") as rest:
        rest.write("}\n")
    assert [*lines.read()] == [{"piece": "", "step": 2}]
