"""Comparisons of systems: pairwise differences, the three benefits of transfer, the number of labels that it saves, and
where it hurts.

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

Negative transfer (Pan and Yang 2010, section 2.3; Wang et al. 2019): a class or slice counts as hurt only if the
interval of its paired difference to scratch is below zero at a Bonferroni-corrected confidence level.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from components.data.scoring import title
from components.data.scoring.base import Floats
from components.data.scoring.intervals import CONFIDENCE, Ints, clusters_within, sizes_of, training_noise
from components.evaluation.aggregates import (
    Cell,
    Json,
    Scores,
    TestSplit,
    budgets_of,
    curve_of,
    mean_of,
    measured,
    slice_members,
    unit,
)
from components.settings.section import BASELINE, VECTORS
from components.settings.systems import System

SCRATCH = "scratch"
#: Fraction of the gain up to which the slope of a training curve is measured.
RISE = 0.9
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


def differences(cells: Cells) -> Json:
    """{budget: {system: {other: {mean, low, high, clear}}}}: system minus other, paired by seed and by test row, each
    pair of a budget in one order. `clear`: whether the interval excludes 0 at the confidence that is corrected for the
    number of pairs of the budget (Bonferroni)."""
    compared: Json = {}
    for budget in budgets_of(cells):
        chosen = [cell for (_, of), cell in cells.items() if of == budget]
        pairs = [pair for pair in combinations(chosen, 2) if set(pair[0].seeds) & set(pair[1].seeds)]
        compared[str(budget)] = rows = defaultdict[str, Json](dict)
        for cell, other in pairs:
            difference = cell.scores.minus(other.scores)
            clear = difference.interval(1 - (1 - CONFIDENCE) / len(pairs)).clear
            rows[cell.system][other.system] = difference.interval().as_dict() | {"clear": clear}
    return compared


def best_by_budget(cells: Cells) -> dict[int, str]:
    """Budget -> system with the best mean on test. For display only; nothing is selected by it."""
    return {
        budget: max((name for name, of in cells if of == budget), key=lambda name: cells[name, budget].main.mean)
        for budget in budgets_of(cells)
    }


#: Minimum number of test rows of a class or slice for which negative transfer is tested.
PART_ROWS = 20


def transfer(cells: Cells, systems: Systems, test: TestSplit) -> Json:
    """{family: [{budget, parts: [{part, name, rows, scratch: {mean, low, high}, starts: {start: {score: {...},
    difference: {...}, hurts, corrected: {...}}}}]}]} for every family with a system from scratch and a transferred one.
    The first part is `all`. A part of the kind `class` has the F1 of the class, `all` and `slice` have the primary
    metric. Classes and slices with fewer than `PART_ROWS` rows are omitted. `corrected` has the bounds of the
    difference, corrected for all parts, starts and families of a budget (Bonferroni); `hurts`: they are below zero. All
    rows are one test for `hurts`."""
    families, compared = defaultdict[str, list[str]](lambda: [SCRATCH]), defaultdict[str, list[Json]](list)
    for family, start in transferred(systems).values():
        if f"{family}-{SCRATCH}" in systems:
            families[family].append(start)
    pairs = sum(len(starts) - 1 for starts in families.values())
    for (family, starts), budget in product(families.items(), budgets_of(cells)):
        present = {start: cells[key] for start in starts if (key := (f"{family}-{start}", budget)) in cells}
        if SCRATCH in present and len(present) > 1:
            compared[family].append({"budget": budget, "parts": _parts(present, test, pairs=pairs)})
    return compared


def _parts(cells: Mapping[str, Cell], test: TestSplit, *, pairs: int) -> list[Json]:
    first, every = next(iter(cells.values())), np.arange(len(test.rows))
    seeds, scoring = sorted(set.intersection(*(set(cell.seeds) for cell in cells.values()))), first.scoring
    slices = {name: rows for name, rows in slice_members(test.rows.slices).items() if len(rows) >= PART_ROWS}
    counts = {name: round(counted["rows"] or 0) for name, counted in scoring.classes(first.sums.mean(0)).items()}
    counts = {name: count for name, count in counts.items() if count >= PART_ROWS}
    corrected = 1 - (1 - CONFIDENCE) / ((len(slices) + len(counts) + 1) * pairs)

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
    of_slices = {name: dict(by_start(rows, scoring.of_part, scoring.scores)) for name, rows in slices.items()}
    tested = [("all", "", len(every), of_all, CONFIDENCE)]
    tested += [("class", name, count, classes[name], corrected) for name, count in counts.items()]
    tested += [("slice", name, len(slices[name]), of[scoring.main], corrected) for name, of in of_slices.items()]
    parts = []
    for part, name, count, scores, level in tested:
        scratch, starts = scores.pop(SCRATCH), {}
        for start, of in scores.items():
            difference = of.minus(scratch)
            starts[start] = {
                "score": of.interval().as_dict(),
                "difference": difference.interval().as_dict(),
                "hurts": difference.interval(level).high < 0,
                "corrected": difference.interval(corrected).as_dict(),
            }
        about = {"part": part, "name": name, "rows": count}
        parts.append(about | {"scratch": scratch.interval().as_dict(), "starts": starts})
    return parts


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


def benefits(cells: Cells, systems: Systems) -> list[Json]:
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


def label_efficiency(cells: Cells, systems: Systems) -> list[Json]:
    """For every transferred system and budget: the number of labels with which the same family trained from scratch,
    and the baseline that is best in selection, reach the same score.

    Returns:
        [{system, budget, labels, score, against (a system), least, most, needs: {mean, low, high}, ratio: {mean, low,
        high}}]. `least` and `most` are the numbers of labels of the smallest and largest budget of `against`, `ratio`
        is needs / labels. None: the largest budget does not reach it.
    """
    fixed = [system for system, (family, _) in systems.items() if family == BASELINE]
    last = budgets_of(cells)[-1]
    rivals = [max(fixed, key=lambda name: cells[name, last].selection)] if fixed else []
    curves, rows = {system: curve_of(cells, system) for system in systems}, []
    for system, (family, _) in transferred(systems).items():
        for cell in curves[system]:
            for name in (name for name in (f"{family}-{SCRATCH}", *rivals) if name in systems):
                if not set(cell.seeds).intersection(*(of.seeds for of in curves[name])):
                    continue
                labels = [of.labels for of in curves[name]]
                short = [of.scores.minus(cell.scores).interval() for of in curves[name]]
                needs = {
                    key: labels_needed(labels, [getattr(of, bound) for of in short])
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


def labels_needed(labels: Sequence[float], above: Sequence[float]) -> float | None:
    """Labels per class at which a system reaches another score, interpolated linearly in log(labels). `above`: how far
    it is above it at each of `labels`. The smallest budget if it is above there, None if it is nowhere."""
    if above[0] >= 0:
        return float(labels[0])
    for (before, less), (after, more) in pairwise(zip(labels, above, strict=True)):
        if more >= 0:
            low, high = np.log(before), np.log(after)
            return float(np.exp(low - less / (more - less) * (high - low)))
    return None


def headline(cells: Cells, systems: Systems, saved: Sequence[Json]) -> str:
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
