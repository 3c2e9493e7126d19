"""How many labels the transfer was worth: the number at which the same family from scratch reaches the same score.

The number is read off the curve of scratch as in `benefits.labels_needed`. Its interval is a bootstrap over both things
that are random, training and test rows: each draw takes as many seeds as there are, with replacement, and test rows
likewise, the same for both systems and all budgets, and reads the number off the mean scores of that draw. The bounds
are percentiles (Efron and Tibshirani 1993, chapter 13). With three seeds they are rather too narrow than too wide.

Where scratch does not get there with all the labels it was given, the number is beyond them: `labels` is null, and so
is `high` where that happens in more draws than the interval leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.evaluation.aggregates import Cell, budgets_of, unit
from components.evaluation.benefits import labels_needed
from components.evaluation.compare import SCRATCH, Systems
from components.scoring import title
from components.settings.names import BASELINE, FROZEN

Floats = NDArray[np.float64]


def worth(
    cells: Mapping[tuple[str, int], Cell], systems: Systems, *, confidence: float
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """{family: {start: [{budget, labels, score, most, needed: {labels, low, high}, ratio: {mean, low, high}}]}} for
    every transferred system whose family was also trained from scratch. `most` is scratch's largest number of labels;
    `ratio` is needed / labels, null where that is."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for system, (family, start) in systems.items():
        scratch = f"{family}-{SCRATCH}"
        if family == BASELINE or start.startswith(SCRATCH) or start.endswith(FROZEN) or scratch not in systems:
            continue
        curve = [cells[scratch, budget] for budget in budgets_of(cells) if (scratch, budget) in cells]
        own = [cells[system, budget] for budget in budgets_of(cells) if (system, budget) in cells]
        entries = [_entry(cell, curve, confidence=confidence) for cell in own]
        found.setdefault(family, {})[start] = [entry for entry in entries if entry is not None]
    return found


def headline(
    cells: Mapping[tuple[str, int], Cell], found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
) -> str:
    """One sentence: what transfer was worth to the system that does best on dev with the fewest labels; empty where
    nothing was both transferred and trained from scratch."""
    entries = [
        (family, start, entry) for family, starts in found.items() for start, of in starts.items() for entry in of
    ]
    if not entries:
        return ""
    least = min(entry["labels"] for _, _, entry in entries)
    family, start, entry = max(
        (found for found in entries if found[2]["labels"] == least),
        key=lambda found: cells[f"{found[0]}-{found[1]}", found[2]["budget"]].dev,
    )
    scoring = next(iter(cells.values())).scoring
    needed, ratio = entry["needed"], entry["ratio"]
    reached = (
        f"With {number(entry['labels'])} {unit(scoring)}, {family} ({start}) reaches {title(scoring.main)} "
        f"{entry['score']:.3f}; from scratch that takes"
    )
    if needed["labels"] is None:
        beyond = f"{reached} more than {number(entry['most'])}"
        if entry["most"] == entry["labels"]:
            return f"{beyond}; how many more, other budgets would show."
        return f"{beyond}: transfer was worth over {number(entry['most'] / entry['labels'])} times the labels."
    scratch = f"{family}-{SCRATCH}"
    first = next(cells[scratch, budget] for budget in budgets_of(cells) if (scratch, budget) in cells)
    # Where the curve of scratch begins above the score, how few labels would do is not known.
    fewer, most = (" or fewer", "no more than ") if first.main.mean >= entry["score"] else ("", "")
    high = f"more than {number(entry['most'])}" if needed["high"] is None else number(needed["high"])
    return (
        f"{reached} {number(needed['labels'])}{fewer} [{number(needed['low'])}, {high}]: transfer was worth {most}"
        f"{number(ratio['mean'])} times the labels."
    )


def _entry(cell: Cell, curve: Sequence[Cell], *, confidence: float) -> dict[str, Any] | None:
    seeds = sorted(set(cell.seeds).intersection(*(of.seeds for of in curve)))
    if not seeds:
        return None
    main = cell.scoring.main
    labels = [of.labels for of in curve]
    needed = labels_needed(cell.main.mean, labels=labels, scores=[of.main.mean for of in curve])
    (ours, *theirs) = (of.draws[main][[of.seeds.index(seed) for seed in seeds]] for of in (cell, *curve))  # each (S, R)
    resamples = ours.shape[1]
    chosen = np.random.default_rng(0).integers(len(seeds), size=(len(seeds), resamples))
    column = np.arange(resamples)
    score = ours[chosen, column].mean(0)
    scores = np.stack([of[chosen, column].mean(0) for of in theirs], axis=1)
    draws = np.asarray(
        [
            math.inf if (number := labels_needed(one, labels=labels, scores=row)) is None else number
            for one, row in zip(score, scores, strict=True)
        ]
    )
    # No value is made up between two draws: one of them may be beyond the curve.
    bounds = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf")
    low, high = (None if math.isinf(bound) else float(bound) for bound in bounds)
    return {
        "budget": cell.budget,
        "labels": cell.labels,
        "score": cell.main.mean,
        "most": labels[-1],
        "needed": {"labels": needed, "low": low, "high": high},
        "ratio": {
            name: None if value is None else value / cell.labels
            for name, value in (("mean", needed), ("low", low), ("high", high))
        },
    }


def number(value: float | None) -> str:
    """Three digits, all of them for whole numbers."""
    if value is None:
        return "more than there are"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
