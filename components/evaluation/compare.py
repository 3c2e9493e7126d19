"""From runs to cells (one system at one budget), and from cells to who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.config import FROZEN, EvaluateSettings
from components.evaluation.benefits import Benefit, compare, labels_needed, of_labels, of_training
from components.evaluation.intervals import Interval, interval
from components.evaluation.results import Run, TestSplit
from components.evaluation.statistics import (
    RANGES,
    SCORES,
    Layout,
    calibration,
    confusion,
    per_class,
    resampled,
    row_statistics,
    scores,
)

Floats = NDArray[np.float64]
#: The score by which systems are compared.
MAIN = "macro_f1"
BASELINE = "baseline"
SCRATCH = "scratch"
Systems = Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Cell:
    """One system at one budget, S seeds.

    Attributes:
        seeds: of the runs, ascending; everything below is in their order.
        labels: training rows a class, the mean over seeds.
        values: score -> (S,) on the test rows.
        draws: score -> (S, R) on bootstrap draws of the test rows, the same draws in every cell.
        intervals: score -> its interval.
        sums: (S, K) of `statistics.Layout`.
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
    slice_sums: dict[str, Floats]
    layout: Layout

    @property
    def main(self) -> Interval:
        """The interval of the score that systems are compared by."""
        return self.intervals[MAIN]

    def as_dict(self, test: TestSplit) -> dict[str, Any]:
        """For JSON."""
        classes = per_class(self.sums.mean(0), layout=self.layout)
        guesses = [run.probabilities.argmax(1) for run in self.runs]
        counts = sum(confusion(test.labels, guess, classes=len(test.names)) for guess in guesses)
        slices = {}
        for name, sums in self.slice_sums.items():
            found = scores(sums, layout=self.layout)
            rows = int(self.layout.parts(sums)[2][0].sum())
            slices[name] = {"rows": rows, "accuracy": _mean(found["accuracy"]), MAIN: _mean(found[MAIN])}
        records = [run.record for run in self.runs]
        seconds, tokens = (sum(record[key] for record in records) for key in ("seconds", "tokens"))
        return {
            "budget": self.budget,
            "labels": self.labels,
            "seeds": self.seeds,
            "scores": {
                name: {**self.intervals[name].as_dict(), "seeds": self.values[name].tolist()} for name in SCORES
            },
            "per_class": {
                label: {name: float(values[number]) for name, values in classes.items()}
                for number, label in enumerate(test.names)
            },
            "slices": slices,
            "confusion": np.asarray(counts).tolist(),
            "calibration": calibration(self.sums.mean(0), layout=self.layout),
            "training": {
                "seconds": seconds / len(records),
                "tokens_per_second": tokens / seconds if seconds else 0.0,
                "best_epoch": _mean([record["best_epoch"] for record in records]),
                f"dev_{MAIN}": _mean([max(point[MAIN] for point in record["curve"]) for record in records]),
            },
        }


@dataclass(frozen=True)
class Comparison:
    """Two systems at one budget; `difference` is paired by seed and by test row, `apart` says that their own intervals
    do not overlap."""

    better: str
    worse: str
    budget: int
    difference: Interval
    apart: bool

    @property
    def clear(self) -> bool:
        """Whether the difference is away from zero."""
        return self.difference.low > 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "better": self.better,
            "worse": self.worse,
            "budget": self.budget,
            "difference": self.difference.as_dict(),
            "apart": self.apart,
        }


def make_cells(runs: Sequence[Run], test: TestSplit, settings: EvaluateSettings) -> dict[tuple[str, int], Cell]:
    """Group runs by (system, budget), in the order of the runs, and score them."""
    layout = Layout(len(test.names), settings.calibration_bins)
    rows = [row_statistics(test.labels, run.probabilities, layout=layout) for run in runs]
    draws = [scores(sums, layout=layout) for sums in resampled(rows, resamples=settings.resamples)]
    members = _slice_members(test.slices)
    grouped: dict[tuple[str, int], list[int]] = {}
    for place, run in enumerate(runs):
        grouped.setdefault((run.system, run.budget), []).append(place)
    cells = {}
    for (system, budget), found in grouped.items():
        places = sorted(found, key=lambda place: runs[place].seed)
        sums = np.stack([np.asarray(rows[place].sum(0)).ravel() for place in places])
        values = scores(sums, layout=layout)
        drawn = {name: np.stack([draws[place][name] for place in places]) for name in SCORES}
        cells[system, budget] = Cell(
            system=system,
            budget=budget,
            seeds=[runs[place].seed for place in places],
            labels=_mean([runs[place].record["rows"] for place in places]) / len(test.names),
            runs=[runs[place] for place in places],
            values=values,
            draws=drawn,
            intervals={
                name: interval(values[name], drawn[name].mean(0), confidence=settings.confidence).within(*RANGES[name])
                for name in SCORES
            },
            sums=sums,
            slice_sums={
                name: np.stack([_slice_sum(rows[place], members[name]) for place in places]) for name in members
            },
            layout=layout,
        )
    return cells


