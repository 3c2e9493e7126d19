"""Which pretrained encoder to start from, before any of them is fine-tuned; and how right that ranking was.

Three things are asked of each candidate and a labelled sample of the task's train split:

    LogME        how well its hidden states, the mean of each layer, explain the labels (components.studies.logme); all
                 candidates are read alike, whatever the settings of their heads
    vocabulary   unknown rate and pieces a word on the task's texts
    distance     cross-entropy of the task's texts, nats a word, under the candidate's own objective. A masked and a
                 causal model's cannot be compared; so a candidate's place among those of its objective counts, as a
                 share of them

Each gives a rank, the combined one is by their mean. Where the run fine-tuned the candidates, the ranks are compared
with the dev scores: Spearman's and Kendall's rank correlation with exact p values, ties or not (all orders of few
candidates).
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

#: Labels a class at most, unless more are asked for.
MOST = 50
#: Vectors of the sample that LogME looks at, and texts that perplexity is measured on, at most.
VECTORS, TEXTS = 4000, 3000
#: Up to so many candidates every order is looked at for the p value; beyond, a distribution stands in.
EXACT = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """What is known of an encoder before fine-tuning, and its dev score after it.

    Attributes:
        logme: nats a row; more is better.
        unknown_rate, pieces_per_word: on the task's texts.
        cross_entropy: nats a word on the task's texts; None where the family has no likelihood.
        objective: causal, masked ...
        score: dev score of fine-tuning, mean over seeds; None where the run has none.
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
    task: Annotated[str, typer.Option(help="One task; the first of run.tasks if not said.")] = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates divided by commas, such as bert-adapted; all trained ones if not said.")
    ] = "",
    budget: Annotated[
        int, typer.Option(help="Labels a class of the sample; if 0 the largest budget up to 50.", min=0)
    ] = 0,
) -> Findings:
    """Rank the candidates by what can be known beforehand.

    Raises:
        ConfigError: fewer than two candidates, no such encoder or task, a kind of task without labels, a sample with
            one label.
        ArtifactError: a stage that it needs has not run.
    """
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    labels = data.budget(budget, most=MOST)
    sample = data.train.take(data.rows(labels, seed=data.facts.seeds[0]))
    chosen = _chosen(outputs, encoders)
    evaluation = _evaluation(outputs, name)
    texts = [" ".join(parts) for parts in evenly(data.train.fields, TEXTS)]
    told = numbers_of(sample)
    # Of them all over the sample: files are often sorted by label.
    looked_at = np.asarray(evenly(range(len(told)), VECTORS))
    targets = np.eye(len(data.facts.labels))[told[looked_at]]
    if len(np.unique(told[looked_at])) < 2:
        raise ConfigError(
            f"{name}: the sample of train holds one label only, which tells no candidates apart; raise --budget"
        )
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
                logme=logme(vectors[torch.from_numpy(looked_at)].double().numpy(), targets),
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
    """Criterion -> (K,) ranks, 1 for the best, ties shared; `combined` ranks their mean. `distance` is left out where a
    candidate has no cross-entropy."""
    unknown = stats.rankdata([candidate.unknown_rate for candidate in candidates])
    pieces = stats.rankdata([candidate.pieces_per_word for candidate in candidates])
    found: dict[str, Floats] = {
        "LogME": stats.rankdata([-candidate.logme for candidate in candidates]),
        "vocabulary": stats.rankdata(unknown + pieces),
    }
    if (distances := places(candidates)) is not None:
        found["distance"] = stats.rankdata(distances)
    found["combined"] = stats.rankdata(np.sum(list(found.values()), axis=0))
    return found


def places(candidates: Sequence[Candidate]) -> list[float] | None:
    """Each candidate's place by cross-entropy among those of its objective, as a share between 0 (near) and 1; None if
    one of them has no cross-entropy."""
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
    """Criterion -> rank correlations with the dev scores, positive where the better rank scored better, and p values;
    {} with fewer than three scored candidates."""
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
    """Rank correlation and its two-sided p value: the share of all orders at least as far from 0, of up to `EXACT`
    values; from the t distribution beyond."""
    rho, p = (float(value) for value in stats.spearmanr(x, y))
    if len(x) > EXACT:
        return rho, p
    rank_x, rank_y = stats.rankdata(x), stats.rankdata(y)
    centred_x, centred_y = rank_x - rank_x.mean(), rank_y - rank_y.mean()
    return rho, _extreme(centred_y[_orders(len(x))] @ centred_x, centred_y @ centred_x)


