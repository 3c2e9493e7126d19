"""The models that are stored and may be registered: of each system the average over the seeds of its largest label
budget. Their scores have no variance of training, because each is one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.data.scoring import Scoring, title
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import strata_of
from components.data.tasks.results import Average
from components.evaluation.aggregates import Cell, make_cells
from components.evaluation.results import Run, TestSplit
from components.settings.evaluate import EvaluateSettings
from components.settings.names import BASELINE


@dataclass(frozen=True)
class Artifact:
    """The stored model of a system. `labels`: number of labelled rows that any of the seeds has learned from."""

    cell: Cell
    seeds: Sequence[int]
    labels: int
    selection: float
    is_baseline: bool

    def as_dict(self) -> dict[str, Any]:
        """The artifact as in evaluation.json."""
        return {
            "budget": self.cell.budget,
            "seeds": list(self.seeds),
            "labels": self.labels,
            "selection": self.selection,
            "scores": {name: interval.as_dict() for name, interval in self.cell.intervals.items()},
        }


def artifacts_of(
    averages: Mapping[str, Average],
    cells: Mapping[tuple[str, int], Cell],
    test: TestSplit,
    train: Split,
    settings: EvaluateSettings,
    *,
    scoring: Scoring,
) -> dict[str, Artifact]:
    """System -> its stored model. `averages`: system -> what the stored model answers to the test rows."""
    strata = strata_of(train, test.facts.kind)
    runs, labels = [], {}
    for system, average in averages.items():
        samples = [sample_rows(strata, average.budget, seed=seed)[0] for seed in average.seeds]
        labels[system] = len(np.unique(np.concatenate(samples)))
        first = cells[system, average.budget].runs[0]
        runs.append(Run(system, first.family, first.start, average.budget, 0, first.record, average.answers))
    made = make_cells(runs, test, settings, scoring=scoring)
    return {
        system: Artifact(
            made[system, average.budget],
            average.seeds,
            labels[system],
            cells[system, average.budget].selection,
            made[system, average.budget].runs[0].family == BASELINE,
        )
        for system, average in averages.items()
    }


def against_baseline(artifacts: Mapping[str, Artifact], *, confidence: float) -> dict[str, Any] | None:
    """The model with the best score of selection against the baseline with the best score on test, which is what the
    promotion compares without a champion; None without such a pair. Returns {system, against, gain: {mean, low, high},
    text}."""
    learned = [name for name, artifact in artifacts.items() if not artifact.is_baseline]
    fixed = [name for name, artifact in artifacts.items() if artifact.is_baseline]
    if not learned or not fixed:
        return None
    best = max(learned, key=lambda name: artifacts[name].selection)
    rival = max(fixed, key=lambda name: artifacts[name].cell.main.mean)
    ours, theirs = artifacts[best].cell, artifacts[rival].cell
    gain = ours.difference(theirs, confidence=confidence)
    verdict = "better" if gain.low > 0 else "worse" if gain.high <= 0 else "not shown to be better"
    text = (
        f"Of the models that can be registered, {best} has {title(ours.scoring.main)} {ours.main.mean:.4f} against "
        f"{theirs.main.mean:.4f} of {rival}: gain {gain.mean:+.4f}, between {gain.low:+.4f} and {gain.high:+.4f}; "
        f"it is {verdict}."
    )
    return {"system": best, "against": rival, "gain": gain.as_dict(), "text": text}