def comparisons(
    cells: Mapping[tuple[str, int], Cell],
    systems: Systems,
    *,
    confidence: float,
    ensembles: Mapping[str, Sequence[str]] | None = None,
) -> list[Comparison]:
    """The pairs that matter, at every budget: starts of one family with each other, an ensemble with its best member,
    and the best fine-tuned system with the best baseline. The better one (by mean) stands first."""
    found = []
    for budget in _budgets(cells):
        names = [system for system, of_cell in cells if of_cell == budget]
        learned = [name for name in names if systems[name][0] != BASELINE]
        pairs = [
            (one, other)
            for place, one in enumerate(learned)
            for other in learned[place + 1 :]
            if systems[one][0] == systems[other][0] and _comparable(systems[one][1], systems[other][1])
        ]
        for name in learned:
            family, start = systems[name]
            if members := [f"{member}-{start}" for member in (ensembles or {}).get(family, ())]:
                pairs.append((name, _best(cells, members, budget)))
        fixed = [name for name in names if systems[name][0] == BASELINE]
        if learned and fixed:
            pairs.append((_best(cells, learned, budget), _best(cells, fixed, budget)))
        found += [_compare(cells[one, budget], cells[other, budget], confidence=confidence) for one, other in pairs]
    return found


def best_by_budget(cells: Mapping[tuple[str, int], Cell]) -> dict[int, str]:
    """The system with the best mean at each budget."""
    return {
        budget: _best(cells, [system for system, of_cell in cells if of_cell == budget], budget)
        for budget in _budgets(cells)
    }


def family_benefits(
    runs: Sequence[Run], cells: Mapping[tuple[str, int], Cell], systems: Systems, *, confidence: float
) -> dict[str, dict[str, dict[str, dict[str, Benefit]]]]:
    """{family: {start: {"training" | "labels": {start, slope, asymptote}}}} for every start beside scratch."""
    largest = _budgets(cells)[-1]

    def by_training(system: str) -> dict[int, dict[str, float]]:
        chosen = {run.seed: run.record["curve"] for run in runs if (run.system, run.budget) == (system, largest)}
        return {
            seed: of_training([point["epoch"] for point in curve], [point[MAIN] for point in curve])
            for seed, curve in chosen.items()
        }

    def by_labels(system: str) -> dict[int, dict[str, float]]:
        own = [cells[system, budget] for budget in _budgets(cells) if (system, budget) in cells]
        seeds = set.intersection(*(set(cell.seeds) for cell in own))
        return {
            seed: of_labels(
                [cell.labels for cell in own], [float(cell.values[MAIN][cell.seeds.index(seed)]) for cell in own]
            )
            for seed in seeds
        }

    found: dict[str, dict[str, dict[str, dict[str, Benefit]]]] = {}
    for system, (family, start) in systems.items():
        scratch = f"{family}-{SCRATCH}"
        if family != BASELINE and start != SCRATCH and not start.endswith(FROZEN) and scratch in systems:
            found.setdefault(family, {})[start] = {
                "training": compare(by_training(system), by_training(scratch), confidence=confidence),
                "labels": compare(by_labels(system), by_labels(scratch), confidence=confidence),
            }
    return found


def label_efficiency(cells: Mapping[tuple[str, int], Cell], systems: Systems) -> dict[str, dict[str, Any]]:
    """For every transferred system and budget, how many labels a class the same family from scratch, and the best
    baseline, would need for the same score. `labels` is null where even the largest budget does not reach it."""
    budgets = _budgets(cells)

    def curve(system: str) -> tuple[list[float], list[float]]:
        own = [cells[system, budget] for budget in budgets if (system, budget) in cells]
        return [cell.labels for cell in own], [cell.main.mean for cell in own]

    fixed = [system for system, (family, _) in systems.items() if family == BASELINE]
    rivals = [_best(cells, fixed, budgets[-1])] if fixed else []
    found: dict[str, dict[str, Any]] = {}
    for system, (family, start) in systems.items():
        if family == BASELINE or start == SCRATCH or start.endswith(FROZEN):
            continue
        own_rivals = [name for name in [f"{family}-{SCRATCH}", *rivals] if name in systems]
        entries = []
        for labels, score in zip(*curve(system), strict=True):
            against = {}
            for rival in own_rivals:
                x, y = curve(rival)
                needed = labels_needed(score, labels=x, scores=y)
                against[rival] = {
                    "labels": needed,
                    "ratio": needed / labels if needed is not None else None,
                    "at_least_ratio": x[-1] / labels if needed is None else None,
                }
            entries.append({"labels": labels, "score": score, "against": against})
        found.setdefault(family, {})[start] = entries
    return found


