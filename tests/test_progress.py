"""Progress: lines in a log, an updated line on a terminal; speed and time left are estimated over the last seconds."""

import io
import re
import time
from collections.abc import Callable

import pytest

from components.core import progress
from components.core.progress import Progress, Rate


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """wait(seconds) moves the clock."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


@pytest.mark.parametrize(
    ("total", "unit", "done", "last"),
    [
        (400_000, "tok", 0, r"x   50%  200k/400k tok  [\d.]+[kM] tok/s  00:0\d left, loss=3.25"),
        (4, "run", 0, r"x   50%  2/4 run  [\d.]+ run/s  00:0\d left, loss=3.25"),
        (100, "tok", 50, r"x   74%  74/100 tok  [\d.]+ tok/s  00:0\d left, loss=3.25"),
        (12.5, "MB", 0, r"x   50%  6.25M/12.5MB  [\d.]+[kM]B/s  00:0\d left, loss=3.25"),
        (60, "s", 0, r"x   50%  30/60 s  00:0\d left, loss=3.25"),
    ],
)
def test_lines_show_share_amount_speed_time_left_and_numbers(total, unit, done, last, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    log = io.StringIO()
    with Progress("x", total=total, unit=unit, done=done, stream=log) as bar:
        for _ in range(2):
            time.sleep(0.02)
            bar.advance((total - done) / 4 if unit == "MB" else (total - done) // 4, loss=3.25)
    assert "\r" not in log.getvalue()
    assert re.fullmatch(last, log.getvalue().splitlines()[-1])


def test_the_speed_is_that_of_the_last_seconds(wait):
    rate = Rate()
    assert rate.per_second is None
    for second in range(100):
        rate.add(1000 * second)
        wait(1)
    assert rate.per_second == pytest.approx(1000, rel=0.1)
    for second in range(20):
        rate.add(99_000 + 10 * second)
        wait(1)
    assert rate.per_second == pytest.approx(10, rel=0.1)


def test_a_notebook_updates_the_line_in_place():
    class OutStream(io.StringIO):
        """As the standard error of a notebook's kernel."""

    OutStream.__module__ = "ipykernel.iostream"
    output = OutStream()
    with Progress("baseline", total=2, unit="run", stream=output) as bar:
        bar.advance(2)
    assert output.getvalue().startswith("\rbaseline") and output.getvalue().count("\n") == 1
