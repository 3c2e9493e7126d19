"""Where transfer hurts: scratch, pretrained and adapted beside each other, class by class and slice by slice.

A better mean can hide a class that got worse ("negative transfer", Pan and Yang 2010, section 2.3; Wang et al. 2019).
Every part has the score of each start with an interval over seeds and test rows, and for each transferred start the
difference to scratch with an interval of its own, paired by seed and by row. Among many parts some fall by chance, so a
part counts as hurt only if the whole interval of its difference lies below zero at a confidence that Bonferroni's
correction raises by the number of parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.evaluation.aggregates import Cell, budgets_of, slice_members
from components.evaluation.compare import SCRATCH, Systems
from components.evaluation.intervals import interval
from components.evaluation.results import TestSplit
from components.scoring import resampled
from components.settings.evaluate import EvaluateSettings
from components.settings.names import BASELINE, FROZEN

Floats = NDArray[np.float64]
#: What a part is: all rows together, one class, one slice.
Part = tuple[str, str]
ALL: Part = ("all", "")


def transfer(
    cells: Mapping[tuple[str, int], Cell], systems: Systems, test: TestSplit, settings: EvaluateSettings
) -> dict[str, list[dict[str, Any]]]:
    """{family: [{budget, parts: [{part, name, rows, scratch: {mean, low, high}, starts: {start: {score: {...},
    difference: {...}, hurts}}}]}]} for every family with a system from scratch and a transferred one.

    `part` is all, class (scored by its F1) or slice (by the deciding score), as is the first one, all rows. Classes
    and slices with less than `part_rows` rows are left out.
    """
    families: dict[str, list[str]] = {}
    for family, start in systems.values():
        transferred = family != BASELINE and not start.endswith(FROZEN) and not start.startswith(SCRATCH)
        if transferred and f"{family}-{SCRATCH}" in systems:
            families.setdefault(family, []).append(start)
    found: dict[str, list[dict[str, Any]]] = {}
    for family, starts in families.items():
        for budget in budgets_of(cells):
            named = {start: cells.get((f"{family}-{start}", budget)) for start in (SCRATCH, *starts)}
            present = {start: cell for start, cell in named.items() if cell is not None}
            if SCRATCH in present and len(present) > 1:
                found.setdefault(family, []).append({"budget": budget, "parts": _parts(present, test, settings)})
    return found


def _parts(cells: Mapping[str, Cell], test: TestSplit, settings: EvaluateSettings) -> list[dict[str, Any]]:
    seeds = sorted(set.intersection(*(set(cell.seeds) for cell in cells.values())))
    values: dict[Part, dict[str, Floats]] = {}
    draws: dict[Part, dict[str, Floats]] = {}
    rows: dict[Part, int] = {}

    def add(part: Part, start: str, count: int, found: Floats, drawn: Floats) -> None:
        rows[part] = count
        values.setdefault(part, {})[start] = found
        draws.setdefault(part, {})[start] = drawn

    slices = slice_members(test.rows.slices)
    members = {name: found for name, found in slices.items() if len(found) >= settings.part_rows}
    for start, cell in cells.items():
        scoring, mine = cell.scoring, [cell.seeds.index(seed) for seed in seeds]
        add(ALL, start, len(test.rows), cell.values[scoring.main][mine], cell.draws[scoring.main][mine])
        for name, counted in scoring.classes(cell.sums.mean(0)).items():
            if counted["rows"] >= settings.part_rows:
                drawn = cell.class_draws[name][mine]
                add(("class", name), start, round(counted["rows"]), cell.classes[name][mine], drawn)
        for name, inside in members.items():
            matrices = [cell.rows[place][inside] for place in mine]
            sums = np.stack([np.asarray(matrix.sum(0)).ravel() for matrix in matrices])
            drawn = np.stack(resampled(matrices, resamples=settings.resamples))
            main = scoring.main
            add(("slice", name), start, len(inside), scoring.scores(sums)[main], scoring.scores(drawn)[main])
    corrected = 1 - (1 - settings.confidence) / max(1, len(values) - 1)
    parts = []
    for part, of in values.items():
        scratch, confidence = of[SCRATCH], settings.confidence if part == ALL else corrected
        starts = {}
        for start in of.keys() - {SCRATCH}:
            difference, drawn = of[start] - scratch, (draws[part][start] - draws[part][SCRATCH]).mean(0)
            starts[start] = {
                "score": interval(of[start], draws[part][start].mean(0), confidence=settings.confidence).as_dict(),
                "difference": interval(difference, drawn, confidence=settings.confidence).as_dict(),
                "hurts": interval(difference, drawn, confidence=confidence).high < 0,
            }
        parts.append(
            {
                "part": part[0],
                "name": part[1],
                "rows": rows[part],
                "scratch": interval(scratch, draws[part][SCRATCH].mean(0), confidence=settings.confidence).as_dict(),
                "starts": {start: starts[start] for start in cells if start in starts},
            }
        )
    return parts
