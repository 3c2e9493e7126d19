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
    metric. Classes and slices with fewer than `PART_ROWS` rows are omitted. `corrected` has the bounds of the
    difference, corrected for all parts, starts and families of a budget (Bonferroni); `hurts`: they are below zero. All
    rows are one test for `hurts`."""
    families: dict[str, list[str]] = {}
    for family, start in transferred(systems).values():
        if f"{family}-{SCRATCH}" in systems:
            families.setdefault(family, [SCRATCH]).append(start)
    pairs, compared = sum(len(starts) - 1 for starts in families.values()), dict[str, list[dict[str, Any]]]()
    for family, starts in families.items():
        for budget in budgets_of(cells):
            present = {start: cells[key] for start in starts if (key := (f"{family}-{start}", budget)) in cells}
            if SCRATCH in present and len(present) > 1:
                parts = _parts(present, test, pairs=pairs)
                compared.setdefault(family, []).append({"budget": budget, "parts": parts})
    return compared


def _parts(cells: Mapping[str, Cell], test: TestSplit, *, pairs: int) -> list[dict[str, Any]]:
    first, every = next(iter(cells.values())), np.arange(len(test.rows))
    seeds, scoring = sorted(set.intersection(*(set(cell.seeds) for cell in cells.values()))), first.scoring
    slices = {name: rows for name, rows in slice_members(test.rows.slices).items() if len(rows) >= PART_ROWS}
    counts = {name: round(counted["rows"] or 0) for name, counted in scoring.classes(first.sums.mean(0)).items()}
    counts = {name: count for name, count in counts.items() if count >= PART_ROWS}
    corrected = 1 - (1 - CONFIDENCE) / ((len(slices) + len(counts) + 1) * pairs)

    def entry(part: str, name: str, rows: int, scores: Mapping[str, Scores], level: float) -> dict[str, Any]:
        starts = {}
        for start, of in scores.items():
            if start != SCRATCH:
                difference = of.minus(scores[SCRATCH])
                intervals = {"score": of, "difference": difference}
                starts[start] = {key: each.interval().as_dict() for key, each in intervals.items()} | {
                    "hurts": difference.interval(level).high < 0,
                    "corrected": difference.interval(corrected).as_dict(),
                }
        scratch = scores[SCRATCH].interval().as_dict()
        return {"part": part, "name": name, "rows": rows, "scratch": scratch, "starts": starts}

    def by_start(rows: Ints, of_part: Callable[[Any], Any], scores: Callable[[Floats], dict[str, Floats]]) -> Any:
        """Metric -> start -> scores on these rows. Training noise is pooled over the starts."""
        clusters = clusters_within(test.rows.clusters, rows)
        of_start = {
            start: measured([of_part(cell.rows[cell.seeds.index(seed)][rows]) for seed in seeds], clusters, scores)
            for start, cell in cells.items()
        }
        for name in of_start[SCRATCH]:
            noise = training_noise(np.stack([of[name][:, 0] for of in of_start.values()]))
            sizes = sizes_of(clusters, len(rows))
            yield name, {start: Scores(seeds, of[name], sizes, noise) for start, of in of_start.items()}

    classes = dict(by_start(every, lambda matrix: matrix, scoring.class_f1)) if counts else {}
    of_all = {start: cell.scores for start, cell in cells.items()}
    parts = [entry("all", "", len(test.rows), of_all, CONFIDENCE)]
    parts += [entry("class", name, count, classes[name], corrected) for name, count in counts.items()]
    for name, rows in slices.items():
        scores = dict(by_start(rows, scoring.of_part, scoring.scores))[scoring.main]
        parts.append(entry("slice", name, len(rows), scores, corrected))
    return parts
