"""Pairwise comparisons of systems, and negative transfer (Pan and Yang 2010, section 2.3;
Wang et al. 2019): a class or slice counts as hurt only if the interval of its paired difference to scratch is below
zero at a Bonferroni-corrected confidence level."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from components.data.scoring.base import Floats
from components.data.scoring.intervals import CONFIDENCE, Ints, clusters_within, sizes_of, training_noise
from components.evaluation.aggregates import Cell, Scores, TestSplit, budgets_of, measured, slice_members
from components.settings.section import BASELINE
from components.settings.systems import System

SCRATCH = "scratch"
Cells = Mapping[tuple[str, int], Cell]
#: System -> (family, start).
Systems = Mapping[str, tuple[str, str]]


def transferred(systems: Systems) -> dict[str, tuple[str, str]]:
    """The systems whose encoder starts from a language model and is fine-tuned."""
    return {
        system: (family, start)
        for system, (family, start) in systems.items()
        if family != BASELINE and not start.startswith(SCRATCH) and not System.of(family, start).frozen
    }


def differences(cells: Cells) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """{budget: {system: {other: {mean, low, high, clear}}}}: system minus other, paired by seed and by test row, each
    pair of a budget in one order. `clear`: whether the interval excludes 0 at the confidence that is corrected for the
    number of pairs of the budget (Bonferroni)."""
    compared: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for budget in budgets_of(cells):
        chosen = [cell for (_, of), cell in cells.items() if of == budget]
        pairs = [pair for pair in combinations(chosen, 2) if set(pair[0].seeds) & set(pair[1].seeds)]
        rows = compared.setdefault(str(budget), {})
        for cell, other in pairs:
            difference = cell.scores.minus(other.scores)
            clear = difference.interval(1 - (1 - CONFIDENCE) / len(pairs)).clear
            entry = difference.interval().as_dict() | {"clear": clear}
            rows.setdefault(cell.system, {})[other.system] = entry
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


#: Minimum number of test rows of a class or slice for which negative transfer is tested.
PART_ROWS: Final = 20


def transfer(cells: Cells, systems: Systems, test: TestSplit) -> dict[str, list[dict[str, Any]]]:
    """{family: [{budget, parts: [{part, name, rows, scratch: {mean, low, high}, starts: {start: {score: {...},
    difference: {...}, hurts, corrected: {...}}}}]}]} for every family with a system from scratch and a transferred one.
    The first part is `all`. A part of the kind `class` has the F1 of the class, `all` and `slice` have the primary
    metric. Classes and slices with fewer than `PART_ROWS` rows are omitted. `hurts` is corrected for the parts of one
    family; `corrected` has the bounds of the difference, corrected for all parts, starts and families of a budget
    (Bonferroni)."""
    families: dict[str, list[str]] = {}
    for family, start in transferred(systems).values():
        if f"{family}-{SCRATCH}" in systems:
            families.setdefault(family, []).append(start)
    compared: dict[str, list[dict[str, Any]]] = {}
    for family, starts in families.items():
        for budget in budgets_of(cells):
            named = {start: cells.get((f"{family}-{start}", budget)) for start in (SCRATCH, *starts)}
            present = {start: cell for start, cell in named.items() if cell is not None}
            if SCRATCH in present and len(present) > 1:
                compared.setdefault(family, []).append(
                    {"budget": budget, "parts": _parts(present, test, pairs=sum(map(len, families.values())))}
                )
    return compared


def _parts(cells: Mapping[str, Cell], test: TestSplit, *, pairs: int) -> list[dict[str, Any]]:
    first = next(iter(cells.values()))
    seeds = sorted(set.intersection(*(set(cell.seeds) for cell in cells.values())))
    kept = {start: [cell.rows[cell.seeds.index(seed)] for seed in seeds] for start, cell in cells.items()}
    scoring, every = first.scoring, np.arange(len(test.rows))
    members = {name: rows for name, rows in slice_members(test.rows.slices).items() if len(rows) >= PART_ROWS}
    counts = {name: round(counted["rows"] or 0) for name, counted in scoring.classes(first.sums.mean(0)).items()}
    counts = {name: count for name, count in counts.items() if count >= PART_ROWS}
    tested = len(members) + len(counts)
    level, corrected = (1 - (1 - CONFIDENCE) / count for count in (max(1, tested), (tested + 1) * pairs))

    def by_start(rows: Ints, scores: Callable[[Floats], dict[str, Floats]], *, part: bool) -> dict[str, dict[str, Any]]:
        """Metric -> start -> scores on these rows. Training noise is pooled over the starts."""
        clusters = clusters_within(test.rows.clusters, rows)
        of_start = {
            start: measured([scoring.of_part(of[rows]) if part else of for of in matrices], clusters, scores)
            for start, matrices in kept.items()
        }
        metrics = {name: {start: of[name] for start, of in of_start.items()} for name in of_start[SCRATCH]}
        noises = {name: training_noise(np.stack([of[:, 0] for of in by.values()])) for name, by in metrics.items()}
        return {
            name: {start: Scores(seeds, of, sizes_of(clusters, len(rows)), noises[name]) for start, of in by.items()}
            for name, by in metrics.items()
        }

    def entry(part: str, name: str, rows: int, scores: Mapping[str, Scores], level: float) -> dict[str, Any]:
        starts = {}
        for start, of in scores.items():
            if start != SCRATCH:
                difference = of.minus(scores[SCRATCH])
                starts[start] = {
                    "score": of.interval().as_dict(),
                    "difference": difference.interval().as_dict(),
                    "hurts": difference.interval(level).high < 0,
                    "corrected": difference.interval(corrected).as_dict(),
                }
        scratch = scores[SCRATCH].interval().as_dict()
        return {"part": part, "name": name, "rows": rows, "scratch": scratch, "starts": starts}

    classes = by_start(every, scoring.class_f1, part=False) if counts else {}
    return [
        entry("all", "", len(test.rows), {start: cell.scores for start, cell in cells.items()}, CONFIDENCE),
        *(entry("class", name, count, classes[name], level) for name, count in counts.items()),
        *(
            entry("slice", name, len(rows), by_start(rows, scoring.scores, part=True)[scoring.main], level)
            for name, rows in members.items()
        ),
    ]
