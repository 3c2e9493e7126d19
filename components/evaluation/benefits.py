"""The three benefits of transfer and the number of labels that it saves.

A transferred model may have a higher start, a higher slope and a higher asymptote than one trained from scratch (Torrey
and Shavlik 2010, figure 2). They are computed from two curves:

training  dev metric against epochs, at the largest label budget. Start: before the encoder is updated (a head on its
          frozen features). Asymptote: the maximum. Slope: gain per epoch, from the start to the first point that
          reaches 90% of the gain.
labels    test metric against labels per class. Start: the smallest budget. Asymptote: the largest budget. Slope: gain
          per doubling of the labels (least squares). A start near the maximum leaves less to gain, so a higher start
          and asymptote often come with a lower slope. The curve needs at least two budgets.

Labels are counted per class, or in rows for kinds whose budgets count rows (`aggregates.unit`).

Each is reported for both systems and as a difference, with intervals over seeds, and for the label curve over test
rows. Differences are paired by seed, since runs with the same seed use the same labels.

The number of labels that transfer saves is where the paired difference between scratch and the transferred system
crosses zero, interpolated along the label curve of scratch; its bounds are where the bounds of that difference do. It
is None if scratch does not reach the score with its largest budget.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.data.scoring import title
from components.data.scoring.intervals import Interval, interval
from components.evaluation.aggregates import Cell, Run, budgets_of, mean_of, unit
from components.evaluation.compare import SCRATCH, Cells, Systems, best_selected, transferred
from components.settings.section import BASELINE, VECTORS

Floats = NDArray[np.float64]
Benefit = dict[str, Any]

#: Fraction of the gain up to which the slope of a training curve is measured.
RISE = 0.9


def benefit(transferred: Interval, scratch: Interval, difference: Interval, *, seeds: int) -> Benefit:
    """One of the three benefits as in evaluation.json. `holds`: the interval of the difference is above zero; false for
    a single seed, which has no interval over seeds."""
    intervals = {"transferred": transferred, "scratch": scratch, "difference": difference}
    return {name: of.as_dict() for name, of in intervals.items()} | {"holds": seeds > 1 and difference.low > 0}


def training_benefits(epochs: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Start, slope (gain per epoch) and asymptote of one run's dev curve. A curve with one point has slope 0."""
    start, best = scores[0], max(scores)
    end = next(index for index, score in enumerate(scores) if score >= start + RISE * (best - start))
    time = epochs[end] - epochs[0]
    return {"start": start, "slope": (scores[end] - start) / time if time else 0.0, "asymptote": best}


def label_slope(labels: Sequence[float], scores: Floats) -> Floats:
    """Gain per doubling of the labels.

    Args:
        scores: (K, M) the metric at each of them, of M curves.

    Returns:
        (M,)
    """
    return np.asarray(np.polyfit(np.log2(labels), scores, 1)[0])


def compare(
    transferred: Mapping[int, Mapping[str, float | Floats]],
    scratch: Mapping[int, Mapping[str, float | Floats]],
    *,
    confidence: float,
    sizes: Floats | None = None,
) -> dict[str, Benefit]:
    """Benefits over the common seeds of two systems. `sizes`: (G,) rows of the clusters of test rows; None: the values
    do not come from test."""
    seeds = sorted(transferred.keys() & scratch.keys())

    def around(values: Floats) -> Interval:
        return interval(values[:, 0], None if sizes is None else values[:, 1:], sizes, confidence=confidence)

    benefits = {}
    for name in transferred[seeds[0]]:
        ours, theirs = (np.stack([np.atleast_1d(of[seed][name]) for seed in seeds]) for of in (transferred, scratch))
        benefits[name] = benefit(around(ours), around(theirs), around(ours - theirs), seeds=len(seeds))
    return benefits


def curve_of(cells: Cells, system: str) -> list[Cell]:
    return [cells[system, budget] for budget in budgets_of(cells) if (system, budget) in cells]


