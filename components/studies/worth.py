"""The number of labels with which training from scratch reaches the score of a transferred system.

`components.evaluation.worth` computes the numbers.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from components.errors import ArtifactError
from components.evaluation.worth import rounded
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.outputs import Outputs


def run(
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="Task; all of run.tasks by default.")] = ""
) -> Findings:
    """The number of labels with which scratch reaches the score of each transferred system, for every budget.

    Raises:
        ConfigError: unknown task.
        ArtifactError: a task is not evaluated, or no family has both a transferred system and one from scratch.
    """
    chapter = Chapter("What the transfer was worth")
    numbers: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        found, unit = evaluation["worth"], evaluation["unit"]
        if not found:
            raise ArtifactError(
                f"{name}: no family has both a transferred system and one from scratch; run.starts must name scratch "
                "and pretrained or adapted"
            )
        numbers[name] = {"headline": evaluation["headline"], "unit": unit, "worth": found}
        chapter.lead.append(f"{name}: {evaluation['headline']}")
        title = evaluation["titles"][evaluation["main"]]
        entries = [
            (f"{family}-{start}", entry)
            for family, starts in found.items()
            for start, of in starts.items()
            for entry in of
        ]
        rows = [
            [system, rounded(entry["labels"]), f"{entry['score']:.3f}", _needed(entry), _ratio(entry)]
            for system, entry in entries
        ]
        columns = ["system", unit, title, "from scratch", "ratio"]
        chapter.tables.append(Table(columns, rows, name))
        ranges = {
            f"{system}, {rounded(entry['labels'])}": _range(entry)
            for system, entry in entries
            if entry["ratio"]["low"] is not None
        }
        if ranges:
            svg = figures.ranges(ranges, x_label="ratio of the labels from scratch", reference=1.0, logarithmic=True)
            chapter.figures.append(
                Drawing(svg, f"{name}: by system and number of {unit}; arrow: beyond the largest budget of scratch.")
            )
    chapter.text.append(
        "The number of labels from scratch is interpolated in its curve of mean test scores over the logarithm of the "
        "labels, with an interval over seeds and clusters of test rows. A ratio below 1: transfer needs more labels."
    )
    return Findings(chapter, numbers)


def _needed(entry: dict[str, Any]) -> str:
    needed, beyond = entry["needed"], f"over {rounded(entry['most'])}"
    mean, low, high = (beyond if needed[name] is None else rounded(needed[name]) for name in ("labels", "low", "high"))
    return mean if needed["low"] is None else f"{mean} [{low}, {high}]"


def _ratio(entry: dict[str, Any]) -> str:
    ratio, beyond = entry["ratio"], f"over {rounded(entry['most'] / entry['labels'])}"
    mean, low, high = (beyond if ratio[name] is None else rounded(ratio[name]) for name in ("mean", "low", "high"))
    return mean if ratio["low"] is None else f"{mean} [{low}, {high}]"


def _range(entry: dict[str, Any]) -> tuple[float, float, float | None]:
    """Mean, low and high for a figure; a mean beyond the curve of scratch is clipped to its end."""
    ratio = entry["ratio"]
    mean = entry["most"] / entry["labels"] if ratio["mean"] is None else ratio["mean"]
    return mean, ratio["low"], ratio["high"]


STUDY = Study("worth", "How many labels was the transfer worth?", run)
