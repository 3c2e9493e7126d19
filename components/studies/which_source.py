"""Which pretrained encoder suits a task, ranked before fine-tuning, and how well the ranking agrees with fine-tuning.

Three criteria are computed for each candidate on a labelled sample of the task's train split:

    LogME        how well its hidden states (mean pooling, all layers) explain the labels (components.studies.logme),
                 independent of the settings of the heads
    vocabulary   unknown rate and pieces per word on the task's texts
    distance     cross-entropy of the task's texts in nats per word under the candidate's own objective. Masked and
                 causal models are not comparable, so the criterion is the relative rank among the candidates with the
                 same objective

Each criterion gives a rank; the combined rank orders their mean. If the run has fine-tuned the candidates, the ranks
are compared with the dev metrics: Spearman's and Kendall's rank correlation with exact p values, ties included
(permutation test for few candidates).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy import stats

from components.artifacts import MANIFEST
from components.errors import ConfigError
from components.evaluation.compare import format_budget
from components.models import family as family_named
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.scoring import title
from components.studies.base import Study
from components.studies.curves import main_score
from components.studies.frozen import Labelled, layer_vectors, numbers_of
from components.studies.logme import logme
from components.studies.occurrences import evenly
from components.studies.outputs import Outputs
from components.studies.text_distance import perplexity
from components.tasks.kinds import scoring_for
from components.tokenization.report import count_words, report_on_words

#: Largest default budget in labels per class.
MOST = 50
#: Maximum number of vectors for LogME, and of texts for the perplexity.
VECTORS, TEXTS = 4000, 3000
#: Maximum number of candidates for a permutation test; for more, p values come from an approximation.
EXACT = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """The criteria of an encoder before fine-tuning, and its dev metric after fine-tuning.

    Attributes:
        name: `<block>-<start>`.
        objective: causal, masked ...
        logme: nats per row; higher is better.
        unknown_rate: on the task's texts.
        pieces_per_word: on the task's texts.
        cross_entropy: nats per word on the task's texts; None if the family has no likelihood.
        score: dev metric of fine-tuning, mean over seeds; None if the encoder is not fine-tuned.
    """

    name: str
    objective: str
    logme: float
    unknown_rate: float
    pieces_per_word: float
    cross_entropy: float | None
    score: float | None


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")] = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates separated by commas, such as bert-adapted; all trained ones by default.")
    ] = "",
    budget: Annotated[
        int, typer.Option(help="Labels per class of the sample; 0: the largest budget up to 50.", min=0)
    ] = 0,
) -> Findings:
    """Rank the candidates without fine-tuning.

    Raises:
        ConfigError: fewer than two candidates, an unknown encoder or task, a kind of task without labels, or a sample
            with only one label.
        ArtifactError: a required stage has not run.
    """
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget, most=MOST)
    sample = data.train.take(data.rows(labels, seed=data.facts.seeds[0]))
    chosen = _chosen(outputs, encoders)
    evaluation = _evaluation(outputs, name)
    texts = [" ".join(parts) for parts in evenly(data.train.fields, TEXTS)]
    numbers_M = numbers_of(sample)
    # Evenly spread, because files are often sorted by label.
    used = np.asarray(evenly(range(len(numbers_M)), VECTORS))
    targets = np.eye(len(data.facts.labels))[numbers_M[used]]
    if len(np.unique(numbers_M[used])) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    candidates = []
    for block, start in chosen:
        loaded = outputs.encoder(block, start)
        settings = outputs.finetuning(block)
        vectors = torch.cat(layer_vectors(loaded, sample, kind=data.facts.kind, settings=settings), dim=1)
        fit = report_on_words(loaded.tokenizer, count_words(map(loaded.tokenizer.segmentation.spaced, texts)))
        on_task = perplexity(loaded, texts)
        candidates.append(
            Candidate(
                name=f"{block}-{start}",
                objective=family_named(loaded.family).objective,
                logme=logme(vectors[torch.from_numpy(used)].double().numpy(), targets),
                unknown_rate=fit["unknown_rate"],
                pieces_per_word=fit["pieces_per_word"],
                cross_entropy=math.log(on_task.perplexity_per_word)
                if on_task and on_task.perplexity_per_word
                else None,
                score=_dev_score(evaluation, f"{block}-{start}", labels),
            )
        )
    ranked = ranks(candidates)
    sampled = format_budget(labels, scoring_for(data.facts.kind, data.facts.labels))
    evidence = correlations(candidates, ranked)
    chapter = _chapter(name, candidates, ranked, evidence, sampled, evaluation)
    numbers = {
        "task": name,
        "labels": labels,
        "candidates": [
            asdict(candidate) | {"ranks": {criterion: float(values[row]) for criterion, values in ranked.items()}}
            for row, candidate in enumerate(candidates)
        ],
        "evidence": evidence,
    }
    return Findings(chapter, numbers)


def ranks(candidates: Sequence[Candidate]) -> dict[str, Floats]:
    """Criterion -> (K,) ranks, 1 for the best, with average ranks for ties; `combined` ranks their mean. `distance` is
    omitted if a candidate has no cross-entropy."""
    unknown = stats.rankdata([candidate.unknown_rate for candidate in candidates])
    pieces = stats.rankdata([candidate.pieces_per_word for candidate in candidates])
    found: dict[str, Floats] = {
        "LogME": stats.rankdata([-candidate.logme for candidate in candidates]),
        "vocabulary": stats.rankdata(unknown + pieces),
    }
    if (distances := relative_ranks(candidates)) is not None:
        found["distance"] = stats.rankdata(distances)
    found["combined"] = stats.rankdata(np.sum(list(found.values()), axis=0))
    return found


def relative_ranks(candidates: Sequence[Candidate]) -> list[float] | None:
    """Relative rank of each candidate by cross-entropy among those with its objective, between 0 (low) and 1. None if a
    candidate has no cross-entropy."""
    found = [0.0] * len(candidates)
    for objective in {candidate.objective for candidate in candidates}:
        rows = [row for row, candidate in enumerate(candidates) if candidate.objective == objective]
        values = [candidates[row].cross_entropy for row in rows]
        if any(value is None for value in values):
            return None
        for row, rank in zip(rows, stats.rankdata(values), strict=True):
            found[row] = float(rank - 0.5) / len(rows)
    return found


def correlations(candidates: Sequence[Candidate], ranked: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    """Criterion -> rank correlations with the dev metrics, positive if better ranks have better metrics, and p values.
    Empty with fewer than three fine-tuned candidates, or if all have the same dev metric."""
    rows = [row for row, candidate in enumerate(candidates) if candidate.score is not None]
    scores = np.asarray([candidates[row].score for row in rows], dtype=np.float64)
    if len(rows) < 3 or not np.ptp(scores):
        return {}
    found = {}
    for criterion, values in ranked.items():
        goodness = -values[rows]
        if not np.ptp(goodness):
            continue
        rho, rho_p = spearman(goodness, scores)
        tau, tau_p = kendall(goodness, scores)
        found[criterion] = {
            "spearman": rho,
            "spearman_p": rho_p,
            "kendall": tau,
            "kendall_p": tau_p,
            "candidates": float(len(rows)),
        }
    return found


def spearman(x: Floats, y: Floats) -> tuple[float, float]:
    """Spearman's rho and its two-sided p value: from all permutations for up to `EXACT` values, otherwise from the t
    distribution."""
    rho, p = (float(value) for value in stats.spearmanr(x, y))
    if len(x) > EXACT:
        return rho, p
    rank_x, rank_y = stats.rankdata(x), stats.rankdata(y)
    centred_x, centred_y = rank_x - rank_x.mean(), rank_y - rank_y.mean()
    return rho, _extreme(centred_y[_orders(len(x))] @ centred_x, centred_y @ centred_x)


def kendall(x: Floats, y: Floats) -> tuple[float, float]:
    """Kendall's tau-b and its two-sided p value: from all permutations, or the normal distribution, as above."""
    tau, p = (float(value) for value in stats.kendalltau(x, y))
    if len(x) > EXACT:
        return tau, p
    above_x, above_y = (np.sign(values[:, None] - values) for values in (x, y))
    orders = _orders(len(x))
    # Concordant minus discordant pairs. The denominator of tau-b is the same for all permutations.
    return tau, _extreme(
        (above_y[orders[:, :, None], orders[:, None]] * above_x).sum((1, 2)), (above_y * above_x).sum()
    )