def training_curve(runs: Sequence[Run]) -> list[dict[str, float]]:
    """Mean dev score at each epoch that all seeds of the largest budget have in common."""
    largest = max((run.budget for run in runs), key=lambda budget: (budget < 0, budget))
    curves = [{point["epoch"]: point[MAIN] for point in run.record["curve"]} for run in runs if run.budget == largest]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    return [{"epoch": epoch, MAIN: _mean([curve[epoch] for curve in curves])} for epoch in common]


def statements(
    cells: Mapping[tuple[str, int], Cell],
    systems: Systems,
    compared: Sequence[Comparison],
    *,
    ensembles: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Sentences about who wins, each computed from a comparison. `kind` is what they are about: `transfer` (a start of
    a family against scratch), `adaptation` (adapted against pretrained), `tuning` (all weights against the head alone),
    `ensemble` (against its best member), `baseline` (the best of both worlds). `holds` says whether the first-named
    kind of system wins clearly."""
    found = []
    for comparison in compared:
        starts = {systems[name][1]: name for name in (comparison.better, comparison.worse)}
        families = {systems[name][0] for name in (comparison.better, comparison.worse)}
        if BASELINE in families:
            kind = "baseline"
            hoped = next(name for name in (comparison.better, comparison.worse) if systems[name][0] != BASELINE)
        elif len(families) > 1:
            kind = "ensemble"
            hoped = next(
                name for name in (comparison.better, comparison.worse) if systems[name][0] in (ensembles or {})
            )
        elif SCRATCH in starts:
            kind = "transfer"
            hoped = next(name for start, name in starts.items() if start != SCRATCH)
        elif any(start.endswith(FROZEN) for start in starts):
            kind = "tuning"
            hoped = next(name for start, name in starts.items() if not start.endswith(FROZEN))
        else:
            kind = "adaptation"
            hoped = starts["adapted"]
        found.append(
            {
                "kind": kind,
                "budget": comparison.budget,
                "holds": comparison.better == hoped and comparison.clear,
                "apart": comparison.apart,
                "text": _sentence(cells, comparison),
            }
        )
    return found


def _comparable(one: str, other: str) -> bool:
    """A frozen encoder stands beside the same encoder fine-tuned, beside nothing else."""
    frozen = {start for start in (one, other) if start.endswith(FROZEN)}
    return not frozen or f"{one}{FROZEN}" == other or f"{other}{FROZEN}" == one


def _sentence(cells: Mapping[tuple[str, int], Cell], comparison: Comparison) -> str:
    better, worse = (cells[name, comparison.budget] for name in (comparison.better, comparison.worse))
    labels = "all labels" if comparison.budget < 0 else f"{comparison.budget} labels a class"
    figures = f"macro F1 {_figure(better.main)} against {_figure(worse.main)}"
    if not comparison.clear:
        return f"At {labels}, {better.system} and {worse.system} cannot be told apart: {figures}."
    overlap = "the intervals do not overlap" if comparison.apart else "the intervals overlap, the paired difference is"
    paired = "" if comparison.apart else f" {_figure(comparison.difference)}"
    return f"At {labels}, {better.system} beats {worse.system}: {figures}; {overlap}{paired}."


def _figure(found: Interval) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _compare(one: Cell, other: Cell, *, confidence: float) -> Comparison:
    better, worse = (one, other) if one.main.mean >= other.main.mean else (other, one)
    seeds = sorted(set(better.seeds) & set(worse.seeds))
    ours, theirs = ([cell.seeds.index(seed) for seed in seeds] for cell in (better, worse))
    values = better.values[MAIN][ours] - worse.values[MAIN][theirs]
    draws = (better.draws[MAIN][ours] - worse.draws[MAIN][theirs]).mean(0)
    return Comparison(
        better.system,
        worse.system,
        better.budget,
        interval(values, draws, confidence=confidence),
        better.main.apart_from(worse.main),
    )


def _best(cells: Mapping[tuple[str, int], Cell], names: Sequence[str], budget: int) -> str:
    return max(names, key=lambda name: cells[name, budget].main.mean)


def _budgets(cells: Mapping[tuple[str, int], Cell]) -> list[int]:
    return sorted({budget for _, budget in cells}, key=lambda budget: (budget < 0, budget))


def _slice_members(slices: Sequence[str | None]) -> dict[str, NDArray[np.int64]]:
    names = np.asarray([name or "" for name in slices])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names) if name}


def _slice_sum(matrix: sparse.csr_array, rows: NDArray[np.int64]) -> Floats:
    return np.asarray(matrix[rows].sum(0), dtype=np.float64).ravel()


def _mean(values: Sequence[float] | Floats) -> float:
    return float(np.mean(values))
