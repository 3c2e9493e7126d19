"""Which pretrained encoder suits a task, ranked before fine-tuning, and how well the ranking agrees with fine-tuning.

Three criteria are computed for each candidate on a labelled sample of the task's train split:

    LogME        how well its hidden states (mean pooling, all layers) explain the labels (components.studies.logme),
                 independent of the settings of the heads
    vocabulary   unknown rate and pieces per word on the task's texts
    distance     cross-entropy of the task's texts in nats per word. Masked and causal models are not comparable, so the
                 criterion is the relative rank among the candidates with the same objective

Each criterion gives a rank; the combined rank orders their mean. If the run has fine-tuned the candidates, the ranks
are compared with the dev metrics by Spearman's rank correlation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

from components.artifacts import MANIFEST
from components.errors import ConfigError
from components.evaluation.aggregates import format_budget
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.studies.frame import STAGE_OF, Budget, Outputs, Study, Task
from components.studies.frozen import Labelled, numbers_of
from components.studies.ranking import Candidate, Floats, measured, rank_correlations, ranks
from components.tasks.kinds import scoring_for


def run(
    outputs: Outputs,
    *,
    task: Task = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates separated by commas, such as bert-adapted; all trained ones by default.")
    ] = "",
    budget: Budget = 0,
) -> Findings:
    """Rank the candidates without fine-tuning.

    Raises:
        ConfigError: fewer than two candidates, a kind of task without labels, or a sample with only one label.
    """
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget)
    sample = data.sample(labels, seed=data.facts.seeds[0])
    exists = (outputs.out / "evaluation" / name / MANIFEST).is_file()
    evaluation: dict[str, Any] = outputs.evaluation(name) if exists else {"systems": [], "main": "score"}
    scores = {
        system["system"]: float(cell["training"][f"selection_{evaluation['main']}"])
        for system in evaluation["systems"]
        for cell in system["budgets"]
        if cell["budget"] == labels
    }
    run = outputs.params.run
    named = dict.fromkeys(outputs.split_name(of.strip()) for of in encoders.split(",") if of.strip())
    chosen = list(named) or [
        (block, start) for block in run.families for start in run.starts if STAGE_OF[start] != "scratch"
    ]
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    if len(np.unique(numbers_of(sample))) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    candidates = [
        measured(
            f"{block}-{start}",
            outputs.encoder(block, start),
            data,
            sample,
            settings=outputs.finetuning(block),
            score=scores.get(f"{block}-{start}"),
        )
        for block, start in chosen
    ]
    ranked = ranks(candidates)
    correlations = rank_correlations(candidates, ranked)
    how = format_budget(labels, scoring_for(data.facts.kind, data.facts.labels))
    chapter = _chapter(name, candidates, ranked, correlations, how=how, score=title(evaluation["main"]))
    entries = [
        asdict(candidate) | {"ranks": {criterion: float(values[row]) for criterion, values in ranked.items()}}
        for row, candidate in enumerate(candidates)
    ]
    return Findings(chapter, {"task": name, "labels": labels, "candidates": entries, "evidence": correlations})


def _chapter(
    task: str,
    candidates: Sequence[Candidate],
    ranked: Mapping[str, Floats],
    correlations: Mapping[str, Mapping[str, float]],
    *,
    how: str,
    score: str,
) -> Chapter:
    order = np.argsort(ranked["combined"], kind="stable")
    best, scored = candidates[order[0]], [of for of in candidates if of.score is not None]
    chapter = Chapter(f"{task}: which encoder to start from")
    chapter.lead.append(f"{task}: before fine-tuning, {best.name} is ranked first.")
    if correlations:
        winner = max(scored, key=lambda candidate: candidate.score or 0.0).name
        combined = correlations.get("combined")
        agreement = f" (rho {combined['spearman']:+.2f}, p {combined['spearman_p']:.3f})" if combined else ""
        winner = "the same" if winner == best.name else winner
        chapter.lead.append(
            f"{task}: after fine-tuning, {winner} is best on dev of {len(scored)} candidates{agreement}."
        )
    else:
        chapter.lead.append(
            f"{task}: the ranking cannot be verified without three fine-tuned candidates with different metrics."
        )
    chapter.text.append(
        f"The ranking uses a labelled sample of train ({how}) and the task's texts; dev is used for the metrics of "
        "fine-tuning only. Nats per word: the cross-entropy of the task's texts; masked models are compared only with "
        "masked models." + ("" if "distance" in ranked else " A candidate has no likelihood: the distance is omitted.")
    )
    columns = ["encoder", "LogME", "unknown", "pieces per word", "nats per word"]
    columns += [f"rank: {criterion}" for criterion in ranked] + [f"fine-tuned: {score} on dev"]
    rows = [
        [
            of.name,
            f"{of.logme:.4f}",
            f"{of.unknown_rate:.2%}",
            f"{of.pieces_per_word:.2f}",
            "" if of.cross_entropy is None else f"{of.cross_entropy:.3f}",
            *(f"{values[row]:g}" for values in ranked.values()),
            "" if of.score is None else f"{of.score:.3f}",
        ]
        for row, of in ((row, candidates[row]) for row in order)
    ]
    chapter.tables.append(Table(columns, rows, task))
    if correlations:
        rows = [[name, f"{of['spearman']:+.2f}", f"{of['spearman_p']:.3f}"] for name, of in correlations.items()]
        heading = f"{task}: rank correlation with fine-tuning, {len(scored)} candidates"
        chapter.tables.append(Table(["criterion", "Spearman's rho", "p"], rows, heading))
        points = {of.name: (of.logme, float(of.score or 0.0)) for of in scored}
        svg = figures.points(points, x_label="LogME (nats per row)", y_label=f"fine-tuned: {score} on dev")
        chapter.figures.append(Drawing(svg, f"{task}: LogME before and the metric after fine-tuning."))
    return chapter


STUDY = Study("which-source", "Which pretrained encoder suits the task best, judged before fine-tuning?", run)
