"""The three benefits of transfer: higher start, slope and asymptote (Torrey and Shavlik 2010, figure 2), by
`components.evaluation.benefits`."""

from __future__ import annotations

from typing import Any

from components.data.scoring import title
from components.reporting import figures
from components.reporting.evaluations import training_curves
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import EveryTask, Outputs, Study, bounds, label_curves

#: Axis of a curve -> its name in text.
AXES = {"training": "epochs", "labels": "labels"}
PAIR = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)


def run(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """The benefits of every transferred system over the same family from scratch."""
    chapter = Chapter("The three benefits of transfer")
    evaluations = outputs.evaluations(task, "benefits", needs=PAIR)
    for name, evaluation in evaluations.items():
        benefits, main = evaluation["benefits"], evaluation["main"]
        systems = [(f"{family}-{start}", axes) for family, of in benefits.items() for start, axes in of.items()]
        chapter.lead += [_sentence(name, system, axes) for system, axes in systems]
        rows = [
            [
                system,
                AXES[axis],
                benefit,
                *(bounds(values[part]) for part in ("transferred", "scratch", "difference")),
                "" if values["holds"] else "not clear",
            ]
            for system, axes in systems
            for axis, of_axis in axes.items()
            for benefit, values in of_axis.items()
        ]
        columns = ["system", "against", "benefit", "transferred", "scratch", "difference", ""]
        chapter.tables.append(Table(columns, rows, f"{name} ({title(main)})"))
        learned = {system["system"] for system in evaluation["systems"] if system["family"] in benefits}
        curves = label_curves(evaluation, learned)
        svg = figures.lines(curves, x_label=evaluation["unit"], y_label=title(main), logarithmic=True, ticks=True)
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; bands are the intervals."))
        if training := training_curves(evaluation):
            svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=f"{title(main)} on dev")
            caption = f"{name}: fine-tuning with the largest label budget."
            chapter.figures.append(Drawing(svg, caption))
    chapter.text.append(
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return Findings(chapter, {name: evaluation["benefits"] for name, evaluation in evaluations.items()})


def _sentence(task: str, system: str, axes: dict[str, Any]) -> str:
    """The benefits that hold against labels, or against epochs if there is only one label budget."""
    axis = "labels" if "labels" in axes else "training"
    held = [f"{name} {of['difference']['mean']:+.3f}" for name, of in axes[axis].items() if of["holds"]]
    missing = [name for name, of in axes[axis].items() if not of["holds"]]
    if not held:
        return f"{task}: {system} has none of the three benefits over scratch, against {AXES[axis]}."
    rest = f"; no higher {' and '.join(missing)}" if missing else ""
    return f"{task}: over scratch, {system} has a higher {', '.join(held)} against {AXES[axis]}{rest}."


STUDY = Study("benefits", "Does transfer give a higher start, a higher slope and a higher asymptote?", run)