def family_benefits(
    runs: Sequence[Run], cells: Cells, systems: Systems, *, confidence: float
) -> dict[str, dict[str, dict[str, dict[str, Benefit]]]]:
    """{family: {start: {"training" | "labels": {start, slope, asymptote}}}} for every start other than scratch.
    "labels" is omitted if there is only one budget."""
    largest = budgets_of(cells)[-1]
    main = next(iter(cells.values())).scoring.main

    def by_training(system: str) -> dict[int, dict[str, float]]:
        chosen = {run.seed: run.record["curve"] for run in runs if (run.system, run.budget) == (system, largest)}
        return {
            seed: training_benefits([point["epoch"] for point in curve], [point[main] for point in curve])
            for seed, curve in chosen.items()
        }

    benefits: dict[str, dict[str, dict[str, dict[str, Benefit]]]] = {}
    for system, (family, start) in transferred(systems).items():
        scratch = f"{family}-{SCRATCH}"
        if scratch not in systems:
            continue
        axes = {"training": compare(by_training(system), by_training(scratch), confidence=confidence)}
        ours, theirs = curve_of(cells, system), curve_of(cells, scratch)
        if all(len({cell.labels for cell in curve}) > 1 for curve in (ours, theirs)):
            slope = compare(_slopes(ours), _slopes(theirs), sizes=ours[0].sizes, confidence=confidence)
            first, last = (_at(ours[end], theirs[end], confidence=confidence) for end in (0, -1))
            axes["labels"] = {"start": first, **slope, "asymptote": last}
        benefits.setdefault(family, {})[start] = axes
    return benefits


def _at(ours: Cell, theirs: Cell, *, confidence: float) -> Benefit:
    difference = ours.difference(theirs, confidence=confidence)
    return benefit(ours.main, theirs.main, difference, seeds=len(set(ours.seeds) & set(theirs.seeds)))


def _slopes(curve: Sequence[Cell]) -> dict[int, dict[str, Floats]]:
    """The slope of every seed, followed by those without each cluster of test rows."""
    slopes = {}
    for seed in set.intersection(*(set(cell.seeds) for cell in curve)):
        rows = [(cell, cell.seeds.index(seed)) for cell in curve]
        points = [np.append(cell.values[cell.scoring.main][row], cell.without[row]) for cell, row in rows]
        slopes[seed] = {"slope": label_slope([cell.labels for cell in curve], np.stack(points))}
    return slopes


