"""The three benefits of transfer: higher start, higher slope, higher asymptote (Torrey and Shavlik 2010, figure 2).

The stage `evaluate` computes them from learning curves; `components.evaluation.benefits` defines them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from components.errors import ArtifactError
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.studies.base import Study
from components.studies.curves import interval, label_curves, main_score, training_curves
from components.studies.outputs import Outputs

#: Axis of a curve -> its name in text.
AXES = {"training": "epochs", "labels": "labels"}


def run(
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="Task; all of run.tasks by default.")] = ""
) -> Findings:
    """The benefits of every transferred system over the same family from scratch.

    Raises:
        ConfigError: unknown task.
        ArtifactError: a task is not evaluated, or has no system from scratch to compare with.
    """
    chapter = Chapter("The three benefits of transfer")
    numbers: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        benefits = evaluation["benefits"]
        if not benefits:
            raise ArtifactError(
                f"{name}: no family has both a transferred system and one from scratch; run.starts must name scratch "
                "and pretrained or adapted"
            )
        score = title(main_score(evaluation))
        numbers[name] = benefits
        rows = []
        for family, starts in benefits.items():
            for start, axes in starts.items():
                chapter.lead += [_sentence(name, f"{family}-{start}", axes)]
                rows += [
                    [f"{family}-{start}", AXES[axis], benefit, *_cells(found)]
                    for axis, benefits_of in axes.items()
                    for benefit, found in benefits_of.items()
                ]
        columns = ["system", "against", "benefit", "transferred", "scratch", "difference", ""]
        chapter.tables.append(Table(columns, rows, f"{name} ({score})"))
        learned = {system["system"] for system in evaluation["systems"] if system["family"] in benefits}
        svg = figures.lines(
            label_curves(evaluation, learned), x_label=evaluation["unit"], y_label=score, logarithmic=True, ticks=True
        )
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; bands are the intervals."))
        if training := training_curves(evaluation):
            svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=f"{score} on dev")
            chapter.figures.append(
                Drawing(svg, f"{name}: fine-tuning with the largest label budget; dashed: from scratch.")
            )
    chapter.text.append(
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return Findings(chapter, numbers)


def _cells(found: dict[str, Any]) -> list[str]:
    return [
        *(interval(found[part]) for part in ("transferred", "scratch", "difference")),
        "" if found["holds"] else "not clear",
    ]


def _sentence(task: str, system: str, axes: dict[str, Any]) -> str:
    """The benefits that hold against labels, or against epochs if there is only one label budget."""
    axis = "labels" if "labels" in axes else "training"
    found, against = axes[axis], AXES[axis]
    held = [f"{name} {found[name]['difference']['mean']:+.3f}" for name in found if found[name]["holds"]]
    missing = [name for name in found if not found[name]["holds"]]
    if not held:
        return f"{task}: {system} has none of the three benefits over scratch, against {against}."
    rest = f"; no higher {' and '.join(missing)}" if missing else ""
    return f"{task}: over scratch, {system} has a higher {', '.join(held)} against {against}{rest}."


STUDY = Study("benefits", "Does transfer give a higher start, a higher slope and a higher asymptote?", run)
