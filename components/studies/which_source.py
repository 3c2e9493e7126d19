"""Which encoder suits a task, ranked before fine-tuning by LogME (`components.studies.logme`) of its hidden states and
the labels of a sample of train: language models, and encoders that were fine-tuned on other tasks
(`intermediate_tasks`). The ranking is compared with the metrics of selection of the run by Spearman's rank
correlation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy import stats

from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError
from components.data.scoring import title
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import format_budget
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.settings.finetune import FinetuneSettings
from components.settings.systems import System
from components.studies.frame import STAGE_OF, Budget, Outputs, Study, Task
from components.studies.frozen import Labelled, layer_vectors, numbers_of
from components.studies.logme import logme
from components.studies.occurrences import evenly

#: Maximum number of vectors for LogME.
VECTORS = 4000


@dataclass(frozen=True)
class Candidate:
    """An encoder: LogME in nats per row (higher is better), and its metric of selection after fine-tuning, None if the
    run has none."""

    name: str
    logme: float
    score: float | None


def run(
    outputs: Outputs,
    *,
    task: Task = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates separated by commas, such as bert-adapted; all by default.")
    ] = "",
    budget: Budget = 0,
) -> Findings:
    """Rank the candidates without fine-tuning."""
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
        (block, start)
        for block in run.families
        for start in [
            *(start for start in run.starts if STAGE_OF[start] != "scratch"),
            *(
                System(block, start, "after", source).variant
                for source in outputs.params.intermediate_tasks
                if source != name
                for start in run.starts
            ),
        ]
    ]
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    if len(np.unique(numbers_of(sample))) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    candidates = []
    for block, start in chosen:
        system, loaded = f"{block}-{start}", outputs.encoder(block, start)
        evidence = measured(loaded, data, sample, settings=outputs.finetuning(block))
        candidates.append(Candidate(system, evidence, scores.get(system)))
    candidates.sort(key=lambda candidate: -candidate.logme)
    agreement = rank_correlation(candidates)
    how = format_budget(labels, scoring_for(data.facts.kind, data.facts.labels))
    where = "on dev" if data.facts.selection == "dev" else "by cross-validation"
    chapter = _chapter(name, candidates, agreement, how=how, score=f"{title(evaluation['main'])} {where}")
    entries = [asdict(candidate) for candidate in candidates]
    return Findings(chapter, {"task": name, "labels": labels, "candidates": entries, "evidence": agreement})


def measured(encoder: Encoder, data: Labelled, sample: Split, *, settings: FinetuneSettings) -> float:
    """LogME on a labelled sample of at least two labels."""
    numbers_M = numbers_of(sample)
    # Evenly spread, because files are often sorted by label.
    used = np.asarray(evenly(range(len(numbers_M)), VECTORS))
    vectors = torch.cat(layer_vectors(encoder, sample, kind=data.facts.kind, settings=settings), dim=1)
    return logme(vectors[torch.from_numpy(used)].double().numpy(), np.eye(len(data.facts.labels))[numbers_M[used]])


def rank_correlation(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Spearman's rho of LogME and the metrics; empty with fewer than three fine-tuned candidates or constant values. It
    has no p value, because a run has too few encoders."""
    pairs = np.asarray([(of.logme, of.score) for of in candidates if of.score is not None]).reshape(-1, 2)
    if len(pairs) < 3 or not np.ptp(pairs, axis=0).all():
        return {}
    return {"spearman": float(stats.spearmanr(*pairs.T).statistic), "candidates": len(pairs)}


def _chapter(
    task: str, candidates: Sequence[Candidate], agreement: dict[str, float], *, how: str, score: str
) -> Chapter:
    best = candidates[0].name
    chapter = Chapter(f"{task}: which encoder to start from")
    chapter.lead.append(f"{task}: before fine-tuning, {best} is ranked first.")
    sources = list(dict.fromkeys(group for of in candidates if (group := System.named(of.name).group)))
    if len(sources) > 1:
        chapter.lead.append(f"{task}: source tasks in the order of their best encoder: {', '.join(sources)}.")
    chapter.text.append(f"The ranking uses a labelled sample of train ({how}), and no row of dev or test.")
    rows = [[of.name, f"{of.logme:.4f}", "" if of.score is None else f"{of.score:.3f}"] for of in candidates]
    chapter.tables.append(Table(["encoder", "LogME", f"fine-tuned: {score}"], rows, task))
    if not agreement:
        chapter.lead.append(
            f"{task}: the ranking cannot be verified without three fine-tuned candidates with different metrics."
        )
        return chapter
    scored = {of.name: (of.logme, of.score) for of in candidates if of.score is not None}
    winner = max(scored, key=lambda name: scored[name][1])
    chapter.lead.append(
        f"{task}: after fine-tuning, {'the same' if winner == best else winner} is best of {len(scored)} "
        f"candidates (rho {agreement['spearman']:+.2f})."
    )
    clouds = {name: Cloud([x], [y]) for name, (x, y) in scored.items()}
    svg = figures.scatter(clouds, x_label="LogME (nats per row)", y_label=f"fine-tuned: {score}")
    chapter.figures.append(Drawing(svg, f"{task}: LogME before and the metric after fine-tuning."))
    return chapter


STUDY = Study("which-source", "Which encoder or source task suits the task best, judged before fine-tuning?", run)
