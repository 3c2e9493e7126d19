"""Which layer gives the best features: the six rows of Devlin et al. 2019, table 7, and ELMo's scalar mix.

The encoder is frozen. A logistic regression is trained on one vector per text (per word for tagging) and scored on dev.
Every feature is standardised to mean 0 and std 1 on train. The scalar mix is trained together with the regression:

    x = sum_j softmax(s)_j z_j        z_j: layer j, standardised (Peters et al. 2018, equation 1)

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
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.scoring import Scoring, title
from components.scoring.intervals import interval
from components.settings.names import LayerChoice
from components.studies import curves
from components.studies.base import Study
from components.studies.frozen import Labelled, Pooling, answers_of, layer_vectors, numbers_of
from components.studies.outputs import Outputs
from components.task_models.pooling import Features
from components.tasks.kinds import scoring_for

#: Rows of the table -> dev F1 of BERT-base on CoNLL-2003 in the paper.
PUBLISHED: dict[LayerChoice, float | None] = {
    "first": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "sum": 95.5,
    "sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "mix": None,
}
#: Strengths of the L2 penalty (1 / C), selected on dev, and maximum number of solver steps.
PENALTIES = (1.0, 10.0, 100.0, 1000.0)
STEPS = 100
#: Largest default budget in labels per class: with many labels the layers differ little.
MOST = 50
#: Maximum number of the task's seeds that are used; each gives another sample of the labels.
SEEDS = 3

Labels = NDArray[np.int64]
Floats = NDArray[np.floating]


def run(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")] = "",
    encoder: Annotated[str, typer.Option(help="Encoder, such as bert-adapted; one per family by default.")] = "",
    budget: Annotated[int, typer.Option(help="Labels per class; 0: the largest budget up to 50.", min=0)] = 0,
    pooling: Annotated[Literal["mean", "lead", "summary"], typer.Option(help="Pooling of a text's states.")] = "mean",
) -> Findings:
    """Dev metric of every choice of layers, for one or several encoders.

    Raises:
        ConfigError: unknown task or encoder; a kind of task without one label per text or word.
        ArtifactError: a required stage has not run.
    """
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    scoring = scoring_for(data.facts.kind, data.facts.labels)
    labels = data.budget(budget, most=MOST)
    samples = {seed: data.rows(labels, seed=seed) for seed in data.facts.seeds[:SEEDS]}
    found: dict[str, dict[str, list[float]]] = {}
    for block, start in outputs.chosen(encoder):
        loaded = outputs.encoder(block, start)
        settings = outputs.finetuning(block)
        used = np.unique(np.concatenate(list(samples.values())))
        index_of = {int(row): index for index, row in enumerate(used)}
        parts = [data.train.take([row]) for row in used]
        train = data.train.take(used)
        ends = np.cumsum([len(part.targets[0]) for part in parts])
        at_train = layer_vectors(loaded, train, kind=data.facts.kind, settings=settings, pooling=pooling)
        at_dev = layer_vectors(loaded, data.dev, kind=data.facts.kind, settings=settings, pooling=pooling)
        scores: dict[str, list[float]] = {}
        for sampled in samples.values():
            indices = [index_of[int(row)] for row in sampled]
            chosen = np.concatenate(
                [np.arange(ends[index] - len(train.targets[index]), ends[index]) for index in indices]
            )
            vectors = [layer[torch.from_numpy(chosen)] for layer in at_train]
            targets = numbers_of(train.take(indices))
            for choice in PUBLISHED:
                score = _score(choice, vectors, targets, at_dev, data=data, scoring=scoring)
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
        {"task": name, "score": scoring.main, "labels": labels, "seeds": list(samples), "scores": found},
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
    """The best dev metric over the penalties; None if the encoder does not have these layers."""
    classes = len(data.facts.labels)
    if choice == "mix" and len({layer.shape[1] for layer in train}) > 1:
        return None
    if choice == "mix":
        x_train, x_dev = _normalised(torch.stack(list(train)), torch.stack(list(dev)))
        predicted = [mixed(x_train, labels, x_dev, classes=classes, penalty=penalty)[0] for penalty in PENALTIES]
    else:
        selected = [_selected(choice, layers) for layers in (train, dev)]
        if selected[0] is None or selected[1] is None:
            return None
        x_train, x_dev = _normalised(selected[0][None], selected[1][None])
        predicted = regressed(x_train[0].numpy(), labels, x_dev[0].numpy(), classes=classes)
    kind = data.facts.kind
    return max(
        scoring.score(data.dev.fields, data.dev.targets, answers_of(kind, data.dev, probabilities))[scoring.main]
        for probabilities in predicted
    )


def _selected(choice: LayerChoice, layers: Sequence[Tensor]) -> Tensor | None:
    """(M, F) features as `finetune.<family>.layers` selects them; None if the layers do not suit the choice."""
    widths = [layer.shape[1] for layer in layers]
    if choice == "second_to_last" and len(layers) < 3:
        # The state below the only layer is the embedding, which is a separate row of the table.
        return None
    try:
        features = Features(layers=choice, pooling="mean", widths=widths, summary=_unused, unit_states=_unused)
    except ConfigError:
        return None
    return torch.cat(features.select(layers), dim=1)


def _unused(hidden: Tensor, _: Tensor) -> Tensor:
    return hidden


def _normalised(train_LMD: Tensor, dev_LMD: Tensor) -> tuple[Tensor, Tensor]:
    """Standardise every feature to mean 0 and std 1 on train."""
    mean, std = train_LMD.mean(1, keepdim=True), train_LMD.std(1, correction=0, keepdim=True)
    std = std.where(std > 1e-6, 1.0)
    return (train_LMD - mean) / std, (dev_LMD - mean) / std


def regressed(x_MD: Floats, labels: Labels, dev_MD: Floats, *, classes: int) -> list[Floats]:
    """(M, C) probabilities on dev of logistic regressions, one per penalty, the strongest first. Labels that are not in
    the sample have probability 0."""
    if len(np.unique(labels)) == 1:
        return [np.eye(classes)[np.full(len(dev_MD), labels[0])]]
    # Each fit is initialised with the previous one, which has a stronger penalty.
    regression = LogisticRegression(max_iter=STEPS, warm_start=True)
    found: list[Floats] = []
    for penalty in sorted(PENALTIES, reverse=True):
        regression.set_params(C=1 / penalty)
        with warnings.catch_warnings():
            # Reaching the maximum number of steps is acceptable.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(x_MD, labels)
        probabilities = np.zeros((len(dev_MD), classes))
        probabilities[:, regression.classes_] = regression.predict_proba(dev_MD)
        found.append(probabilities)
    return found


def mixed(x_LMD: Tensor, labels: Labels, dev_LMD: Tensor, *, classes: int, penalty: float) -> tuple[Floats, Floats]:
    """Logistic regression on a scalar mix of layers, fitted jointly by L-BFGS; the penalty is that of `regressed`.

    Returns:
        (M, C) probabilities on dev, and the (L,) weights of the layers, which sum to 1.
    """
    scores_L = torch.zeros(len(x_LMD), requires_grad=True)
    weight_CD = torch.zeros(classes, x_LMD.shape[2], requires_grad=True)
    bias_C = torch.zeros(classes, requires_grad=True)
    targets = torch.from_numpy(labels)
    # Of two labels, scikit-learn penalises the difference of the weights, whose square is twice the sum of theirs.
    strength = penalty if len(np.unique(labels)) == 2 else penalty / 2

    def logits(x: Tensor) -> Tensor:
        return F.linear(torch.einsum("l,lmd->md", scores_L.softmax(0), x), weight_CD, bias_C)

    solver = torch.optim.LBFGS(
        [scores_L, weight_CD, bias_C], max_iter=STEPS, tolerance_grad=1e-4, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(logits(x_LMD), targets, reduction="sum") + strength * weight_CD.square().sum()
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
    samples = max(len(values) for scores in found.values() for values in scores.values())
    chapter = Chapter("Which layer to use as features")
    for name, entry in intervals.items():
        best = max(entry, key=lambda choice: entry[choice].mean)
        chapter.lead.append(
            f"{task}: the best features of {name} are {best.replace('_', ' ')} ({entry[best].mean:.3f}); the last "
            f"layer reaches {entry['last'].mean:.3f}."
        )
    chapter.text.append(
        f"{score} on dev at {budget}, frozen encoder, logistic regression, pooling {pooling}; mean over {samples} "
        "samples of the labels with its interval. For comparison, the dev F1 of BERT-base on CoNLL-2003 (Devlin et al. "
        "2019, table 7). Empty cells: the layers differ in width and cannot be added, or the encoder has too few."
    )
    chapter.tables.append(Table(["layers", "BERT-base, NER", *found], rows, f"{task} ({score} on dev)"))
    positions: dict[str, float] = {choice: float(index) for index, choice in enumerate(PUBLISHED)}
    lines = {
        name: Line(
            [positions[choice] for choice in entry],
            [value.mean for value in entry.values()],
            [value.low for value in entry.values()],
            [value.high for value in entry.values()],
        )
        for name, entry in intervals.items()
    }
    names = {position: choice.replace("_", " ") for choice, position in positions.items()}
    svg = figures.lines(lines, x_label="", y_label=f"{score} on dev", ticks=True, names=names)
    chapter.figures.append(Drawing(svg, f"{task}: features of a frozen encoder; bands are the intervals."))
    return chapter


STUDY = Study("layers", "Which layer gives the best features?", run)
