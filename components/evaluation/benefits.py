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

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.data.scoring import title
from components.evaluation.aggregates import Cell, Scores, budgets_of, curve_of, mean_of, unit
from components.evaluation.compare import SCRATCH, Cells, Systems, best_selected, transferred
from components.settings.section import BASELINE, VECTORS

#: Fraction of the gain up to which the slope of a training curve is measured.
RISE = 0.9
#: A row of a table in evaluation.json.
Row = dict[str, Any]


def training_benefits(epochs: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Start, slope (gain per epoch) and asymptote of one run's dev curve. A curve with one point has slope 0."""
    start, best = scores[0], max(scores)
    end = next(index for index, score in enumerate(scores) if score >= start + RISE * (best - start))
    time = epochs[end] - epochs[0]
    return {"start": start, "slope": (scores[end] - start) / time if time else 0.0, "asymptote": best}


def points_of(cells: Cells, system: str) -> dict[tuple[str, str], Scores]:
    """(axis, benefit) -> its values by seed. There is no axis of labels with a single number of labels."""
    curve = curve_of(cells, system)
    last, main = curve[-1], curve[-1].scoring.main
    by_seed = [
        training_benefits([point["epoch"] for point in of], [point[main] for point in of])
        for of in (run.record["curve"] for run in last.runs)
    ]
    points = {("epochs", name): Scores(last.seeds, np.asarray([[of[name]] for of in by_seed])) for name in by_seed[0]}
    if len({cell.labels for cell in curve}) == 1:
        return points
    seeds = sorted(set.intersection(*(set(cell.seeds) for cell in curve)))
    scores = np.stack([cell.scores.at(seeds) for cell in curve])
    # Least squares over all runs and clusters at once.
    slopes = np.polyfit(np.log2([cell.labels for cell in curve]), scores.reshape(len(curve), -1), 1)[0]
    return points | {
        ("labels", "start"): curve[0].scores,
        ("labels", "slope"): Scores(seeds, slopes.reshape(scores.shape[1:]), last.scores.sizes),
        ("labels", "asymptote"): last.scores,
    }


def benefits(cells: Cells, systems: Systems) -> list[Row]:
    """{system, against (epochs or labels), benefit, transferred, scratch, difference, higher} of every transferred
    system of a family that has one from scratch. `higher`: the interval of the difference is above zero; false for a
    single seed, which has no interval over seeds."""
    rows = []
    for system, (family, _) in transferred(systems).items():
        if (scratch := f"{family}-{SCRATCH}") not in systems:
            continue
        ours, theirs = points_of(cells, system), points_of(cells, scratch)
        for against, benefit in (key for key in ours if key in theirs):
            pair = ours[against, benefit], theirs[against, benefit]
            difference = pair[0].minus(pair[1])
            intervals = [of.interval() for of in (*pair, difference)]
            named = zip(("transferred", "scratch", "difference"), (of.as_dict() for of in intervals), strict=True)
            holds = len(difference.seeds) > 1 and intervals[-1].low > 0
            rows.append({"system": system, "against": against, "benefit": benefit, **dict(named), "higher": holds})
    return rows


def label_efficiency(cells: Cells, systems: Systems) -> list[Row]:
    """For every transferred system and budget: the number of labels with which the same family trained from scratch,
    and the baseline that is best in selection, reach the same score.

    Returns:
        [{system, budget, labels, score, against (a system), least, most, needs: {mean, low, high}, ratio: {mean, low,
        high}}]. `least` and `most` are the numbers of labels of the smallest and largest budget of `against`, `ratio`
        is needs / labels. None: the largest budget does not reach it.
    """
    fixed = [system for system, (family, _) in systems.items() if family == BASELINE]
    rivals = [best_selected(cells, fixed, budgets_of(cells)[-1])] if fixed else []
    curves, rows = {system: curve_of(cells, system) for system in systems}, []
    for system, (family, _) in transferred(systems).items():
        for cell in curves[system]:
            for name in (name for name in (f"{family}-{SCRATCH}", *rivals) if name in systems):
                if not set(cell.seeds).intersection(*(of.seeds for of in curves[name])):
                    continue
                labels = [of.labels for of in curves[name]]
                short = [of.scores.minus(cell.scores).interval() for of in curves[name]]
                needs = {
                    key: labels_needed(0.0, labels=labels, scores=[getattr(of, bound) for of in short])
                    for key, bound in (("mean", "mean"), ("low", "high"), ("high", "low"))
                }
                ratio = {key: None if value is None else value / cell.labels for key, value in needs.items()}
                row = {"system": system, "budget": cell.budget, "labels": cell.labels, "score": cell.main.mean}
                rows.append(
                    row | {"against": name, "least": labels[0], "most": labels[-1], "needs": needs, "ratio": ratio}
                )
    return rows


def training_curve(cell: Cell) -> list[dict[str, float]]:
    """Mean dev metric over the seeds, at the epochs that all of them have."""
    main = cell.scoring.main
    curves = [{point["epoch"]: point[main] for point in run.record["curve"]} for run in cell.runs]
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


def headline(cells: Cells, systems: Systems, saved: Sequence[Row]) -> str:
    """One sentence: what transfer was worth at the smallest budget (`saved`: of `label_efficiency`), for the system
    that is best in selection. Empty if no family has both a transferred system and one trained from scratch."""
    rows = [
        row
        for row in saved
        if row["against"] == f"{systems[row['system']][0]}-{SCRATCH}"
        and not systems[row["system"]][1].startswith(VECTORS)
    ]
    if not rows:
        return ""
    least = min(row["labels"] for row in rows)
    at_least = [row for row in rows if row["labels"] == least]
    row = max(at_least, key=lambda row: cells[row["system"], row["budget"]].selection)
    scoring = next(iter(cells.values())).scoring
    needs, ratio, label_unit = row["needs"], row["ratio"], unit(scoring)
    family, start = systems[row["system"]]
    reached = (
        f"With {rounded(row['labels'])} {label_unit}, {family} ({start}) reaches {title(scoring.main)} "
        f"{row['score']:.3f}; training from scratch needs"
    )
    beyond = f"more than {rounded(row['most'])}"
    if needs["low"] is None and row["most"] == row["labels"]:
        return f"{reached} {beyond} {label_unit}; an estimate needs larger budgets."
    if needs["low"] is None:
        times = rounded(row["most"] / row["labels"])
        return f"{reached} {beyond} {label_unit}: transfer was worth over {times} times the labels."
    # If the curve of scratch starts above the score, the number of labels is only an upper bound.
    fewer = " or fewer" if needs["mean"] == row["least"] else ""
    estimate, high = (beyond if needs[name] is None else rounded(needs[name]) for name in ("mean", "high"))
    reached += f" {estimate}{fewer} {label_unit} [{rounded(needs['low'])}, {high}]"
    if ratio["low"] <= 1:
        return f"{reached}: that transfer saves labels is not shown."
    or_more = "" if ratio["mean"] is not None else " or more"
    times = rounded(ratio["low"] if or_more else ratio["mean"])
    return f"{reached}: transfer was worth {times} times the labels{or_more}."


def rounded(value: float) -> str:
    """A number of labels with three significant digits, or all digits of a whole number."""
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
