"""The number of labels with which training from scratch reaches the score of a transferred system.

The number is the one at which the paired difference between scratch and the transferred system crosses zero,
interpolated along the label curve of scratch (`benefits.labels_needed`). Its bounds are the numbers at which the bounds
of that difference cross zero: with fewer labels scratch is shown to be worse, with more it is shown to be better.

If scratch does not reach the score with its largest budget, `labels` is None; likewise for the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.data.scoring import title
from components.evaluation.aggregates import Cell, unit
from components.evaluation.benefits import curve_of, labels_needed
from components.evaluation.compare import SCRATCH, Cells, Systems, transferred
from components.settings.names import VECTORS


def worth(cells: Cells, systems: Systems, *, confidence: float) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """{family: {start: [{budget, labels, score, most, needed: {labels, low, high}, ratio: {mean, low, high}}]}} for
    every transferred system whose family was also trained from scratch. `most` is the number of labels of scratch's
    largest budget; `ratio` is needed / labels, or None."""
    saved: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for system, (family, start) in transferred(systems).items():
        if curve := curve_of(cells, f"{family}-{SCRATCH}"):
            entries = [_entry(cell, curve, confidence=confidence) for cell in curve_of(cells, system)]
            saved.setdefault(family, {})[start] = [entry for entry in entries if entry is not None]
    return saved


def headline(cells: Cells, saved: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """One sentence: what transfer was worth at the smallest budget, for the system that is best in selection. Empty
    if no family has both a transferred system and one trained from scratch."""
    entries = [
        (family, start, entry)
        for family, starts in saved.items()
        for start, of in starts.items()
        if not start.startswith(VECTORS)
        for entry in of
    ]
    if not entries:
        return ""
    least = min(entry["labels"] for _, _, entry in entries)
    family, start, entry = max(
        (of for of in entries if of[2]["labels"] == least),
        key=lambda of: cells[f"{of[0]}-{of[1]}", of[2]["budget"]].selection,
    )
    scoring = next(iter(cells.values())).scoring
    needed, ratio, label_unit = entry["needed"], entry["ratio"], unit(scoring)
    reached = (
        f"With {rounded(entry['labels'])} {label_unit}, {family} ({start}) reaches {title(scoring.main)} "
        f"{entry['score']:.3f}; training from scratch needs"
    )
    if needed["labels"] is None:
        beyond = f"{reached} more than {rounded(entry['most'])} {label_unit}"
        if entry["most"] == entry["labels"]:
            return f"{beyond}; an estimate needs larger budgets."
        return f"{beyond}: transfer was worth over {rounded(entry['most'] / entry['labels'])} times the labels."
    first = curve_of(cells, f"{family}-{SCRATCH}")[0]
    # If the curve of scratch starts above the score, the number of labels is only an upper bound.
    fewer, most = (" or fewer", "no more than ") if first.main.mean >= entry["score"] else ("", "")
    high = f"more than {rounded(entry['most'])}" if needed["high"] is None else rounded(needed["high"])
    return (
        f"{reached} {rounded(needed['labels'])}{fewer} {label_unit} [{rounded(needed['low'])}, {high}]: transfer was "
        f"worth {most}{rounded(ratio['mean'])} times the labels."
    )


def _entry(cell: Cell, curve: Sequence[Cell], *, confidence: float) -> dict[str, Any] | None:
    if not set(cell.seeds).intersection(*(of.seeds for of in curve)):
        return None
    labels = [of.labels for of in curve]
    short = [of.difference(cell, confidence=confidence) for of in curve]
    needed, low, high = (
        labels_needed(0.0, labels=labels, scores=scores)
        for scores in ([of.mean for of in short], [of.high for of in short], [of.low for of in short])
    )
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


def rounded(value: float | None) -> str:
    """A number of labels with three significant digits, or all digits of a whole number; None exceeds all budgets."""
    if value is None:
        return "more than available"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