def _orders(count: int) -> NDArray[np.int64]:
    return np.asarray(list(itertools.permutations(range(count))))


def _extreme(found: Floats, ours: float) -> float:
    """The fraction of the permutations' values that are at least as far from 0 as `ours`."""
    return float(np.mean(np.abs(found) >= abs(ours) - 1e-9))


def _chosen(outputs: Outputs, encoders: str) -> list[tuple[str, str]]:
    """The named candidates; by default every trained encoder of run.families that the run uses.

    Raises:
        ConfigError: fewer than two.
    """
    if encoders:
        found = list(dict.fromkeys(outputs.split_name(name.strip()) for name in encoders.split(",") if name.strip()))
    else:
        trained = [start for start in outputs.params.run.starts if start != "scratch"]
        found = [(block, start) for block in outputs.params.run.families for start in trained]
    if len(found) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    return found


def _evaluation(outputs: Outputs, task: str) -> dict[str, Any] | None:
    """The evaluation of the task, if it exists."""
    exists = (outputs.out / "evaluation" / task / MANIFEST).is_file()
    return outputs.evaluation(task) if exists else None


def _dev_score(evaluation: Mapping[str, Any] | None, system: str, budget: int) -> float | None:
    if evaluation is None:
        return None
    for found in evaluation["systems"]:
        for cell in found["budgets"]:
            if found["system"] == system and cell["budget"] == budget:
                return float(cell["training"][f"selection_{main_score(evaluation)}"])
    return None


