"""Lines in a log, a moving bar on a terminal."""

from __future__ import annotations

import io

import pytest

from components import progress
from components.progress import Progress


def test_log_lines_tell_share_amount_numbers_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    log = io.StringIO()
    with Progress("pretrain ulmfit", total=4000, unit="tok", stream=log) as bar:
        bar.advance(1000, loss=3.25)
        bar.advance(3000)
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue()
    assert any(line.startswith("pretrain ulmfit   25%  1.00k/4.00k tok") and "loss=3.25" in line for line in lines)
    assert lines[-1].startswith("pretrain ulmfit  100%  4.00k/4.00k tok") and lines[-1].endswith("left")


def test_a_resumed_step_starts_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    log = io.StringIO()
    with Progress("adapt", total=100, unit="tok", done=50, stream=log) as bar:
        bar.advance(25)
    assert " 50%  50.0/100 tok" in log.getvalue().splitlines()[0]
    assert " 75%  75.0/100 tok" in log.getvalue().splitlines()[-1]


def test_more_than_the_total_is_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    log = io.StringIO()
    with Progress("ingest", total=10.0, unit="MB", stream=log) as bar:
        for _ in range(4):
            bar.advance(2.6)
    assert log.getvalue().splitlines()[-1].startswith("ingest  100%  10.0/10.0 MB")
    assert "-00:00" not in log.getvalue()
