"""Label efficiency: how many labels other systems need for the score of a transferred model with few labels.

Howard and Ruder 2018, section 5 and figure 3: 100 labels give the same score as training from scratch with 10 to 100
times as many. `components.evaluation.benefits.labels_needed` computes the numbers from the label curves.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from components.errors import ArtifactError
from components.evaluation.worth import rounded
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.studies.base import Study
from components.studies.curves import label_curves, main_score
from components.studies.outputs import Outputs


def run(
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="Task; all of run.tasks by default.")] = ""
) -> Findings:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system.

    Raises:
        ConfigError: unknown task.
        ArtifactError: a task is not evaluated, or has no transferred system.
    """
    chapter = Chapter("Label efficiency")
    numbers: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        efficiency = evaluation["label_efficiency"]
        if not efficiency:
            raise ArtifactError(
                f"{name}: no transferred system was evaluated; run.starts must name pretrained or adapted"
            )
        score = title(main_score(evaluation))
        numbers[name] = efficiency
        rows = [
            [f"{family}-{start}", rounded(entry["labels"]), f"{entry['score']:.3f}", rival, *_needs(found)]
            for family, starts in efficiency.items()
            for start, entries in starts.items()
            for entry in entries
            for rival, found in entry["against"].items()
        ]
        columns = ["system", evaluation["unit"], score, "against", "needs", "ratio"]
        chapter.tables.append(Table(columns, rows, name))
        for family, starts in efficiency.items():
            for start, entries in starts.items():
                ours = f"{name}: with {rounded(entries[0]['labels'])} {evaluation['unit']} {family}-{start}"
                chapter.lead.append(_sentence(ours, f"{family}-scratch", entries[0]))
        svg = figures.lines(
            label_curves(evaluation), x_label=evaluation["unit"], y_label=score, logarithmic=True, ticks=True
        )
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; dashed: without a language model."))
    chapter.text.append(
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels; 'more than' if its largest budget does not reach the score."
    )
    return Findings(chapter, numbers)


def _needs(found: dict[str, float | None]) -> list[str]:
    if found["labels"] is None:
        return ["more than available", f"more than {rounded(found['at_least_ratio'])}"]
    return [rounded(found["labels"]), f"{found['ratio']:.2f}"]


def _sentence(ours: str, rival: str, entry: dict[str, Any]) -> str:
    ours = f"{ours} reaches {entry['score']:.3f}"
    if rival not in entry["against"]:
        return f"{ours}."
    found = entry["against"][rival]
    if found["labels"] is None:
        return f"{ours}; from scratch that takes more than {rounded(found['at_least_ratio'])} times as many."
    return f"{ours}; from scratch that takes {rounded(found['labels'])}, {found['ratio']:.2f} times as many."


STUDY = Study("label-efficiency", "How many labels do other systems need for the same score?", run)
