"""Pairwise comparisons of systems and the statements about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.evaluation.aggregates import Cell, budgets_of, format_budget, mean_of
from components.evaluation.benefits import Benefit, compare, label_slope, labels_needed, training_benefits
from components.evaluation.results import Run
from components.scoring import title
from components.scoring.intervals import Interval
from components.settings.names import AFTER, BASELINE, FROM, FROZEN, TASK_ADAPTED, VECTORS, WITH

Floats = NDArray[np.float64]
SCRATCH = "scratch"
Systems = Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Comparison:
    """Two systems at one budget.

    Attributes:
        better: system with the higher mean on test.
        worse: the other system.
        budget: label budget.
        difference: better minus worse, paired by seed and by test row.
        apart: whether the intervals of the two systems are disjoint.
    """

    better: str
    worse: str
    budget: int
    difference: Interval
    apart: bool

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference is above zero."""
        return self.difference.low > 0

    def as_dict(self) -> dict[str, Any]:
        """The comparison as in evaluation.json."""
        return {
            "better": self.better,
            "worse": self.worse,
            "budget": self.budget,
            "difference": self.difference.as_dict(),
            "apart": self.apart,
        }


def comparisons(
    cells: Mapping[tuple[str, int], Cell],
    systems: Systems,
    *,
    confidence: float,
    ensembles: Mapping[str, Sequence[str]] | None = None,
) -> list[Comparison]:
    """Comparisons at every budget: the starts of each family with each other, each ensemble with its best member, and
    the best fine-tuned system with the best baseline.

    "Best" is determined on dev: selection on test would favour systems whose test scores are high by chance.

    Args:
        cells: (system, budget) -> cell.
        systems: system -> (family, start).
        confidence: of the intervals.
        ensembles: name of an ensemble -> its members: families and baselines.
    """
    found = []
    for budget in budgets_of(cells):
        names = [system for system, of_cell in cells if of_cell == budget]
        learned = [name for name in names if systems[name][0] != BASELINE]
        pairs = [
            (one, other)
            for index, one in enumerate(learned)
            for other in learned[index + 1 :]
            if systems[one][0] == systems[other][0] and _comparable(systems[one][1], systems[other][1])
        ]
        for name in learned:
            family, start = systems[name]
            # A member is a family, or a baseline, whose name is that of its system.
            members = [
                system
                for member in (ensembles or {}).get(family, ())
                for system in (member, f"{member}-{start}")
                if (system, budget) in cells
            ]
            if members:
                pairs.append((name, _best(cells, members, budget)))
        fixed = [name for name in names if systems[name][0] == BASELINE]
        if learned and fixed:
            pairs.append((_best(cells, learned, budget), _best(cells, fixed, budget)))
        # The best baseline may be the best member of the best ensemble.
        found += [
            _compare(cells[one, budget], cells[other, budget], confidence=confidence)
            for one, other in dict.fromkeys(pairs)
        ]
    return found


def best_by_budget(cells: Mapping[tuple[str, int], Cell]) -> dict[int, str]:
    """Budget -> system with the best mean on test. For display only; nothing is selected by it."""
    return {
        budget: max((name for name, of in cells if of == budget), key=lambda name: cells[name, budget].main.mean)
        for budget in budgets_of(cells)
    }


