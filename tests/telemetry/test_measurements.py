"""Measurements as points: thinned, continued after an interruption, no step twice."""

from pathlib import Path

import pytest

from components.core.measurements import FILE, Curve, Points


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stage.jsonl"
    monkeypatch.setenv(FILE, str(path))
    return path


def losses(path: Path, *, history: int = 0, ended: bool = False, key: str = "loss") -> list[tuple[int, float]]:
    points = Points(path, history=history).read(ended=ended)
    return [(point.step, point.value) for point in points if point.key == key]


@pytest.mark.parametrize("path", ["", "missing/stage.jsonl"])
def test_measurements_that_cannot_be_written_are_dropped(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FILE, path)
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
    points = Points(file)
    assert points.read() == []
    Curve(total=3).add(1, loss=1.0)
    assert [point.step for point in points.read()] == [1]
    # Of a line that is being written nothing is read yet.
    with file.open("a") as half:
        half.write('{"piece": "", "step": 2')
    assert points.read() == []
    with file.open("a") as rest:
        rest.write(', "time": 0, "values": {"loss": 0.5}}\n')
    assert [(point.step, point.value) for point in points.read()] == [(2, 0.5)]


def test_a_resumed_training_continues_its_curve(file):
    first = Curve(total=8, points=8)
    for step in range(1, 6):
        first.step(step, tokens=step, seconds=step, loss=10.0 - step)
    history = file.stat().st_size
    # Killed at step 5; its checkpoint is of step 3.
    second = Curve(total=8, points=8)
    for step in range(4, 9):
        second.step(step, tokens=step, seconds=step, loss=10.0 - step)
    assert losses(file, history=history) == [(step, 10.0 - step) for step in range(1, 9)]


def test_a_training_that_starts_anew_has_a_curve_of_its_own(file):
    Curve(total=8).add(5, loss=5.0)
    history = file.stat().st_size
    Curve(total=8).add(1, loss=1.0)
    assert losses(file, history=history) == [(1, 1.0)]


def test_pieces_that_an_earlier_attempt_completed_belong_to_the_stage(file):
    Curve("a").add(9, dev=0.5)
    Curve("b").add(4, dev=0.1)
    history = file.stat().st_size
    Curve("b").add(1, dev=0.2)
    assert losses(file, history=history, key="dev/a") == []
    assert losses(file, history=history, key="dev/a", ended=True) == [(9, 0.5)]
    assert losses(file, history=history, key="dev/b", ended=True) == [(1, 0.2)]
