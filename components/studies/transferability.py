"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups of a
network are copied from a base network, those above are random, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from components.core.errors import ConfigError
from components.data.scoring import title
from components.data.scoring.intervals import CONFIDENCE, interval
from components.data.tasks.budgets import ALL
from components.data.tasks.examples import read_facts
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import format_budget
from components.models.encoder import architecture_of
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.copied_layers import SERIES, Network, trained
from components.studies.frame import Outputs, Study, band, bounds


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task B; the first of run.tasks by default.")] = "",
    other: Annotated[str, typer.Option(help="Task A; the next of run.tasks, else of data.tasks by default.")] = "",
    encoder: Annotated[str, typer.Option(help="Block of pretrain; the first of run.families by default.")] = "",
    budget: Annotated[int, typer.Option(help="Labels per class (stratum) of both tasks; 0: all.", min=0)] = 100,
    epochs: Annotated[float, typer.Option(help="Epochs of training per network.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds of task B to use.", min=1)] = 3,
) -> Findings:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n."""
    name = outputs.task(task)
    block, start = outputs.split_name(encoder or outputs.params.run.families[0])
    source, examples = outputs.encoder_directory(block, start), outputs.examples(name)
    facts = read_facts(examples)
    second = _second(outputs, name, other)
    storage = outputs.params.cluster.storage
    directories = {"A": outputs.examples(second), "B": examples}
    networks = {
        base: Network(
            examples=directory.absolute(),
            encoder=source.absolute(),
            settings=outputs.finetuning(block),
            budget=budget or ALL,
            seed=0,
            epochs=epochs,
            storage=storage if "://" in storage else str(Path(storage).absolute()),
        )
        for base, directory in directories.items()
    }
    groups, chosen = len(architecture_of(source).layer_groups()), facts.seeds[:seeds]
    base_a, scores = trained(networks, groups=groups, seeds=chosen, cluster=outputs.params.cluster)
    scoring = scoring_for(facts.kind, facts.labels)
    how = f"{title(scoring.main)} on dev at {format_budget(budget or ALL, scoring)}"
    chapter = _chapter(f"A {second}, B {name}, {block}", scores, how=how, confidence=CONFIDENCE)
    numbers = {
        "task": name,
        "other": second,
        "encoder": block,
        "score": scoring.main,
        "labels": budget or ALL,
        "seeds": chosen,
        "epochs": epochs,
        "groups": groups,
        "base_a": base_a,
        "scores": {series: dict(zip(map(str, range(groups + 1)), of, strict=True)) for series, of in scores.items()},
    }
    return Findings(chapter, numbers)


def _second(outputs: Outputs, name: str, other: str) -> str:
    tasks = [outputs.task(other)] if other else [*outputs.params.run.tasks, *outputs.params.data.tasks]
    second = next((task for task in tasks if task != name), None)
    if second is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    return second


def _chapter(name: str, scores: Mapping[str, Sequence[Sequence[float]]], *, how: str, confidence: float) -> Chapter:
    values = {series: np.asarray(of) for series, of in scores.items()}
    intervals = {series: [interval(of, confidence=confidence) for of in rows] for series, rows in values.items()}
    base, count = values["BnB"][0], len(values["BnB"]) - 1

    def change(of: np.ndarray, reference: np.ndarray) -> str:
        return bounds(interval(of - reference, confidence=confidence), "+.3f")

    cut = 1 + int(np.argmin(values["BnB"][1:].mean(axis=1)))
    best = 1 + int(np.argmax(values["AnB+"][1:].mean(axis=1)))
    lead = [
        f"{name}: base B reaches {base.mean():.3f}. Co-adaptation: with {cut} of {count} layer groups of base B "
        f"frozen, the change is {change(values['BnB'][cut], base)}.",
        f"{name}: specificity: with all {count} groups of base A frozen, the change against BnB is "
        f"{change(values['AnB'][count], values['BnB'][count])}. Transfer: AnB+ with {best} groups changes base B by "
        f"{change(values['AnB+'][best], base)}.",
    ]
    text = (
        f"{how}, mean over {len(base)} seeds with its interval. The lowest n layer groups are copied (1: the "
        "embedding) from base B (BnB) or base A (AnB), trained on the labels of one task from random weights; those "
        "above are initialised randomly; +: the copied ones are trained, too. n = 0 is base B (Yosinski et al. 2014)."
    )
    rows = [[str(n), *(bounds(intervals[series][n]) for series in SERIES)] for n in range(count + 1)]
    cuts = [float(n) for n in range(count + 1)]
    lines = {series: band(cuts, of, dashed=not SERIES[series][1]) for series, of in intervals.items()}
    svg = figures.lines(lines, x_label="n, copied layer groups", y_label="score on dev", ticks=True)
    drawing = Drawing(svg, f"{name}; dashed: copied layers are frozen; bands are the intervals.")
    return Chapter("How transferable are the layers?", lead, [text], [Table(["n", *SERIES], rows, name)], [drawing])


STUDY = Study(
    "transferability", "At which layer do features stop being general, and how far are layers co-adapted?", run
)
