"""Negative transfer (Pan and Yang 2010, section 2.3; Wang et al. 2019): scratch, pretrained and adapted for each class
and each slice, with intervals over seeds and test rows. A part counts as hurt only if the interval of its paired
difference to scratch is below zero at a Bonferroni-corrected confidence level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from components.evaluation.compare import SCRATCH, Cells, Systems, transferred

#: Minimum number of test rows of a class or slice for which negative transfer is tested.
PART_ROWS: Final = 20


def transfer(cells: Cells, systems: Systems, test: TestSplit) -> dict[str, list[dict[str, Any]]]:
    """{family: [{budget, parts: [{part, name, rows, scratch: {mean, low, high}, starts: {start: {score: {...},
    difference: {...}, hurts}}}]}]} for every family with a system from scratch and a transferred one.

    The first part is `all`. A part of the kind `class` has the F1 of the class, `all` and `slice` have the primary
    metric. Classes and slices with fewer than `PART_ROWS` rows are omitted.
    """
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
                compared.setdefault(family, []).append({"budget": budget, "parts": _parts(present, test)})
    return compared


def _parts(cells: Mapping[str, Cell], test: TestSplit) -> list[dict[str, Any]]:
    first = next(iter(cells.values()))
    seeds = sorted(set.intersection(*(set(cell.seeds) for cell in cells.values())))
    kept = {start: [cell.rows[cell.seeds.index(seed)] for seed in seeds] for start, cell in cells.items()}
    scoring, clusters = first.scoring, clusters_within(test.rows.clusters, np.arange(len(test.rows)), least=2)
    slices = slice_members(test.rows.slices)
    members = {name: rows for name, rows in slices.items() if len(rows) >= PART_ROWS}
    counts = {name: round(counted["rows"] or 0) for name, counted in scoring.classes(first.sums.mean(0)).items()}
    counts = {name: count for name, count in counts.items() if count >= PART_ROWS}
    corrected = 1 - (1 - CONFIDENCE) / max(1, len(members) + len(counts))
    parts = [_of_all(cells, rows=len(test.rows), confidence=CONFIDENCE)]
    if counts:
        by_class = {start: _scores(matrices, clusters, scoring.class_f1) for start, matrices in kept.items()}
        sizes = sizes_of(clusters, len(test.rows))
        for name, count in counts.items():
            scores = {start: metrics[name] for start, metrics in by_class.items()}
            parts.append(_part(("class", name), count, scores, sizes, CONFIDENCE, corrected))
    for name, rows in members.items():
        inside = clusters_within(test.rows.clusters, rows)
        scores = {
            start: _scores([matrix[rows] for matrix in matrices], inside, scoring.scores)[scoring.main]
            for start, matrices in kept.items()
        }
        parts.append(_part(("slice", name), len(rows), scores, sizes_of(inside, len(rows)), CONFIDENCE, corrected))
    return parts


def _scores(
    matrices: Sequence[sparse.csr_array], clusters: Ints | None, scores: Callable[[Floats], dict[str, Floats]]
) -> dict[str, Floats]:
    """Metric -> (S, 1 + G): the score of each seed, followed by those without each cluster."""
    pairs = [(scores(np.asarray(matrix.sum(0))), left_out(matrix, clusters, scores)) for matrix in matrices]
    return {name: np.stack([np.append(whole[name], without[name]) for whole, without in pairs]) for name in pairs[0][0]}


def _of_all(cells: Mapping[str, Cell], *, rows: int, confidence: float) -> dict[str, Any]:
    scratch = cells[SCRATCH]
    starts = {}
    for start, cell in cells.items():
        if start != SCRATCH:
            difference = cell.difference(scratch, confidence=confidence)
            starts[start] = {
                "score": cell.main.as_dict(),
                "difference": difference.as_dict(),
                "hurts": difference.high < 0,
            }
    return {"part": "all", "name": "", "rows": rows, "scratch": scratch.main.as_dict(), "starts": starts}


def _part(
    part: tuple[str, str], rows: int, by_start: Mapping[str, Floats], sizes: Floats, confidence: float, corrected: float
) -> dict[str, Any]:
    """A class or slice, from start -> (S, 1 + G) scores. Training noise is pooled over the starts."""
    noise = training_noise(np.stack([scores[:, 0] for scores in by_start.values()]))

    def around(scores: Floats, *of: Floats, level: float = confidence) -> Interval:
        training = noise.of(*(runs[:, 0] for runs in of)) if noise is not None else None
        return interval(scores[:, 0], scores[:, 1:], sizes, confidence=level, training=training)

    scratch = by_start[SCRATCH]
    starts = {
        start: {
            "score": around(scores, scores).as_dict(),
            "difference": around(scores - scratch, scores, scratch).as_dict(),
            "hurts": around(scores - scratch, scores, scratch, level=corrected).high < 0,
        }
        for start, scores in by_start.items()
        if start != SCRATCH
    }
    alone = around(scratch, scratch).as_dict()
    return {"part": part[0], "name": part[1], "rows": rows, "scratch": alone, "starts": starts}
