"""How many labels the transfer was worth: the number at which the same family from scratch reaches the same score.

`components.evaluation.worth` reads the numbers off the curves, with a bootstrap over seeds and test rows.
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
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="One task; all of run.tasks if not said.")] = ""
) -> Findings:
    """Labels that scratch needs for the score of every transferred system, at every number of labels.

    Raises:
        ConfigError: no such task.
        ArtifactError: a task was not evaluated yet, or nothing was both transferred and trained from scratch.
    """
    chapter = Chapter("What the transfer was worth")
    numbers: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        found, unit = evaluation["worth"], evaluation["unit"]
        if not found:
            raise ArtifactError(
                f"{name}: nothing was both transferred and trained from scratch; run.starts must name scratch and "
                "pretrained or adapted"
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
        columns = ["system", unit, title, "from scratch that takes", "times as many"]
        chapter.tables.append(Table(columns, rows, name))
        drawn = {
            f"{system}, {rounded(entry['labels'])}": _range(entry)
            for system, entry in entries
            if entry["ratio"]["low"] is not None
        }
        if drawn:
            svg = figures.ranges(drawn, x_label="times as many labels from scratch", reference=1.0, logarithmic=True)
            chapter.figures.append(
                Drawing(
                    svg, f"{name}: by system and number of {unit}; an arrow: beyond the labels that scratch was given."
                )
            )
    chapter.text.append(
        "What scratch needs is read off its curve of mean test scores, interpolated over the logarithm of the labels; "
        "the interval is a bootstrap over seeds and test rows, the same for both. Below 1 the transfer cost labels."
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
    """Mean, low and high as a figure takes them; a mean beyond the curve stands at the curve's end."""
    ratio = entry["ratio"]
    mean = entry["most"] / entry["labels"] if ratio["mean"] is None else ratio["mean"]
    return mean, ratio["low"], ratio["high"]


STUDY = Study("worth", "How many labels was the transfer worth?", run)
