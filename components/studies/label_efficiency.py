"""Label efficiency: how many labels the others need for what a transferred model reaches with few.

Howard and Ruder 2018, section 5 and figure 3: with 100 labels as good as trained from scratch on 10 to 100 times as
many. `components.evaluation.benefits.labels_needed` reads the numbers off the curves.
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
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="One task; all of run.tasks if not said.")] = ""
) -> Findings:
    """Labels that scratch and the best baseline need for the scores of every transferred system.

    Raises:
        ConfigError: no such task.
        ArtifactError: a task was not evaluated yet, or nothing was transferred.
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
        columns = ["system", evaluation["unit"], score, "against", "it needs", "times as many"]
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
        "What a rival needs is read off its curve of mean test scores, interpolated over the logarithm of the labels; "
        "'more than' where even its largest budget falls short."
    )
    return Findings(chapter, numbers)


def _needs(found: dict[str, float | None]) -> list[str]:
    if found["labels"] is None:
        return ["more than there are", f"more than {rounded(found['at_least_ratio'])}"]
    return [rounded(found["labels"]), f"{found['ratio']:.2f}"]


def _sentence(ours: str, rival: str, entry: dict[str, Any]) -> str:
    ours = f"{ours} reaches {entry['score']:.3f}"
    if rival not in entry["against"]:
        return f"{ours}."
    found = entry["against"][rival]
    if found["labels"] is None:
        return f"{ours}; from scratch more than {rounded(found['at_least_ratio'])} times as many do not."
    return f"{ours}; from scratch that takes {rounded(found['labels'])}, {found['ratio']:.2f} times as many."


STUDY = Study("label-efficiency", "How many labels do the others need for the same score?", run)