def kendall(x: Floats, y: Floats) -> tuple[float, float]:
    """Kendall's tau-b and its two-sided p value, likewise; from the normal distribution beyond."""
    tau, p = (float(value) for value in stats.kendalltau(x, y))
    if len(x) > EXACT:
        return tau, p
    above_x, above_y = (np.sign(values[:, None] - values) for values in (x, y))
    orders = _orders(len(x))
    # Pairs in the same order less those in the other; what ties take off the denominator is the same in all orders.
    return tau, _extreme(
        (above_y[orders[:, :, None], orders[:, None]] * above_x).sum((1, 2)), (above_y * above_x).sum()
    )


def _orders(count: int) -> NDArray[np.int64]:
    return np.asarray(list(itertools.permutations(range(count))))


def _extreme(found: Floats, ours: float) -> float:
    """The share of all orders' values that are at least as far from 0 as ours."""
    return float(np.mean(np.abs(found) >= abs(ours) - 1e-9))


def _chosen(outputs: Outputs, encoders: str) -> list[tuple[str, str]]:
    """The candidates named, or every trained encoder of run.families that the run uses.

    Raises:
        ConfigError: fewer than two.
    """
    if encoders:
        found = list(dict.fromkeys(outputs.split_name(name.strip()) for name in encoders.split(",") if name.strip()))
    else:
        trained = [start for start in outputs.params.run.starts if start != "scratch"]
        found = [(block, start) for block in outputs.params.run.families for start in trained]
    if len(found) < 2:
        raise ConfigError("--encoders: two or more candidates are needed to choose from")
    return found


def _evaluation(outputs: Outputs, task: str) -> dict[str, Any] | None:
    """What the run knows of fine-tuning, if it has got so far."""
    made = (outputs.out / "evaluation" / task / MANIFEST).is_file()
    return outputs.evaluation(task) if made else None


def _dev_score(evaluation: Mapping[str, Any] | None, system: str, budget: int) -> float | None:
    if evaluation is None:
        return None
    for found in evaluation["systems"]:
        for cell in found["budgets"]:
            if found["system"] == system and cell["budget"] == budget:
                return float(cell["training"][f"dev_{main_score(evaluation)}"])
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
    columns = ["encoder", "LogME", "unknown", "pieces a word", "nats a word"]
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
    chapter.lead.append(f"{task}: before any fine-tuning, {best.name} looks best.")
    scored = [candidate for candidate in candidates if candidate.score is not None]
    if evidence:
        winner = max(scored, key=lambda candidate: candidate.score or 0.0)
        combined = evidence.get("combined", {})
        said = "the same" if winner.name == best.name else winner.name
        measured = f" (rho {combined['spearman']:+.2f}, p {combined['spearman_p']:.3f})" if combined else ""
        chapter.lead.append(f"{task}: fine-tuning found {said} best on dev, of {len(scored)} candidates{measured}.")
    else:
        chapter.lead.append(f"{task}: fewer than three candidates were fine-tuned, so the ranking stands unproven.")
    chapter.text.append(
        f"A labelled sample of train ({budget}) and the task's texts; dev only "
        "for the scores of fine-tuning, which the ranking does not see. Nats a word: the cross-entropy of the task's "
        "texts; a masked model, which sees both sides, is compared with masked ones only."
        + ("" if "distance" in ranked else " A candidate without a likelihood: the distance is left out.")
    )
    chapter.tables.append(Table(columns, rows))
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
        svg = figures.points(found_at, x_label="LogME (nats a row)", y_label=f"fine-tuned: {score} on dev")
        chapter.figures.append(Drawing(svg, f"{task}: what was known before against what came out."))
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


STUDY = Study("which-source", "Which pretrained encoder suits the task best, before fine-tuning?", run)
