"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups are
copied from a base network, the groups above are initialised randomly, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.

Task A is another task, or the two tasks are random halves of one task's classes, as in the paper.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from components.cluster import map_parallel
from components.errors import ConfigError
from components.evaluation.compare import format_budget
from components.models.encoder import architecture_of
from components.progress import Progress
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.scoring import title
from components.scoring.intervals import Interval, interval
from components.studies import curves
from components.studies.base import Study
from components.studies.copied_layers import CLASSES, Half, Network, learn
from components.studies.outputs import Outputs
from components.tasks.budgets import ALL
from components.tasks.examples import TaskFacts, read_facts
from components.tasks.kinds import scoring_for
from components.training.checkpoint import CheckpointStore

#: Series -> (base network of the copied layers, whether they are trained).
SERIES: dict[str, tuple[Half, bool]] = {
    "BnB": ("B", False),
    "BnB+": ("B", True),
    "AnB": ("A", False),
    "AnB+": ("A", True),
}


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task B; the first of run.tasks by default.")] = "",
    other: Annotated[
        str,
        typer.Option(
            help="Task A; the next of run.tasks by default. Without another task, or if it is task B, the classes of "
            "task B are divided into two random halves."
        ),
    ] = "",
    encoder: Annotated[
        str,
        typer.Option(help="Block of pretrain for architecture and tokenizer; the first of run.families by default."),
    ] = "",
    budget: Annotated[int, typer.Option(help="Labels per class (stratum) of both tasks; 0: all.", min=0)] = 100,
    epochs: Annotated[float, typer.Option(help="Epochs of training per network.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds of task B to use.", min=1)] = 3,
) -> Findings:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n.

    Raises:
        ConfigError: unknown task or block, or there is no second task.
        ArtifactError: a required stage has not run.
        TrainingError: a loss is not finite.
    """
    name = outputs.task(task)
    block, start = outputs.split_name(encoder or outputs.params.run.families[0])
    source = outputs.encoder_directory(block, start)
    examples = {"B": outputs.examples(name)}
    facts = read_facts(examples["B"])
    second = _second(outputs, name, other, facts)
    halved = second == name
    examples["A"] = examples["B"] if halved else outputs.examples(second)
    groups = len(architecture_of(source).layer_groups())
    chosen = facts.seeds[:seeds]
    storage = outputs.params.cluster.storage
    storage = storage if "://" in storage else str(Path(storage).absolute())
    unique = uuid.uuid4().hex[:12]

    def network(of: Half, seed: int, **values: object) -> Network:
        return Network(
            examples=examples[of].absolute(),
            half=of if halved else None,
            encoder=source.absolute(),
            settings=outputs.finetuning(block),
            budget=budget or ALL,
            seed=seed,
            epochs=epochs,
            storage=storage,
            **values,  # type: ignore[arg-type]
        )

    keys: dict[tuple[Half, int], str] = {
        (of, seed): f"transferability-{unique}-{of}-{seed}" for of in ("A", "B") for seed in chosen
    }
    bases = [network(of, seed, key=key) for (of, seed), key in keys.items()]
    cells = [(series, cut, seed) for series in SERIES for cut in range(1, groups + 1) for seed in chosen]
    copies = [
        network("B", seed, source=keys[SERIES[series][0], seed], copied=cut, learning=SERIES[series][1])
        for series, cut, seed in cells
    ]
    scores: dict[tuple[str, int], dict[int, float]] = {}
    try:
        with Progress(f"study transferability {block}", total=len(bases) + len(copies), unit="network") as bar:
            for index, score in map_parallel(learn, bases, settings=outputs.params.cluster):
                of, seed = list(keys)[index]
                scores.setdefault((f"base {of}", 0), {})[seed] = score
                bar.advance(1)
            for index, score in map_parallel(learn, copies, settings=outputs.params.cluster):
                series, cut, seed = cells[index]
                scores.setdefault((series, cut), {})[seed] = score
                bar.advance(1)
    finally:
        for key in keys.values():
            CheckpointStore(storage, key=key).clear()
    scoring = scoring_for(facts.kind, facts.labels)
    found = {key: [of_seed[seed] for seed in chosen] for key, of_seed in scores.items()}
    base = found.pop(("base B", 0))
    base_a = found.pop(("base A", 0))
    by_series = {series: [base, *(found[series, cut] for cut in range(1, groups + 1))] for series in SERIES}
    pair = f"halves of {name}" if halved else f"A {second}, B {name}"
    chapter = _chapter(
        f"{pair}, {block}",
        by_series,
        score=title(scoring.main),
        budget=format_budget(budget or ALL, scoring),
        confidence=outputs.params.evaluate.confidence,
    )
    return Findings(
        chapter,
        {
            "task": name,
            "other": second,
            "halves": halved,
            "encoder": block,
            "score": scoring.main,
            "labels": budget or ALL,
            "seeds": chosen,
            "epochs": epochs,
            "groups": groups,
            "base_a": base_a,
            "scores": {series: {str(cut): values for cut, values in enumerate(of)} for series, of in by_series.items()},
        },
    )


def _second(outputs: Outputs, name: str, other: str, facts: TaskFacts) -> str:
    """Task A; `name` if the classes of task B are divided.

    Raises:
        ConfigError: unknown task, or the classes of task B cannot be divided.
    """
    following = (task for task in outputs.params.run.tasks if task != name)
    second = outputs.task(other) if other else next(following, name)
    if second == name and (facts.kind != "classification" or len(facts.labels) < CLASSES):
        raise ConfigError(
            f"--other: needs a second task, because {name} is not a classification of at least {CLASSES} classes that "
            "could be divided into two halves; name a task of data.tasks"
        )
    return second


def _chapter(name: str, found: dict[str, list[list[float]]], *, score: str, budget: str, confidence: float) -> Chapter:
    """The chapter of the report.

    Args:
        name: of tasks and architecture.
        found: series -> scores of the seeds for each n from 0.
        score: title of the metric.
        budget: labels of both tasks, in words.
        confidence: of the intervals.
    """
    values = {series: np.asarray(of) for series, of in found.items()}
    intervals: dict[str, list[Interval]] = {
        series: [interval(seeds, confidence=confidence) for seeds in of] for series, of in values.items()
    }
    base = values["BnB"][0]
    count = len(values["BnB"]) - 1

    def change(of: np.ndarray, reference: np.ndarray) -> str:
        """The mean of the paired differences with its interval."""
        difference = interval(of - reference, confidence=confidence)
        if len(base) == 1:
            return f"{difference.mean:+.3f}"
        return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"

    def lowest(series: str) -> int:
        return 1 + int(np.argmin(values[series][1:].mean(axis=1)))

    cut = lowest("BnB")
    best = 1 + int(np.argmax(values["AnB+"][1:].mean(axis=1)))
    chapter = Chapter("How transferable are the layers?")
    chapter.lead.append(
        f"{name}: base B reaches {base.mean():.3f}. Co-adaptation: with {cut} of {count} layer groups of base B "
        f"frozen, the change is {change(values['BnB'][cut], base)}."
    )
    chapter.lead.append(
        f"{name}: specificity: with all {count} groups of base A frozen, the change against BnB is "
        f"{change(values['AnB'][count], values['BnB'][count])}. Transfer: AnB+ with {best} groups changes base B by "
        f"{change(values['AnB+'][best], base)}."
    )
    chapter.text.append(
        f"{score} on dev at {budget}, mean over {len(base)} seeds with its interval. The lowest n layer groups are "
        "copied (1: the embedding) from base B (BnB) or base A (AnB), networks trained on the labels of one task from "
        "random weights; those above are initialised randomly; +: the copied ones are trained, too. n = 0 is base B "
        "(Yosinski et al. 2014)."
    )
    rows = [[str(n), *(curves.interval(intervals[series][n].as_dict()) for series in SERIES)] for n in range(count + 1)]
    chapter.tables.append(Table(["n", *SERIES], rows, f"{name} ({score} on dev)"))
    cuts: Sequence[int] = range(count + 1)
    lines = {
        series: Line(
            list(cuts),
            [value.mean for value in of],
            [value.low for value in of],
            [value.high for value in of],
            dashed=not SERIES[series][1],
        )
        for series, of in intervals.items()
    }
    svg = figures.lines(lines, x_label="n, copied layer groups", y_label=f"{score} on dev", ticks=True)
    chapter.figures.append(Drawing(svg, f"{name}; dashed: copied layers are frozen; bands are the intervals."))
    return chapter


STUDY = Study(
    "transferability", "At which layer do features stop being general, and how far are layers co-adapted?", run
)
