"""Pairwise comparisons of systems, and negative transfer (Pan and Yang 2010, section 2.3;
Wang et al. 2019): a class or slice counts as hurt only if the interval of its paired difference to scratch is below
zero at a Bonferroni-corrected confidence level."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
from scipy import sparse

from components.data.scoring.base import Floats
from components.data.scoring.intervals import (
    CONFIDENCE,
    Interval,
    Ints,
    clusters_within,
    interval,
    left_out,
    sizes_of,
    training_noise,
)
from components.evaluation.aggregates import Cell, TestSplit, budgets_of, slice_members
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


def differences(cells: Cells, *, confidence: float) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """{budget: {system: {other: {mean, low, high, clear}}}}: system minus other, paired by seed and by test row, each
    pair of a budget in one order. `clear`: whether the interval excludes 0 at the confidence that is corrected for the
    number of pairs of the budget (Bonferroni)."""
    compared: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for budget in budgets_of(cells):
        chosen = [cell for (_, of), cell in cells.items() if of == budget]
        pairs = [pair for pair in combinations(chosen, 2) if set(pair[0].seeds) & set(pair[1].seeds)]
        rows = compared.setdefault(str(budget), {})
        for cell, other in pairs:
            clear = cell.difference(other, confidence=1 - (1 - confidence) / len(pairs)).clear
            difference = cell.difference(other, confidence=confidence).as_dict() | {"clear": clear}
            rows.setdefault(cell.system, {})[other.system] = difference
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
    scoring, clusters = first.scoring, clusters_within(test.rows.clusters, np.arange(len(test.rows)))
    slices = slice_members(test.rows.slices)
    members = {name: rows for name, rows in slices.items() if len(rows) >= PART_ROWS}
    counts = {name: round(counted["rows"] or 0) for name, counted in scoring.classes(first.sums.mean(0)).items()}
    counts = {name: count for name, count in counts.items() if count >= PART_ROWS}
    tested = len(members) + len(counts)
    levels = [CONFIDENCE, *(1 - (1 - CONFIDENCE) / count for count in (max(1, tested), (tested + 1) * pairs))]
    parts = [_of_all(cells, rows=len(test.rows), levels=levels)]
    if counts:
        by_class = {start: _scores(matrices, clusters, scoring.class_f1) for start, matrices in kept.items()}
        sizes = sizes_of(clusters, len(test.rows))
        for name, count in counts.items():
            scores = {start: metrics[name] for start, metrics in by_class.items()}
            parts.append(_part(("class", name), count, scores, sizes, levels))
    for name, rows in members.items():
        inside = clusters_within(test.rows.clusters, rows)
        scores = {
            start: _scores([scoring.of_part(matrix[rows]) for matrix in matrices], inside, scoring.scores)[scoring.main]
            for start, matrices in kept.items()
        }
        parts.append(_part(("slice", name), len(rows), scores, sizes_of(inside, len(rows)), levels))
    return parts


def _scores(
    matrices: Sequence[sparse.csr_array], clusters: Ints | None, scores: Callable[[Floats], dict[str, Floats]]
) -> dict[str, Floats]:
    """Metric -> (S, 1 + G): the score of each seed, followed by those without each cluster."""
    pairs = [(scores(np.asarray(matrix.sum(0))), left_out(matrix, clusters, scores)) for matrix in matrices]
    return {name: np.stack([np.append(whole[name], without[name]) for whole, without in pairs]) for name in pairs[0][0]}


def _of_all(cells: Mapping[str, Cell], *, rows: int, levels: Sequence[float]) -> dict[str, Any]:
    scratch = cells[SCRATCH]
    starts = {}
    for start, cell in cells.items():
        if start != SCRATCH:
            alone, _, corrected = (cell.difference(scratch, confidence=level) for level in levels)
            starts[start] = _compared(cell.main, alone, alone, corrected)
    return {"part": "all", "name": "", "rows": rows, "scratch": scratch.main.as_dict(), "starts": starts}


def _compared(score: Interval, difference: Interval, tested: Interval, corrected: Interval) -> dict[str, Any]:
    values = {"score": score.as_dict(), "difference": difference.as_dict()}
    return values | {"hurts": tested.high < 0, "corrected": corrected.as_dict()}


def _part(
    part: tuple[str, str], rows: int, by_start: Mapping[str, Floats], sizes: Floats, levels: Sequence[float]
) -> dict[str, Any]:
    """A class or slice, from start -> (S, 1 + G) scores. Training noise is pooled over the starts. `levels`: of the
    interval that is shown, corrected for the parts of a family, and for those of all families."""
    noise = training_noise(np.stack([scores[:, 0] for scores in by_start.values()]))

    def around(scores: Floats, *of: Floats, level: float = levels[0]) -> Interval:
        training = noise.of(*(runs[:, 0] for runs in of)) if noise is not None else None
        return interval(scores[:, 0], scores[:, 1:], sizes, confidence=level, training=training)

    scratch = by_start[SCRATCH]
    starts = {
        start: _compared(
            around(scores, scores), *(around(scores - scratch, scores, scratch, level=level) for level in levels)
        )
        for start, scores in by_start.items()
        if start != SCRATCH
    }
    alone = around(scratch, scratch).as_dict()
    return {"part": part[0], "name": part[1], "rows": rows, "scratch": alone, "starts": starts}
