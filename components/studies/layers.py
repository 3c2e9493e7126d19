"""Which layer to use as features: the six rows of Devlin et al. 2019, table 7, and ELMo's learned scalar mix.

The encoder stays frozen; a logistic regression learns from one vector a text (a word, where words have tags), dev
scores it. The regression sees every feature with mean 0 and deviation 1. The mix is learned together with it:

    x = sum_j softmax(s)_j z_j        z_j: layer j, normalised as above (Peters et al. 2018, equation 1)

Shape suffixes: L layers, M vectors, D width, C labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from components.errors import ConfigError
from components.evaluation.compare import format_budget
from components.evaluation.intervals import interval
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.scoring import Scoring, title
from components.settings.names import LayerChoice
from components.studies import curves
from components.studies.base import Study
from components.studies.frozen import Labelled, Pooling, answers_of, layer_vectors, numbers_of
from components.studies.outputs import Outputs
from components.task_models.heads import Features
from components.tasks.kinds import scoring_for

#: The rows of the table, with the dev F1 of CoNLL-2003 that BERT-base reached with them.
PUBLISHED: dict[LayerChoice, float | None] = {
    "first": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "sum": 95.5,
    "sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "mix": None,
}
#: Strengths of the L2 penalty (1 / C) that dev chooses from, and most steps of the solver.
PENALTIES = (1.0, 10.0, 100.0, 1000.0)
STEPS = 100
#: Labels a class at most, unless more are asked for: with many labels the layers differ little.
MOST = 50
#: Seeds: each draws other labels.
SEEDS = 3

Labels = NDArray[np.int64]
Floats = NDArray[np.floating]


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="One task; the first of run.tasks if not said.")] = "",
    encoder: Annotated[str, typer.Option(help="Such as bert-adapted; one a family if not said.")] = "",
    budget: Annotated[int, typer.Option(help="Labels a class; if 0 the largest budget up to 50.", min=0)] = 0,
    pooling: Annotated[
        Literal["mean", "lead", "summary"], typer.Option(help="From states to a text's vector.")
    ] = "mean",
) -> Findings:
    """Dev scores of every choice of layers of one encoder or several.

    Raises:
        ConfigError: no such task or encoder; a kind of task without one label a text or word.
        ArtifactError: a stage that it needs has not run.
    """
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    scoring = scoring_for(data.facts.kind, data.facts.labels)
    labels = data.budget(budget, most=MOST)
    draws = {seed: data.rows(labels, seed=seed) for seed in data.facts.seeds[:SEEDS]}
    found: dict[str, dict[str, list[float]]] = {}
    for block, start in outputs.chosen(encoder):
        loaded = outputs.encoder(block, start)
        settings = outputs.finetuning(block)
        used = np.unique(np.concatenate(list(draws.values())))
        rows = {int(row): place for place, row in enumerate(used)}
        parts = [data.train.take([row]) for row in used]
        train = data.train.take(used)
        ends = np.cumsum([len(part.targets[0]) for part in parts])
        at_train = layer_vectors(loaded, train, kind=data.facts.kind, settings=settings, pooling=pooling)
        at_dev = layer_vectors(loaded, data.dev, kind=data.facts.kind, settings=settings, pooling=pooling)
        scores: dict[str, list[float]] = {}
        for drawn in draws.values():
            places = [rows[int(row)] for row in drawn]
            chosen = np.concatenate(
                [np.arange(ends[place] - len(train.targets[place]), ends[place]) for place in places]
            )
            vectors = [layer[torch.from_numpy(chosen)] for layer in at_train]
            wanted = numbers_of(train.take(places))
            for choice in PUBLISHED:
                score = _score(choice, vectors, wanted, at_dev, data=data, scoring=scoring)
                if score is not None:
                    scores.setdefault(choice, []).append(score)
        found[f"{block}-{start}"] = scores
    return Findings(
        _chapter(
            name,
            found,
            title(scoring.main),
            format_budget(labels, scoring),
            pooling,
            outputs.params.evaluate.confidence,
        ),
        {"task": name, "score": scoring.main, "labels": labels, "seeds": list(draws), "scores": found},
    )


def _score(
    choice: LayerChoice,
    train: Sequence[Tensor],
    labels: Labels,
    dev: Sequence[Tensor],
    *,
    data: Labelled,
    scoring: Scoring,
) -> float | None:
    """The best dev score over the penalties; None where the encoder has no such layers."""
    classes = len(data.facts.labels)
    if choice == "mix" and len({layer.shape[1] for layer in train}) > 1:
        return None
    if choice == "mix":
        x_train, x_dev = _normalised(torch.stack(list(train)), torch.stack(list(dev)))
        guesses = [mixed(x_train, labels, x_dev, classes=classes, penalty=penalty)[0] for penalty in PENALTIES]
    else:
        selected = [_selected(choice, layers) for layers in (train, dev)]
        if selected[0] is None or selected[1] is None:
            return None
        x_train, x_dev = _normalised(selected[0][None], selected[1][None])
        guesses = regressed(x_train[0].numpy(), labels, x_dev[0].numpy(), classes=classes)
    kind = data.facts.kind
    return max(
        scoring.score(data.dev.fields, data.dev.targets, answers_of(kind, data.dev, guess))[scoring.main]
        for guess in guesses
    )


def _selected(choice: LayerChoice, layers: Sequence[Tensor]) -> Tensor | None:
    """(M, F): what `finetune.<family>.layers` would take of these layers; None where they do not fit it."""
    widths = [layer.shape[1] for layer in layers]
    if choice == "second_to_last" and len(layers) < 3:
        # What lies below the only layer is the embedding, which is a row of its own.
        return None
    try:
        features = Features(layers=choice, pooling="mean", widths=widths, summary=_unused, unit_states=_unused)
    except ConfigError:
        return None
    return torch.cat(features.select(layers), dim=1)


def _unused(hidden: Tensor, _: Tensor) -> Tensor:
    return hidden


def _normalised(train_LMD: Tensor, dev_LMD: Tensor) -> tuple[Tensor, Tensor]:
    """Every feature with mean 0 and deviation 1 on train."""
    mean, deviation = train_LMD.mean(1, keepdim=True), train_LMD.std(1, correction=0, keepdim=True)
    deviation = deviation.where(deviation > 1e-6, 1.0)
    return (train_LMD - mean) / deviation, (dev_LMD - mean) / deviation


def regressed(x_MD: Floats, labels: Labels, dev_MD: Floats, *, classes: int) -> list[Floats]:
    """(M, C) probabilities on dev of logistic regressions, one for each of `PENALTIES`, the strongest first; 0 for
    labels that the draw does not hold."""
    if len(np.unique(labels)) == 1:
        return [np.eye(classes)[np.full(len(dev_MD), labels[0])]]
    # Each goes on from the one before, which has a stronger penalty.
    regression = LogisticRegression(max_iter=STEPS, warm_start=True)
    guesses: list[Floats] = []
    for penalty in sorted(PENALTIES, reverse=True):
        regression.set_params(C=1 / penalty)
        with warnings.catch_warnings():
            # The number of steps is a bound that may well be reached.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(x_MD, labels)
        probabilities = np.zeros((len(dev_MD), classes))
        probabilities[:, regression.classes_] = regression.predict_proba(dev_MD)
        guesses.append(probabilities)
    return guesses


def mixed(x_LMD: Tensor, labels: Labels, dev_LMD: Tensor, *, classes: int, penalty: float) -> tuple[Floats, Floats]:
    """Logistic regression on a learned mix of layers, both fitted by L-BFGS.

    Returns:
        (M, C) probabilities on dev, and (L,) the weights of the layers, which sum to 1.
    """
    scores_L = torch.zeros(len(x_LMD), requires_grad=True)
    weight_CD = torch.zeros(classes, x_LMD.shape[2], requires_grad=True)
    bias_C = torch.zeros(classes, requires_grad=True)
    targets = torch.from_numpy(labels)

    def logits(x: Tensor) -> Tensor:
        return F.linear(torch.einsum("l,lmd->md", scores_L.softmax(0), x), weight_CD, bias_C)

    solver = torch.optim.LBFGS(
        [scores_L, weight_CD, bias_C], max_iter=STEPS, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(logits(x_LMD), targets, reduction="sum") + penalty / 2 * weight_CD.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    with torch.no_grad():
        return logits(dev_LMD).softmax(1).numpy(), scores_L.softmax(0).numpy()


def _chapter(
    task: str, found: dict[str, dict[str, list[float]]], score: str, budget: str, pooling: Pooling, confidence: float
) -> Chapter:
    intervals = {
        name: {choice: interval(np.asarray(values), confidence=confidence) for choice, values in scores.items()}
        for name, scores in found.items()
    }
    rows = [
        [
            choice.replace("_", " "),
            f"{published:.1f}" if published else "",
            *(curves.interval(entry[choice].as_dict()) if choice in entry else "" for entry in intervals.values()),
        ]
        for choice, published in PUBLISHED.items()
    ]
    draws = max(len(values) for scores in found.values() for values in scores.values())
    chapter = Chapter("Which layer to use as features")
    for name, entry in intervals.items():
        best = max(entry, key=lambda choice: entry[choice].mean)
        chapter.lead.append(
            f"{task}: of {name}, {best.replace('_', ' ')} gives the best features ({entry[best].mean:.3f}), the last "
            f"layer {entry['last'].mean:.3f}."
        )
    chapter.text.append(
        f"{score} on dev at {budget}, encoder frozen, logistic regression, vectors pooled by {pooling}; mean over "
        f"{draws} draws of the labels with its interval. Beside it the dev F1 of BERT-base on CoNLL-2003 "
        "(Devlin et al. 2019, table 7). Empty: layers of different widths cannot be added up, or there are too few."
    )
    chapter.tables.append(Table(["layers", "BERT-base, NER", *found], rows, f"{task} ({score} on dev)"))
    places: dict[str, float] = {choice: float(place) for place, choice in enumerate(PUBLISHED)}
    drawn = {
        name: Line(
            [places[choice] for choice in entry],
            [value.mean for value in entry.values()],
            [value.low for value in entry.values()],
            [value.high for value in entry.values()],
        )
        for name, entry in intervals.items()
    }
    names = {place: choice.replace("_", " ") for choice, place in places.items()}
    svg = figures.lines(drawn, x_label="", y_label=f"{score} on dev", ticks=True, names=names)
    chapter.figures.append(Drawing(svg, f"{task}: features of a frozen encoder; bands are the intervals."))
    return chapter


STUDY = Study("layers", "Which layer gives the best features?", run)
