"""Cells: one system at one label budget, all its seeds, scored on the same test rows and the same draws of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.evaluation.intervals import Interval, interval
from components.evaluation.results import Run, TestSplit
from components.scoring import Draws, Scoring
from components.settings.evaluate import EvaluateSettings
from components.tasks.results import best_score

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One system at one budget, S seeds.

    Attributes:
        seeds: of the runs, ascending; everything below is in their order.
        labels: training rows a class (of a task whose budgets are rows: training rows), the mean over seeds.
        values: score -> (S,) on the test rows.
        draws: score -> (S, R) on bootstrap draws of the test rows, the same draws in every cell.
        intervals: score -> its interval.
        sums: (S, K) of the task's scoring.
        rows: S matrices (N, K) that they are the sums of.
        classes: class -> its F1, (S,), where the scoring knows classes.
        class_draws: the same on the draws, (S, R).
    """

    system: str
    budget: int
    seeds: list[int]
    labels: float
    runs: list[Run]
    values: dict[str, Floats]
    draws: dict[str, Floats]
    intervals: dict[str, Interval]
    sums: Floats
    rows: list[sparse.csr_array]
    classes: dict[str, Floats]
    class_draws: dict[str, Floats]
    scoring: Scoring

    @property
    def main(self) -> Interval:
        """The interval of the score that systems are compared by."""
        return self.intervals[self.scoring.main]

    @property
    def dev(self) -> float:
        """The deciding score of the best weights on dev, the mean over seeds."""
        return mean_of([best_score(run.record) for run in self.runs])

    def as_dict(self, test: TestSplit) -> dict[str, Any]:
        """For JSON."""
        scoring, main = self.scoring, self.scoring.main
        targets = test.rows.targets
        confused = [scoring.confusion(targets, run.answers) for run in self.runs]
        counts = [matrix for matrix in confused if matrix is not None]
        slices = {}
        for name, members in slice_members(test.rows.slices).items():
            found = scoring.scores(np.stack([slice_sum(matrix, members) for matrix in self.rows]))
            slices[name] = {"rows": len(members), **{score: mean_of(found[score]) for score in scoring.names}}
        records = [run.record for run in self.runs]
        seconds, tokens = (sum(record[key] for record in records) for key in ("seconds", "tokens"))
        return {
            "budget": self.budget,
            "labels": self.labels,
            "seeds": self.seeds,
            "scores": {
                name: {**self.intervals[name].as_dict(), "seeds": self.values[name].tolist()} for name in scoring.names
            },
            "per_class": scoring.classes(self.sums.mean(0)),
            "slices": slices,
            "confusion": sum(counts[1:], counts[0]).tolist() if counts else [],
            "calibration": scoring.calibration(self.sums.mean(0)),
            "training": {
                "seconds": seconds / len(records),
                "tokens_per_second": tokens / seconds if seconds else 0.0,
                "best_epoch": mean_of([record["best_epoch"] for record in records]),
                f"dev_{main}": self.dev,
            },
        }


def make_cells(
    runs: Sequence[Run], test: TestSplit, settings: EvaluateSettings, *, scoring: Scoring
) -> dict[tuple[str, int], Cell]:
    """Group runs by (system, budget), in the order of the runs, and score them."""
    rows = [scoring.statistics(test.rows.fields, test.rows.targets, run.answers) for run in runs]
    draws = Draws(len(test.rows), resamples=settings.resamples)
    # One run at a time: the sums of all draws are large where there are many classes.
    drawn = [_drawn(draws.sums(matrix), scoring) for matrix in rows]
    grouped: dict[tuple[str, int], list[int]] = {}
    for place, run in enumerate(runs):
        grouped.setdefault((run.system, run.budget), []).append(place)
    cells = {}
    for (system, budget), found in grouped.items():
        places = sorted(found, key=lambda place: runs[place].seed)
        sums = np.stack([np.asarray(rows[place].sum(0)).ravel() for place in places])
        values = scoring.scores(sums)
        of_draws, classes_of_draws = (
            {name: np.stack([drawn[place][kind][name] for place in places]) for name in drawn[places[0]][kind]}
            for kind in (0, 1)
        )
        cells[system, budget] = Cell(
            system=system,
            budget=budget,
            seeds=[runs[place].seed for place in places],
            labels=mean_of([runs[place].record["rows"] for place in places]) / scoring.strata,
            runs=[runs[place] for place in places],
            values=values,
            draws=of_draws,
            intervals={
                name: interval(values[name], of_draws[name].mean(0), confidence=settings.confidence).within(
                    *scoring.ranges[name]
                )
                for name in scoring.names
            },
            sums=sums,
            rows=[rows[place] for place in places],
            classes=scoring.class_f1(sums),
            class_draws=classes_of_draws,
            scoring=scoring,
        )
    return cells


def _drawn(sums: Floats, scoring: Scoring) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Scores, and F1 of the classes, of the sums (R, K) of draws: each (R,)."""
    return scoring.scores(sums), scoring.class_f1(sums)


def budgets_of(cells: Mapping[tuple[str, int], Cell]) -> list[int]:
    """The budgets, ascending, all labels last."""
    return sorted({budget for _, budget in cells}, key=lambda budget: (budget < 0, budget))


def in_words(budget: int, scoring: Scoring) -> str:
    """A label budget as text shows it."""
    if budget < 0:
        return "all labels"
    return f"{budget} {unit(scoring)}"


def unit(scoring: Scoring) -> str:
    """What budgets count."""
    return "labels a class" if scoring.strata > 1 else "labelled rows"


def slice_members(slices: Sequence[str | None]) -> dict[str, NDArray[np.int64]]:
    """The rows of each slice, by name."""
    names = np.asarray([name or "" for name in slices])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names) if name}


def slice_sum(matrix: sparse.csr_array, rows: NDArray[np.int64]) -> Floats:
    """(N, K) -> (K,): the sum of some rows."""
    return np.asarray(matrix[rows].sum(0), dtype=np.float64).ravel()


def mean_of(values: Sequence[float] | Floats) -> float:
    """The mean."""
    return float(np.mean(values))
