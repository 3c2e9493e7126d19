from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from components.learners.finetuning import fit, runs
from components.settings import contrastive
from tests.example_task import (  # noqa: F401
    cluster,
    in_process,
    make_encoder,
    make_job,
    make_task,
    make_things_job,
    settings,
    source,
    task,
)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """watch(function of the state and the report of a step) -> its values of every step from now on."""

    def watching(function: Callable[[Any, Any], Any]) -> list[Any]:
        values, real = list[Any](), runs.train

        def watched(state: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
            for report in real(state, *arguments, **named):
                values.append(function(state, report))
                yield report

        monkeypatch.setattr(runs, "train", watched)
        return values

    return watching


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each extraction of features from now on."""
    read: list[int] = []

    class Counted(fit.Predictor):
        def tables(self, encoded, **named):
            read.append(len(encoded))
            return super().tables(encoded, **named)

    monkeypatch.setattr(fit, "Predictor", Counted)
    return read


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contrastive training in small steps at a high rate."""
    monkeypatch.setattr(contrastive, "ROWS", 6)
    monkeypatch.setattr(contrastive, "RATE", 0.01)
