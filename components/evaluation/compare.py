"""Pairwise comparisons of systems and the statements about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.data.scoring import title
from components.data.scoring.intervals import Interval
from components.evaluation.aggregates import Cell, budgets_of, format_budget
from components.settings.names import BASELINE, VECTORS
from components.settings.systems import TASK_ADAPTED, System

SCRATCH = "scratch"
Cells = Mapping[tuple[str, int], Cell]
#: System -> (family, start).
Systems = Mapping[str, tuple[str, str]]
Ensembles = Mapping[str, Sequence[str]]
#: How a start is continued -> kind of the comparison with the start alone.
CONTINUED = {"with": "together", "after": "intermediate", "from": "distilled"}


def transferred(systems: Systems) -> dict[str, tuple[str, str]]:
    """The systems whose encoder starts from a language model and is fine-tuned."""
    return {
        system: (family, start)
        for system, (family, start) in systems.items()
        if family != BASELINE and not start.startswith(SCRATCH) and not System.of(family, start).frozen
    }


@dataclass(frozen=True)
class Comparison:
    """Two systems at one budget. `difference`: better minus worse, paired by seed and by test row. `apart`: whether the
    intervals of the two systems are disjoint."""

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
        return vars(self) | {"difference": self.difference.as_dict()}


def comparisons(
    cells: Cells, systems: Systems, *, confidence: float, ensembles: Ensembles | None = None
) -> list[Comparison]:
    """Comparisons at every budget: the starts of each family with each other, each ensemble with its best member, and
    the best fine-tuned system with the best baseline, where "best" is by dev. `ensembles`: name -> members."""
    compared = []
    for budget in budgets_of(cells):
        names = [system for system, of_cell in cells if of_cell == budget]
        learned = [name for name in names if systems[name][0] != BASELINE]
        pairs = [
            (name, other)
            for index, name in enumerate(learned)
            for other in learned[index + 1 :]
            if _comparable(System.of(*systems[name]), System.of(*systems[other]))
        ]
        for name in learned:
            family, start = systems[name]
            # A member is a family, or a baseline, whose name is its system.
            members = [
                system
                for member in (ensembles or {}).get(family, ())
                for system in (member, f"{member}-{start}")
                if (system, budget) in cells
            ]
            if members:
                pairs.append((name, best_selected(cells, members, budget)))
        fixed = [name for name in names if systems[name][0] == BASELINE]
        if learned and fixed:
            pairs.append((best_selected(cells, learned, budget), best_selected(cells, fixed, budget)))
        # The best baseline may be the best member of the best ensemble.
        for pair in dict.fromkeys(pairs):
            worse, better = sorted((cells[name, budget] for name in pair[::-1]), key=lambda cell: cell.main.mean)
            difference = better.difference(worse, confidence=confidence)
            apart = better.main.is_disjoint(worse.main)
            compared.append(Comparison(better.system, worse.system, budget, difference, apart))
    return compared


def best_by_budget(cells: Cells) -> dict[int, str]:
    """Budget -> system with the best mean on test. For display only; nothing is selected by it."""
    return {
        budget: max((name for name, of in cells if of == budget), key=lambda name: cells[name, budget].main.mean)
        for budget in budgets_of(cells)
    }


def best_selected(cells: Cells, names: Sequence[str], budget: int) -> str:
    """The system with the best score of selection."""
    return max(names, key=lambda name: cells[name, budget].selection)


def statements(
    cells: Cells, systems: Systems, compared: Sequence[Comparison], *, ensembles: Ensembles | None = None
) -> list[dict[str, Any]]:
    """One sentence per comparison. Returns [{kind, budget, holds, apart, text}]. `kind` is the kind of comparison:
    `transfer` (a start against scratch or vectors), `adaptation` (adapted against pretrained, or task-adapted against
    either), `tuning` (all weights against the head alone), `together` (joint training against training on one task),
    `intermediate` (with against without an intermediate task), `distilled` (with against without teachers), `ensemble`
    (against its best member), `baseline` (the best fine-tuned system against the best baseline). `holds`: the system
    named first in this list is better and the interval of the difference is above zero."""
    stated = []
    for comparison in compared:
        kind, favoured = _kind((comparison.better, comparison.worse), systems, ensembles or {})
        stated.append(
            {
                "kind": kind,
                "budget": comparison.budget,
                "holds": comparison.better == favoured and comparison.clear,
                "apart": comparison.apart,
                "text": _sentence(cells, comparison),
            }
        )
    return stated


def _kind(pair: tuple[str, str], systems: Systems, ensembles: Ensembles) -> tuple[str, str]:
    family = {name: systems[name][0] for name in pair}
    starts = {System.of(*systems[name]): name for name in pair}
    # An ensemble may have a baseline as a member.
    of_members = any(other in ensembles.get(family[name], ()) for name, other in (pair, pair[::-1]))
    if BASELINE in family.values() and not of_members:
        return "baseline", next(name for name in pair if family[name] != BASELINE)
    if len(set(family.values())) > 1:
        return "ensemble", next(name for name in pair if family[name] in ensembles)
    for system, name in starts.items():
        if system.way:
            return CONTINUED[system.way], name
    if any(system.frozen for system in starts):
        return "tuning", next(name for system, name in starts.items() if not system.frozen)
    by_start = {system.start: name for system, name in starts.items()}
    if SCRATCH in by_start or VECTORS in by_start:
        return "transfer", by_start[max(by_start, key=lambda start: (start != SCRATCH, start != VECTORS))]
    return "adaptation", by_start.get(TASK_ADAPTED) or by_start["adapted"]


def _comparable(system: System, other: System) -> bool:
    """Whether two systems of a family are compared: those that are frozen, joint, after a task or taught only with the
    same one without."""
    if system.family != other.family:
        return False
    if system.way or other.way:
        plain = other if system.way else system
        return plain == System(plain.family, system.start) and system.start == other.start
    return not (system.frozen or other.frozen) or system.tuned == other.tuned


def _sentence(cells: Cells, comparison: Comparison) -> str:
    better, worse = (cells[name, comparison.budget] for name in (comparison.better, comparison.worse))
    labels, seeds = format_budget(comparison.budget, better.scoring), min(len(better.seeds), len(worse.seeds))
    figures = f"{title(better.scoring.main)} {_figure(better.main)} against {_figure(worse.main)}"
    figures += f", means over {seeds} seeds" if seeds > 1 else ""
    if not comparison.clear:
        return f"At {labels}, {better.system} and {worse.system} do not differ significantly: {figures}."
    overlap = "the intervals do not overlap"
    if not comparison.apart:
        overlap = f"the intervals overlap, the paired difference is {_figure(comparison.difference)}"
    return f"At {labels}, {better.system} beats {worse.system}: {figures}; {overlap}."


def _figure(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def recipes(cells: Cells, *, confidence: float) -> dict[str, dict[str, dict[str, float]]]:
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
