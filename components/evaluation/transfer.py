"""Negative transfer: scratch, pretrained and adapted compared for each class and each slice.

A better mean can hide a class that became worse ("negative transfer", Pan and Yang 2010, section 2.3; Wang et al.
2019). For every part of the test set, each start has an interval over seeds and test rows, and each transferred start
an interval of its difference to scratch, paired by seed and by row. Among many parts some decrease by chance, so a part
counts as hurt only if the interval of its difference is below zero at a Bonferroni-corrected confidence level.
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
#: Part of the test set: (all | class | slice, name).
Part = tuple[str, str]
ALL: Part = ("all", "")


def transfer(
    cells: Mapping[tuple[str, int], Cell], systems: Systems, test: TestSplit, settings: EvaluateSettings
) -> dict[str, list[dict[str, Any]]]:
    """{family: [{budget, parts: [{part, name, rows, scratch: {mean, low, high}, starts: {start: {score: {...},
    difference: {...}, hurts}}}]}]} for every family with a system from scratch and a transferred one.

    The first part is `all`. A part of the kind `class` has the F1 of the class, `all` and `slice` have the primary
    metric. Classes and slices with fewer than `part_rows` rows are omitted.
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
    resamples: dict[Part, dict[str, Floats]] = {}
    rows: dict[Part, int] = {}

    def add(part: Part, start: str, count: int, found: Floats, on_resamples: Floats) -> None:
        rows[part] = count
        values.setdefault(part, {})[start] = found
        resamples.setdefault(part, {})[start] = on_resamples

    slices = slice_members(test.rows.slices)
    members = {name: found for name, found in slices.items() if len(found) >= settings.part_rows}
    for start, cell in cells.items():
        scoring, mine = cell.scoring, [cell.seeds.index(seed) for seed in seeds]
        add(ALL, start, len(test.rows), cell.values[scoring.main][mine], cell.resampled[scoring.main][mine])
        for name, counted in scoring.classes(cell.sums.mean(0)).items():
            if (rows_of := counted["rows"] or 0) >= settings.part_rows:
                f1, f1_resampled = cell.classes[name][mine], cell.class_resampled[name][mine]
                add(("class", name), start, round(rows_of), f1, f1_resampled)
        for name, inside in members.items():
            matrices = [cell.rows[index][inside] for index in mine]
            sums = np.stack([np.asarray(matrix.sum(0)).ravel() for matrix in matrices])
            resampled_sums = np.stack(resampled(matrices, resamples=settings.resamples))
            main = scoring.main
            add(("slice", name), start, len(inside), scoring.scores(sums)[main], scoring.scores(resampled_sums)[main])
    corrected = 1 - (1 - settings.confidence) / max(1, len(values) - 1)
    parts = []
    for part, of in values.items():
        scratch, confidence = of[SCRATCH], settings.confidence if part == ALL else corrected
        starts = {}
        for start in of.keys() - {SCRATCH}:
            difference = of[start] - scratch
            paired = (resamples[part][start] - resamples[part][SCRATCH]).mean(0)
            starts[start] = {
                "score": interval(of[start], resamples[part][start].mean(0), confidence=settings.confidence).as_dict(),
                "difference": interval(difference, paired, confidence=settings.confidence).as_dict(),
                "hurts": interval(difference, paired, confidence=confidence).high < 0,
            }
        own = interval(scratch, resamples[part][SCRATCH].mean(0), confidence=settings.confidence)
        parts.append(
            {
                "part": part[0],
                "name": part[1],
                "rows": rows[part],
                "scratch": own.as_dict(),
                "starts": {start: starts[start] for start in cells if start in starts},
            }
        )
    return parts
