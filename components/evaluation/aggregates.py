"""Cells: one system at one label budget with all its seeds, scored on the same test rows and bootstrap resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.evaluation.intervals import Interval, interval
from components.evaluation.results import Run, TestSplit
from components.scoring import Resamples, Scoring
from components.settings.evaluate import EvaluateSettings
from components.tasks.results import best_score

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One system at one budget. S seeds, R bootstrap resamples, N test rows, K statistics of the task's scoring.

    Attributes:
        system: name of the system.
        budget: label budget; negative: all labels.
        seeds: of the runs, ascending. All arrays below are in this order.
        labels: mean number of training rows per class, or of training rows if the task's budgets count rows.
        runs: one per seed.
        values: metric -> (S,) on the test rows.
        resampled: metric -> (S, R) on resamples of the test rows, the same resamples in every cell.
        intervals: metric -> interval of its mean over seeds.
        sums: (S, K) statistics, summed over the test rows.
        rows: S matrices (N, K), the statistics of each test row.
        classes: class -> (S,) F1, if the scoring has classes.
        class_resampled: class -> (S, R) F1 on the resamples.
        scoring: of the task.
    """

    system: str
    budget: int
    seeds: list[int]
    labels: float
    runs: list[Run]
    values: dict[str, Floats]
    resampled: dict[str, Floats]
    intervals: dict[str, Interval]
    sums: Floats
    rows: list[sparse.csr_array]
    classes: dict[str, Floats]
    class_resampled: dict[str, Floats]
    scoring: Scoring

    @property
    def main(self) -> Interval:
        """The interval of the primary metric."""
        return self.intervals[self.scoring.main]

    @property
    def selection(self) -> float:
        """The best value of the primary metric on dev or in cross-validation, mean over seeds."""
        return mean_of([best_score(run.record) for run in self.runs])

    def _ways(self) -> dict[str, Any]:
        """`ways`: each way to learn that was tried, with its mean score of selection over the seeds that tried it, the
        mean share of its steps, and how many seeds have tried and kept it; empty if there was only one way."""
        records = [run.record for run in self.runs if "ways" in run.record]
        found = []
        for way in dict.fromkeys(attempt["way"] for record in records for attempt in record["ways"]):
            attempts = [attempt for record in records for attempt in record["ways"] if attempt["way"] == way]
            tried = [attempt for attempt in attempts if attempt["score"] is not None]
            found.append(
                {
                    "way": way,
                    "score": mean_of([attempt["score"] for attempt in tried]) if tried else None,
                    "tried": len(tried),
                    "share": mean_of([attempt["share"] for attempt in tried]) if tried else 0.0,
                    "kept": sum(record["way"] == way for record in records),
                    "seconds": mean_of([attempt["seconds"] for attempt in attempts]),
                }
            )
        return {"ways": found} if found else {}

    def as_dict(self, test: TestSplit) -> dict[str, Any]:
        """The cell as in evaluation.json."""
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
                "left_out": sum(len(record["curve"]) > 1 and not record["best_step"] for record in records),
                "label_names": sum(bool(record.get("label_names")) for record in records),
                f"selection_{main}": self.selection,
            },
            **self._ways(),
        }


def make_cells(
    runs: Sequence[Run], test: TestSplit, settings: EvaluateSettings, *, scoring: Scoring
) -> dict[tuple[str, int], Cell]:
    """Group runs by (system, budget), in the order of the runs, and compute their metrics."""
    rows = [scoring.statistics(test.rows.fields, test.rows.targets, run.answers) for run in runs]
    resamples = Resamples(len(test.rows), resamples=settings.resamples)
    # One run at a time: the sums of all resamples are large if there are many classes.
    resampled = [_metrics(resamples.sums(matrix), scoring) for matrix in rows]
    grouped: dict[tuple[str, int], list[int]] = {}
    for index, run in enumerate(runs):
        grouped.setdefault((run.system, run.budget), []).append(index)
    cells = {}
    for (system, budget), found in grouped.items():
        indices = sorted(found, key=lambda index: runs[index].seed)
        sums = np.stack([np.asarray(rows[index].sum(0)).ravel() for index in indices])
        values = scoring.scores(sums)
        metrics_SR, class_f1_SR = (
            {
                name: np.stack([resampled[index][kind][name] for index in indices])
                for name in resampled[indices[0]][kind]
            }
            for kind in (0, 1)
        )
        cells[system, budget] = Cell(
            system=system,
            budget=budget,
            seeds=[runs[index].seed for index in indices],
            labels=mean_of([runs[index].record["rows"] for index in indices]) / scoring.strata,
            runs=[runs[index] for index in indices],
            values=values,
            resampled=metrics_SR,
            intervals={
                name: interval(values[name], metrics_SR[name].mean(0), confidence=settings.confidence).within(
                    *scoring.ranges[name]
                )
                for name in scoring.names
            },
            sums=sums,
            rows=[rows[index] for index in indices],
            classes=scoring.class_f1(sums),
            class_resampled=class_f1_SR,
            scoring=scoring,
        )
    return cells


def _metrics(sums: Floats, scoring: Scoring) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """(R, K) sums -> metrics and class F1, each (R,)."""
    return scoring.scores(sums), scoring.class_f1(sums)


def budgets_of(cells: Mapping[tuple[str, int], Cell]) -> list[int]:
    """The budgets in ascending order; the budget of all labels is last."""
    return sorted({budget for _, budget in cells}, key=lambda budget: (budget < 0, budget))


def format_budget(budget: int, scoring: Scoring) -> str:
    """A label budget as text: "20 labels a class", "all labels"."""
    if budget < 0:
        return "all labels"
    return f"{budget} {unit(scoring)}"


def unit(scoring: Scoring) -> str:
    """The unit of budgets."""
    return "labels a class" if scoring.strata > 1 else "labelled rows"


def slice_members(slices: Sequence[str | None]) -> dict[str, NDArray[np.int64]]:
    """Name of a slice -> indices of its rows."""
    names = np.asarray([name or "" for name in slices])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names) if name}


def slice_sum(matrix: sparse.csr_array, rows: NDArray[np.int64]) -> Floats:
    """(N, K) -> (K,): the sum of the rows with these indices."""
    return np.asarray(matrix[rows].sum(0), dtype=np.float64).ravel()


def mean_of(values: Sequence[float] | Floats) -> float:
    """The mean as a Python float."""
    return float(np.mean(values))