def family_benefits(
    runs: Sequence[Run], cells: Mapping[tuple[str, int], Cell], systems: Systems, *, confidence: float
) -> dict[str, dict[str, dict[str, dict[str, Benefit]]]]:
    """{family: {start: {"training" | "labels": {start, slope, asymptote}}}} for every start other than scratch.
    "labels" is omitted if there is only one budget."""
    largest, main = budgets_of(cells)[-1], _main(cells)

    def by_training(system: str) -> dict[int, dict[str, float]]:
        chosen = {run.seed: run.record["curve"] for run in runs if (run.system, run.budget) == (system, largest)}
        return {
            seed: training_benefits([point["epoch"] for point in curve], [point[main] for point in curve])
            for seed, curve in chosen.items()
        }

    def curve(system: str) -> list[Cell]:
        return [cells[system, budget] for budget in budgets_of(cells) if (system, budget) in cells]

    def slopes(curve: Sequence[Cell]) -> dict[int, dict[str, Floats]]:
        """The slope of every seed, followed by those without each cluster of test rows."""
        seeds = set.intersection(*(set(cell.seeds) for cell in curve))
        points = {
            seed: [
                np.append(cell.values[main][index], cell.without[index])
                for cell, index in ((cell, cell.seeds.index(seed)) for cell in curve)
            ]
            for seed in seeds
        }
        labels = [cell.labels for cell in curve]
        return {seed: {"slope": label_slope(labels, np.stack(scores))} for seed, scores in points.items()}

    def by_labels(system: str, scratch: str) -> dict[str, Benefit]:
        ours, theirs = curve(system), curve(scratch)

        def end(number: int) -> Benefit:
            first, second = ours[number], theirs[number]
            difference = first.difference(second, confidence=confidence)
            return Benefit(first.main, second.main, difference, len(set(first.seeds) & set(second.seeds)))

        slope = compare(slopes(ours), slopes(theirs), sizes=ours[0].sizes, confidence=confidence)
        return {"start": end(0), **slope, "asymptote": end(-1)}

    found: dict[str, dict[str, dict[str, dict[str, Benefit]]]] = {}
    for system, (family, start) in systems.items():
        scratch = f"{family}-{SCRATCH}"
        if family != BASELINE and not start.startswith(SCRATCH) and not start.endswith(FROZEN) and scratch in systems:
            axes = {"training": compare(by_training(system), by_training(scratch), confidence=confidence)}
            if all(len({cell.labels for cell in curve(name)}) > 1 for name in (system, scratch)):
                axes["labels"] = by_labels(system, scratch)
            found.setdefault(family, {})[start] = axes
    return found


def label_efficiency(cells: Mapping[tuple[str, int], Cell], systems: Systems) -> dict[str, dict[str, Any]]:
    """For every transferred system and budget: the number of labels per class with which the same family trained from
    scratch, and the baseline that is best on dev, reach the same score.

    Returns:
        {family: {start: [{labels, score, against: {system: {labels, ratio, at_least_ratio}}}]}}. `labels` and `ratio`
        are None if the largest budget does not reach the score; `at_least_ratio` is then its lower bound.
    """
    budgets = budgets_of(cells)

    def curve(system: str) -> tuple[list[float], list[float]]:
        own = [cells[system, budget] for budget in budgets if (system, budget) in cells]
        return [cell.labels for cell in own], [cell.main.mean for cell in own]

    fixed = [system for system, (family, _) in systems.items() if family == BASELINE]
    rivals = [_best(cells, fixed, budgets[-1])] if fixed else []
    found: dict[str, dict[str, Any]] = {}
    for system, (family, start) in systems.items():
        if family == BASELINE or start.startswith(SCRATCH) or start.endswith(FROZEN):
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


def training_curve(runs: Sequence[Run], *, main: str) -> list[dict[str, float]]:
    """Mean dev metric over the seeds of the largest budget, at the epochs that all of them have."""
    largest = max((run.budget for run in runs), key=lambda budget: (budget < 0, budget))
    curves = [{point["epoch"]: point[main] for point in run.record["curve"]} for run in runs if run.budget == largest]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    return [{"epoch": epoch, main: mean_of([curve[epoch] for curve in curves])} for epoch in common]


