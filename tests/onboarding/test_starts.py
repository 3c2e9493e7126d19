"""Measured speeds of encoders and of the default own language model."""

from __future__ import annotations

import itertools

import pytest

from components.onboarding import starts


def test_the_speed_of_an_own_model_is_measured_in_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(step=0.25)
    monkeypatch.setattr(starts.time, "process_time", lambda: next(ticks))
    monkeypatch.setattr(starts.time, "perf_counter", lambda: pytest.fail("depends on other processes"))
    monkeypatch.setattr(starts.torch, "get_num_threads", lambda: 2)
    # 0.125 s of each core pass from one reading to the next: three products before 0.5 s are used.
    operations = 3 * 2 * 512 * 640 * 2560
    assert starts.own_speed() == pytest.approx(operations / 0.5 / (6 * 6_000_000))
