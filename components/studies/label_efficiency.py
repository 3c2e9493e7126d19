"""Label efficiency: how many labels other systems need for the score of a transferred model with few labels (Howard and
Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.data.scoring import title
from components.evaluation.benefits import rounded
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import EveryTask, Outputs, Study, label_curves


def run(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    chapter = Chapter("Label efficiency")
    needs = "no transferred system was evaluated; run.starts must name pretrained or adapted"
    evaluations = outputs.evaluations(task, "label_efficiency", needs=needs)
    for name, evaluation in evaluations.items():
        unit, score = evaluation["unit"], title(evaluation["main"])
        rows: list[list[str]] = []
        ranges: dict[str, tuple[float, float, float | None]] = {}
        if evaluation["headline"]:
            chapter.lead.append(f"{name}: {evaluation['headline']}")
        for family, starts in evaluation["label_efficiency"].items():
            for start, entries in starts.items():
                system, scratch = f"{family}-{start}", f"{family}-scratch"
                worth = {entry["labels"]: entry for entry in evaluation["worth"].get(family, {}).get(start, [])}
                for entry in entries:
                    labels = entry["labels"]
                    for rival, needed in entry["against"].items():
                        exact = worth.get(labels) if rival == scratch else None
                        cells = ["more than available", f"more than {rounded(needed['at_least_ratio'])}"]
                        if needed["labels"] is not None:
                            cells = [rounded(needed["labels"]), f"{needed['ratio']:.2f}"]
                        cells = _with_bounds(exact) if exact else cells
                        rows.append([system, rounded(labels), f"{entry['score']:.3f}", rival, *cells])
                    if labels in worth and worth[labels]["ratio"]["low"] is not None:
                        ranges[f"{system}, {rounded(labels)}"] = _range(worth[labels])
                first = f"{name}: with {rounded(entries[0]['labels'])} {unit} {system}"
                chapter.lead.append(_sentence(first, scratch, entries[0]))
        columns = ["system", unit, score, "against", "needs", "ratio"]
        chapter.tables.append(Table(columns, rows, name))
        svg = figures.lines(label_curves(evaluation), x_label=unit, y_label=score, logarithmic=True, ticks=True)
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; dashed: without a language model."))
        if ranges:
            svg = figures.ranges(ranges, x_label="ratio of the labels from scratch", reference=1.0, logarithmic=True)
            caption = f"{name}: by system and number of {unit}; arrow: beyond the largest budget of scratch."
            chapter.figures.append(Drawing(svg, caption))
    chapter.text.append(
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels, that of scratch with an interval over seeds and clusters of test rows; 'more than' if its "
        "largest budget does not reach the score. A ratio below 1: transfer needs more labels."
    )
    kept = ("headline", "unit", "label_efficiency", "worth")
    return Findings(chapter, {name: {key: of[key] for key in kept} for name, of in evaluations.items()})


def _with_bounds(entry: Mapping[str, Any]) -> list[str]:
    """The number of labels from scratch and the ratio, each with its interval."""
    cells = []
    for values, first, most in (
        (entry["needed"], "labels", entry["most"]),
        (entry["ratio"], "mean", entry["most"] / entry["labels"]),
    ):
        mean, low, high = (
            f"more than {rounded(most)}" if values[key] is None else rounded(values[key])
            for key in (first, "low", "high")
        )
        cells.append(mean if values["low"] is None else f"{mean} [{low}, {high}]")
    return cells


def _range(entry: Mapping[str, Any]) -> tuple[float, float, float | None]:
    """Mean, low and high for a figure; a mean beyond the curve of scratch is clipped to its end."""
    ratio = entry["ratio"]
    mean = entry["most"] / entry["labels"] if ratio["mean"] is None else ratio["mean"]
    return mean, ratio["low"], ratio["high"]


def _sentence(system: str, scratch: str, entry: Mapping[str, Any]) -> str:
    reached = f"{system} reaches {entry['score']:.3f}"
    if scratch not in entry["against"]:
        return f"{reached}."
    needed = entry["against"][scratch]
    if needed["labels"] is None:
        return f"{reached}; from scratch that takes more than {rounded(needed['at_least_ratio'])} times as many."
    return f"{reached}; from scratch that takes {rounded(needed['labels'])}, {needed['ratio']:.2f} times as many."


STUDY = Study("label-efficiency", "How many labels does transfer save, and how many do other systems need?", run)
