"""The remaining time of a run in words."""

from __future__ import annotations

import pytest

from components.pipeline.costs.remaining import Remaining


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({}, ""),
        ({"a": 30.0}, "1 stage left, about 30 s"),
        ({"a": 30.0, "b": 200.0}, "2 stages left, about 4 min"),
        ({"a": 30.0, "b": None}, "2 stages left, about 30 s and 1 of unknown time"),
        ({"a": None, "b": None}, "2 stages left, time unknown"),
    ],
)
def test_words(seconds: dict[str, float | None], words: str) -> None:
    assert str(Remaining(seconds)) == words


def test_ended_and_running_stages() -> None:
    whole = Remaining({"a": 30.0, "b": 50.0, "c": None})
    assert whole.without("a").seconds == {"b": 50.0, "c": None}
    assert whole.after({"a": 40.0, "b": 20.0, "c": 5.0}).seconds == {"a": 0.0, "b": 30.0, "c": None}
