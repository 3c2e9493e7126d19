"""Which encoder suits a task, ranked before fine-tuning by the logarithm of maximum evidence (LogME; You et al. 2021,
by the fixed point of You et al. 2022, algorithm 3) of its hidden states and the labels of a sample of train: language
models, and encoders that were fine-tuned on other tasks (`intermediate_tasks`). The ranking is compared with the
metrics of selection of the run by Spearman's rank correlation.

A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta) has the evidence p(y | F, alpha, beta),
which is maximised over alpha and beta.

Shape suffixes: N rows, D features, C labels, R rank.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
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
from components.studies.frame import STAGE_OF, Budget, Outputs, Task
from components.studies.frozen import Labelled, layer_vectors, numbers_of
from components.studies.occurrences import evenly

Floats = NDArray[np.float64]

#: Maximum number of fixed-point iterations, and the relative change of alpha / beta at which they stop.
STEPS, TOLERANCE = 1000, 1e-6
#: Keeps the precisions finite if the features explain nothing or everything.
LEAST = 1e-10


def logme(features_ND: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets.

    Args:
        features_ND: features of N rows, neither centred nor scaled, as in the paper.
        targets_NC: one column per label, 1 for the rows with this label; or one column of values. Constant columns are
            ignored.
    """
    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_ND, dtype=np.float64), full_matrices=False)
    kept = sizes_R > sizes_R[0] * 1e-10
    # The evidence does not depend on the scale of the features, but the bounds of the iteration do.
    squares_R = np.square(sizes_R[kept] / sizes_R[0])
    columns = [column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)]
    return float(np.mean([_evidence(u_NR[:, kept], squares_R, column, features_ND.shape[1]) for column in columns]))


def _evidence(u_NR: Floats, squares_R: Floats, targets_N: Floats, features: int) -> float:
    """log p(y | F, alpha, beta) / N at its maximum, from left singular vectors and squared singular values of F."""
    count = len(targets_N)
    along_R = u_NR.T @ targets_N
    # The part of y outside of the column space of F.
    outside = max(0.0, float(targets_N @ targets_N - along_R @ along_R))

    def fit(ratio: float) -> tuple[float, float]:
        """Squares of the weights and of the errors at this alpha / beta."""
        weights = float((squares_R * np.square(along_R / (squares_R + ratio))).sum())
        return weights, float(np.square(ratio * along_R / (squares_R + ratio)).sum()) + outside

    alpha = beta = 1.0
    for _ in range(STEPS):
        ratio = alpha / beta
        gamma = float((squares_R / (squares_R + ratio)).sum())
        weights, error = fit(ratio)
        alpha, beta = max(LEAST, gamma) / max(LEAST, weights), max(LEAST, count - gamma) / max(LEAST, error)
        if abs(alpha / beta - ratio) <= TOLERANCE * ratio:
            break
    weights, error = fit(alpha / beta)
    determinant = float(np.log(alpha + beta * squares_R).sum()) + (features - len(squares_R)) * math.log(alpha)
    total = count * math.log(beta / (2 * math.pi)) + features * math.log(alpha) - beta * error - alpha * weights
    return (total - determinant) / 2 / count


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