def _chapter(
    task: str,
    candidates: Sequence[Candidate],
    ranked: Mapping[str, Floats],
    evidence: Mapping[str, Mapping[str, float]],
    budget: str,
    evaluation: Mapping[str, Any] | None,
) -> Chapter:
    order = np.argsort(ranked["combined"], kind="stable")
    score = title(main_score(evaluation)) if evaluation else "score"
    columns = ["encoder", "LogME", "unknown", "pieces per word", "nats per word"]
    columns += [f"rank: {criterion}" for criterion in ranked] + [f"fine-tuned: {score} on dev"]
    rows = []
    for row in order:
        candidate = candidates[row]
        rows.append(
            [
                candidate.name,
                f"{candidate.logme:.4f}",
                f"{candidate.unknown_rate:.2%}",
                f"{candidate.pieces_per_word:.2f}",
                _number(candidate.cross_entropy, ".3f"),
                *(f"{values[row]:g}" for values in ranked.values()),
                _number(candidate.score, ".3f"),
            ]
        )
    chapter = Chapter(f"{task}: which encoder to start from")
    best = candidates[order[0]]
    chapter.lead.append(f"{task}: before fine-tuning, {best.name} is ranked first.")
    scored = [candidate for candidate in candidates if candidate.score is not None]
    if evidence:
        winner = max(scored, key=lambda candidate: candidate.score or 0.0)
        combined = evidence.get("combined", {})
        found_best = "the same" if winner.name == best.name else winner.name
        measured = f" (rho {combined['spearman']:+.2f}, p {combined['spearman_p']:.3f})" if combined else ""
        chapter.lead.append(
            f"{task}: after fine-tuning, {found_best} is best on dev of {len(scored)} candidates{measured}."
        )
    else:
        chapter.lead.append(
            f"{task}: the ranking cannot be verified without three fine-tuned candidates with different metrics."
        )
    chapter.text.append(
        f"The ranking uses a labelled sample of train ({budget}) and the task's texts; dev is used for the metrics of "
        "fine-tuning only. Nats per word: the cross-entropy of the task's texts; masked models are compared only with "
        "masked models."
        + ("" if "distance" in ranked else " A candidate has no likelihood, so the distance is omitted.")
    )
    chapter.tables.append(Table(columns, rows, task))
    if evidence:
        columns = ["criterion", "Spearman's rho", "p", "Kendall's tau", "p "]
        rows = [
            [criterion, *(f"{found[key]:+.2f}" if "_p" not in key else f"{found[key]:.3f}" for key in list(found)[:4])]
            for criterion, found in evidence.items()
        ]
        chapter.tables.append(
            Table(columns, rows, f"{task}: rank correlation with fine-tuning, {len(scored)} candidates")
        )
        found_at = {candidate.name: (candidate.logme, float(candidate.score or 0.0)) for candidate in scored}
        svg = figures.points(found_at, x_label="LogME (nats per row)", y_label=f"fine-tuned: {score} on dev")
        chapter.figures.append(Drawing(svg, f"{task}: LogME before and the metric after fine-tuning."))
    else:
        svg = figures.bars(
            {candidates[row].name: float(ranked["combined"][row]) for row in order},
            x_label="combined rank",
            form="{:g}",
        )
        chapter.figures.append(Drawing(svg, f"{task}: combined rank, 1 is best."))
    return chapter


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


STUDY = Study("which-source", "Which pretrained encoder suits the task best, judged before fine-tuning?", run)
