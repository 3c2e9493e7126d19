"""Progress: lines in a log, an updated line on a terminal; speed and time left are estimated over the last seconds."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from components import progress
from components.progress import Progress, Rate


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """wait(seconds) moves the clock; every update is a line."""
    now = [1000.0]
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_lines_show_share_amount_speed_time_left_and_numbers(wait: Callable[[float], None]) -> None:
    log = io.StringIO()
    with Progress("pretrain ulmfit", total=400_000, unit="tok", stream=log) as bar:
        wait(60)  # start-up
        bar.advance(100_000, loss=3.25)
        wait(2)
        bar.advance(100_000)
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue()
    assert lines[0] == "pretrain ulmfit    0%  0/400 k tok"
    assert lines[1] == "pretrain ulmfit   25%  100/400 k tok, loss=3.25", "no estimate from one point"
    assert lines[2] == "pretrain ulmfit   50%  200/400 k tok  50 k tok/s  00:04 left, loss=3.25"


def test_the_speed_is_that_of_the_last_seconds(wait: Callable[[float], None]) -> None:
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


def test_rare_updates_have_a_speed_that_decreases_while_nothing_is_done(wait: Callable[[float], None]) -> None:
    log = io.StringIO()
    with Progress("finetune", total=4, unit="run", stream=log) as bar:
        for seconds in (50, 60, 60):
            wait(seconds)
            bar.advance(1)
    assert log.getvalue().splitlines()[-1] == "finetune   75%  3/4 run  60 s/run  01:00 left"
    assert bar._rate.per_second == pytest.approx(1 / 60)
    wait(60)
    assert bar._rate.per_second == pytest.approx(1 / 120)


def test_a_resumed_step_counts_done_units_as_progress_not_as_speed(wait: Callable[[float], None]) -> None:
    log = io.StringIO()
    with Progress("adapt", total=100, unit="tok", done=50, stream=log) as bar:
        for _ in range(2):
            wait(5)
            bar.advance(10)
    lines = log.getvalue().splitlines()
    assert lines[0] == "adapt   50%  50/100 tok"
    assert lines[-1] == "adapt   70%  70/100 tok  2 tok/s  00:15 left"


@pytest.mark.parametrize(
    ("label", "total", "unit", "steps", "numbers", "expected"),
    [
        ("ingest", 0.0005, "MB", [(0, 0.0002), (2, 0.0002)], {}, "ingest   80%  0.40/0.50 kB  10 s/kB  00:01 left"),
        ("ingest", 10.0, "MB", [(1, 2.6)] * 4, {}, "ingest  100%  10/10 MB  2.47 MB/s  00:00 left"),
        ("label", None, "row", [(1, 5)] * 3, {}, "label  15 row  5 row/s"),
        ("a", 60, "s", [(10, 10)] * 2, {"tok/s": "2,000"}, "a   33%  20/60 s  00:40 left, tok/s=2,000"),
    ],
)
def test_the_last_line(
    label: str,
    total: float | None,
    unit: str,
    steps: list[tuple[float, float]],
    numbers: dict[str, str],
    expected: str,
    wait: Callable[[float], None],
) -> None:
    """Small amounts in kilobytes, more than the total, no total, and seconds, which have no speed."""
    log = io.StringIO()
    with Progress(label, total=total, unit=unit, stream=log) as bar:
        for seconds, amount in steps:
            wait(seconds)
            bar.advance(amount, **numbers)
    assert log.getvalue().splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("total", "unit", "expected"),
    [
        (12.5, "MB", "0.0/12.5 MB"),
        (2500.0, "MB", "0.00/2.50 GB"),
        (9999, "doc", "0/9,999 doc"),
        (2_500_000, "tok", "0.00/2.50 M tok"),
        (0, "doc", "0/0 doc"),
    ],
)
def test_units_suit_the_total(total: float, unit: str, expected: str, wait: Callable[[float], None]) -> None:
    log = io.StringIO()
    with Progress("step", total=total, unit=unit, stream=log):
        pass
    assert log.getvalue().splitlines()[0] == f"step  {100 if not total else 0:3.0f}%  {expected}"


def test_a_notebook_updates_the_line_in_place(wait: Callable[[float], None]) -> None:
    class OutStream(io.StringIO):
        """As the standard error of a notebook's kernel."""

    OutStream.__module__ = "ipykernel.iostream"
    output = OutStream()
    with Progress("baseline", total=2, unit="run", stream=output) as bar:
        bar.advance(2)
    assert output.getvalue().startswith("\rbaseline") and output.getvalue().count("\n") == 1
