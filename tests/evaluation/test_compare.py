"""The kinds of statements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from components.data.scoring.intervals import Interval
from components.data.tasks.kinds import scoring_for
from components.evaluation.compare import Comparison, statements

SCORING = scoring_for("classification", ["no", "yes"])


@pytest.mark.parametrize(
    ("better", "worse", "kind", "holds"),
    [
        ("adapted", "scratch", "transfer", True),
        ("scratch", "adapted", "transfer", False),
        ("vectors", "scratch", "transfer", True),
        ("adapted", "vectors", "transfer", True),
        ("vectors", "pretrained", "transfer", False),
        ("scratch", "scratch-frozen", "tuning", True),
        ("scratch-frozen", "scratch", "tuning", False),
        ("adapted", "adapted-frozen", "tuning", True),
        ("adapted", "pretrained", "adaptation", True),
    ],
)
def test_the_kind_of_a_statement_about_two_starts(better: str, worse: str, kind: str, *, holds: bool) -> None:
    names = [f"bert-{start}" for start in (better, worse)]
    cells: dict[Any, Any] = {
        (name, 5): SimpleNamespace(system=name, scoring=SCORING, seeds=[0], main=Interval(mean, mean - 0.1, mean + 0.1))
        for name, mean in zip(names, (0.6, 0.5), strict=True)
    }
    systems = {name: ("bert", start) for name, start in zip(names, (better, worse), strict=True)}
    (found,) = statements(cells, systems, [Comparison(*names, 5, Interval(0.1, 0.05, 0.15), apart=False)])
    assert (found["kind"], found["holds"]) == (kind, holds)