def label_efficiency(
    cells: Cells, systems: Systems, *, confidence: float
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """For every transferred system and budget: the number of labels with which the same family trained from scratch,
    and the baseline that is best in selection, reach the same score.

    Returns:
        {family: {start: [{budget, labels, score, against: {system: {least, most, needed: {labels, low, high}, ratio:
        {mean, low, high, most}}}}]}}. `least` and `most` are the numbers of labels of the system's smallest and
        largest budget, `ratio` is needed / labels. None: the largest budget does not reach it.
    """
    fixed = [system for system, (family, _) in systems.items() if family == BASELINE]
    rivals = [best_selected(cells, fixed, budgets_of(cells)[-1])] if fixed else []
    efficiency: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for system, (family, start) in transferred(systems).items():
        curves = {name: curve_of(cells, name) for name in [f"{family}-{SCRATCH}", *rivals] if name in systems}
        efficiency.setdefault(family, {})[start] = [
            {
                "budget": cell.budget,
                "labels": cell.labels,
                "score": cell.main.mean,
                "against": {
                    name: _needed(cell, curve, confidence=confidence)
                    for name, curve in curves.items()
                    if set(cell.seeds).intersection(*(of.seeds for of in curve))
                },
            }
            for cell in curve_of(cells, system)
        ]
    return efficiency


def training_curve(runs: Sequence[Run], *, main: str) -> list[dict[str, float]]:
    """Mean dev metric over the seeds of the largest budget, at the epochs that all of them have."""
    largest = max((run.budget for run in runs), key=lambda budget: (budget < 0, budget))
    curves = [{point["epoch"]: point[main] for point in run.record["curve"]} for run in runs if run.budget == largest]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    return [{"epoch": epoch, main: mean_of([curve[epoch] for curve in curves])} for epoch in common]


def labels_needed(score: float, *, labels: Sequence[float], scores: Sequence[float]) -> float | None:
    """Labels per class at which a system reaches `score`.

    Args:
        scores: its metric at each of them, interpolated linearly in log(labels).

    Returns:
        The smallest budget if the curve starts above `score`; None if the curve does not reach it.
    """
    if scores[0] >= score:
        return float(labels[0])
    for index in range(1, len(labels)):
        if scores[index] >= score:
            fraction = (score - scores[index - 1]) / (scores[index] - scores[index - 1])
            low, high = np.log(labels[index - 1]), np.log(labels[index])
            return float(np.exp(low + fraction * (high - low)))
    return None


def headline(cells: Cells, saved: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """One sentence: what transfer was worth at the smallest budget (`saved`: of `label_efficiency`), for the system
    that is best in selection. Empty if no family has both a transferred system and one trained from scratch."""
    entries = [
        (f"{family} ({start})", entry, entry["against"][scratch], cells[f"{family}-{start}", entry["budget"]].selection)
        for family, starts in saved.items()
        for start, of in starts.items()
        if not start.startswith(VECTORS)
        for entry in of
        if (scratch := f"{family}-{SCRATCH}") in entry["against"]
    ]
    if not entries:
        return ""
    least = min(entry["labels"] for _, entry, _, _ in entries)
    system, entry, against, _ = max((of for of in entries if of[1]["labels"] == least), key=lambda of: of[3])
    scoring = next(iter(cells.values())).scoring
    needed, ratio, label_unit = against["needed"], against["ratio"], unit(scoring)
    reached = (
        f"With {rounded(entry['labels'])} {label_unit}, {system} reaches {title(scoring.main)} "
        f"{entry['score']:.3f}; training from scratch needs"
    )
    beyond = f"more than {rounded(against['most'])}"
    if needed["low"] is None and against["most"] == entry["labels"]:
        return f"{reached} {beyond} {label_unit}; an estimate needs larger budgets."
    if needed["low"] is None:
        return f"{reached} {beyond} {label_unit}: transfer was worth over {rounded(ratio['most'])} times the labels."
    # If the curve of scratch starts above the score, the number of labels is only an upper bound.
    fewer = " or fewer" if needed["labels"] == against["least"] else ""
    estimate, high = (beyond if needed[name] is None else rounded(needed[name]) for name in ("labels", "high"))
    reached += f" {estimate}{fewer} {label_unit} [{rounded(needed['low'])}, {high}]"
    if ratio["low"] <= 1:
        return f"{reached}: that transfer saves labels is not shown."
    least, times = (None if ratio[name] is None else rounded(ratio[name]) for name in ("low", "mean"))
    return f"{reached}: transfer was worth {times or least} times the labels{'' if times else ' or more'}."


def _needed(cell: Cell, curve: Sequence[Cell], *, confidence: float) -> dict[str, Any]:
    labels = [of.labels for of in curve]
    short = [of.difference(cell, confidence=confidence) for of in curve]
    needed, low, high = (
        labels_needed(0.0, labels=labels, scores=scores)
        for scores in ([of.mean for of in short], [of.high for of in short], [of.low for of in short])
    )
    values = (("mean", needed), ("low", low), ("high", high), ("most", labels[-1]))
    return {
        "least": labels[0],
        "most": labels[-1],
        "needed": {"labels": needed, "low": low, "high": high},
        "ratio": {name: None if value is None else value / cell.labels for name, value in values},
    }


def rounded(value: float | None) -> str:
    """A number of labels with three significant digits, or all digits of a whole number; None exceeds all budgets."""
    if value is None:
        return "more than available"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
