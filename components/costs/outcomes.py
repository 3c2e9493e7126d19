"""Scores of earlier runs in this repository, and the amounts of text behind them: `.headstart/outcomes.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.artifacts import read_json, write_atomic
from components.costs.history import now
from components.data_checks import STATISTICS
from components.settings.names import BASELINE
from components.settings.params import Params

FILE = Path(".headstart/outcomes.jsonl")
#: Maximum number of outcomes.
KEPT = 500


@dataclass(frozen=True)
class Outcome:
    """The score of a task after a run, and the amounts of data that it came from.

    Attributes:
        task: its name.
        time: ISO 8601, UTC.
        system: the best system without baselines.
        test: digest of the test rows; scores on other rows are not comparable.
        score: mean over seeds of the primary metric, at the largest budget.
        error: standard error of the score.
        domain: documents of the domain.
    """

    task: str
    time: str
    system: str
    test: str
    score: float
    error: float
    domain: int


def read_outcomes(root: Path) -> list[Outcome]:
    """The outcomes of earlier runs, the oldest first."""
    found = []
    with suppress(OSError):
        for line in (root / FILE).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError):
                found.append(Outcome(**json.loads(line)))
    return found


def record_outcomes(params: Params, *, root: Path) -> None:
    """Record the scores of a run, unless the last ones are the same.

    Args:
        params: the settings.
        root: of the repository.
    """
    out = root / params.run.out
    known = read_outcomes(root)
    statistics = read_json(out / "checks" / STATISTICS, made_by="the stage checks", missing_ok=True)
    new = []
    for task in params.run.tasks:
        found = read_json(out / "evaluation" / task / "evaluation.json", made_by="evaluate", missing_ok=True)
        best = best_system(found) if found else None
        if best and "domain" in statistics:
            score = best["budgets"][-1]["scores"][found["main"]]
            one = Outcome(
                task,
                now(),
                best["system"],
                found["digests"].get("test", ""),
                score["mean"],
                standard_error(score),
                statistics["domain"]["rows"],
            )
            last = next((old for old in reversed(known) if old.task == task), None)
            if last is None or asdict(last) | {"time": ""} != asdict(one) | {"time": ""}:
                new.append(one)
    if new:
        lines = [json.dumps(asdict(one)) + "\n" for one in [*known, *new][-KEPT:]]
        (root / FILE).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(root / FILE, "".join(lines))


def best_system(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The system without baselines that has the highest score at the largest budget."""
    metric = found["main"]
    systems = [one for one in found["systems"] if one.get("family") != BASELINE and one["budgets"]]
    return max(systems, key=lambda one: float(one["budgets"][-1]["scores"][metric]["mean"]), default=None)


def standard_error(score: Mapping[str, float]) -> float:
    """Standard error of a score from its 95% interval."""
    return abs(score["high"] - score["low"]) / (2 * 1.96)