def statements(
    cells: Mapping[tuple[str, int], Cell],
    systems: Systems,
    compared: Sequence[Comparison],
    *,
    ensembles: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """One sentence per comparison.

    Returns:
        [{kind, budget, holds, apart, text}]. `kind` is the kind of comparison: `transfer` (a start against scratch or
        vectors), `adaptation` (adapted against pretrained, or task-adapted against either), `tuning` (all weights
        against the head alone), `together` (joint training against training on one task), `intermediate` (with against
        without an intermediate task), `distilled` (with against without teachers), `ensemble` (against its best
        member), `baseline` (the best fine-tuned system against the best baseline). `holds`: the system named first in
        this list is better and the interval of the difference is above zero.
    """
    found = []
    for comparison in compared:
        starts = {systems[name][1]: name for name in (comparison.better, comparison.worse)}
        families = {systems[name][0] for name in (comparison.better, comparison.worse)}
        pair = (comparison.better, comparison.worse)
        if BASELINE in families and not _of_members(pair, systems, ensembles or {}):
            kind = "baseline"
            favoured = next(name for name in (comparison.better, comparison.worse) if systems[name][0] != BASELINE)
        elif len(families) > 1:
            kind = "ensemble"
            favoured = next(
                name for name in (comparison.better, comparison.worse) if systems[name][0] in (ensembles or {})
            )
        elif joint := [start for start in starts if WITH in start]:
            kind = "together"
            favoured = starts[joint[0]]
        elif after := [start for start in starts if AFTER in start]:
            kind = "intermediate"
            favoured = starts[after[0]]
        elif taught := [start for start in starts if FROM in start]:
            kind = "distilled"
            favoured = starts[taught[0]]
        elif any(start.endswith(FROZEN) for start in starts):
            kind = "tuning"
            favoured = next(name for start, name in starts.items() if not start.endswith(FROZEN))
        elif SCRATCH in starts or VECTORS in starts:
            kind = "transfer"
            favoured = starts[max(starts, key=lambda start: (start != SCRATCH, start != VECTORS))]
        else:
            kind = "adaptation"
            favoured = starts[TASK_ADAPTED] if TASK_ADAPTED in starts else starts["adapted"]
        found.append(
            {
                "kind": kind,
                "budget": comparison.budget,
                "holds": comparison.better == favoured and comparison.clear,
                "apart": comparison.apart,
                "text": _sentence(cells, comparison),
            }
        )
    return found


def _of_members(pair: tuple[str, str], systems: Systems, ensembles: Mapping[str, Sequence[str]]) -> bool:
    """Whether one of two systems is an ensemble, and the other a baseline that is one of its members."""
    return any(other in ensembles.get(systems[one][0], ()) for one, other in (pair, pair[::-1]))


def _comparable(one: str, other: str) -> bool:
    """Whether two starts of a family are compared. A frozen encoder is compared only with the same encoder fine-tuned,
    a jointly trained one only with the same one trained on this task alone, one that has learned an intermediate
    task only with the same one without it, and one that has learned from teachers only with the same one without."""
    if WITH in one or WITH in other:
        return other.startswith(f"{one}{WITH}") or one.startswith(f"{other}{WITH}")
    if AFTER in one or AFTER in other:
        return other.startswith(f"{one}{AFTER}") or one.startswith(f"{other}{AFTER}")
    if FROM in one or FROM in other:
        return other.startswith(f"{one}{FROM}") or one.startswith(f"{other}{FROM}")
    frozen = {start for start in (one, other) if start.endswith(FROZEN)}
    return not frozen or f"{one}{FROZEN}" == other or f"{other}{FROZEN}" == one


def _sentence(cells: Mapping[tuple[str, int], Cell], comparison: Comparison) -> str:
    better, worse = (cells[name, comparison.budget] for name in (comparison.better, comparison.worse))
    labels, seeds = format_budget(comparison.budget, better.scoring), min(len(better.seeds), len(worse.seeds))
    figures = f"{title(better.scoring.main)} {_figure(better.main)} against {_figure(worse.main)}"
    figures += f", means over {seeds} seeds" if seeds > 1 else ""
    if not comparison.clear:
        return f"At {labels}, {better.system} and {worse.system} do not differ significantly: {figures}."
    overlap = "the intervals do not overlap" if comparison.apart else "the intervals overlap, the paired difference is"
    paired = "" if comparison.apart else f" {_figure(comparison.difference)}"
    return f"At {labels}, {better.system} beats {worse.system}: {figures}; {overlap}{paired}."


def _figure(found: Interval) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _compare(one: Cell, other: Cell, *, confidence: float) -> Comparison:
    better, worse = (one, other) if one.main.mean >= other.main.mean else (other, one)
    difference = better.difference(worse, confidence=confidence)
    return Comparison(better.system, worse.system, better.budget, difference, better.main.is_disjoint(worse.main))


def recipes(cells: Mapping[tuple[str, int], Cell], *, confidence: float) -> dict[str, dict[str, dict[str, float]]]:
    """{system: {other: {mean, low, high}}}: the paired differences of all systems at the largest budget, each pair in
    one order."""
    largest = budgets_of(cells)[-1]
    chosen = [cell for (_, budget), cell in cells.items() if budget == largest]
    return {
        cell.system: {
            other.system: cell.difference(other, confidence=confidence).as_dict()
            for other in chosen[index + 1 :]
            if set(cell.seeds) & set(other.seeds)
        }
        for index, cell in enumerate(chosen)
    }


def _best(cells: Mapping[tuple[str, int], Cell], names: Sequence[str], budget: int) -> str:
    """The system with the best score of selection."""
    return max(names, key=lambda name: cells[name, budget].selection)


def _main(cells: Mapping[tuple[str, int], Cell]) -> str:
    """Name of the primary metric."""
    return next(iter(cells.values())).scoring.main
