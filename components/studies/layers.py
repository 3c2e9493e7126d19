"""Which layer gives the best features: the six rows of Devlin et al. 2019, table 7, and ELMo's scalar mix (Peters et
al. 2018, equation 1), trained with the regression: x = sum_j softmax(s)_j z_j of the standardised layers z_j.

The encoder is frozen. A logistic regression is trained on one vector per text (per word for tagging) and scored on dev.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from components.core.errors import ConfigError
from components.data.scoring import title
from components.data.scoring.intervals import CONFIDENCE, interval
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import format_budget
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import Budget, EncoderName, Outputs, Task, band, bounds
from components.studies.frozen import (
    PENALTIES,
    Floats,
    Labelled,
    Labels,
    answers_of,
    layer_vectors,
    mixed,
    normalised,
    numbers_of,
    regressed,
)

#: Rows of the table -> dev F1 of BERT-base on CoNLL-2003 in the paper.
PUBLISHED = {
    "first": "91.0",
    "second_to_last": "95.6",
    "last": "94.9",
    "sum": "95.5",
    "sum_last_four": "95.9",
    "concat_last_four": "96.1",
    "mix": "",
}
#: Maximum number of the task's seeds that are used; each gives another sample of the labels.
SEEDS = 3


def run(outputs: Outputs, *, task: Task = "", encoder: EncoderName = "", budget: Budget = 0) -> Findings:
    """Dev metric of every choice of layers, for one or several encoders."""
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    if not len(data.dev):
        raise ConfigError(f"{name}: this study is measured on dev; name a file (data.tasks.{name}.dev)")
    kind, scoring = data.facts.kind, scoring_for(data.facts.kind, data.facts.labels)
    labels, seeds = data.budget(budget), data.facts.seeds[:SEEDS]
    scores: dict[str, dict[str, list[float]]] = {}
    for block, start in outputs.chosen(encoder):
        loaded, settings = outputs.encoder(block, start), outputs.finetuning(block)
        dev = layer_vectors(loaded, data.dev, kind=kind, settings=settings)
        of_encoder = scores.setdefault(f"{block}-{start}", {})
        for seed in seeds:
            sample = data.sample(labels, seed=seed)
            train = layer_vectors(loaded, sample, kind=kind, settings=settings)
            for choice in PUBLISHED:
                predicted = _predicted(choice, train, numbers_of(sample), dev, classes=len(data.facts.labels))
                answers = [answers_of(kind, data.dev, probabilities) for probabilities in predicted]
                values = [scoring.score(data.dev.fields, data.dev.targets, of)[scoring.main] for of in answers]
                if values:
                    of_encoder.setdefault(choice, []).append(max(values))
    how = f"{title(scoring.main)} on dev at {format_budget(labels, scoring)}"
    chapter = _chapter(name, scores, how, confidence=CONFIDENCE)
    numbers = {"task": name, "score": scoring.main, "labels": labels, "seeds": seeds, "scores": scores}
    return Findings(chapter, numbers)


def _predicted(
    choice: str, train: Sequence[Tensor], labels: Labels, dev: Sequence[Tensor], *, classes: int
) -> list[Floats]:
    """Probabilities on dev, one per penalty; none if the encoder does not have these layers."""
    parts = _selected(choice, train), _selected(choice, dev)
    if not parts[0]:
        return []
    if choice == "mix":
        x, x_dev = normalised(*(torch.stack(part) for part in parts))
        return [mixed(x, labels, x_dev, classes=classes, penalty=penalty)[0] for penalty in PENALTIES]
    added = choice.startswith("sum")
    joined = (torch.stack(part).sum(0) if added else torch.cat(part, dim=1) for part in parts)
    x, x_dev = normalised(*(part[None] for part in joined))
    return regressed(x[0].numpy(), labels, x_dev[0].numpy(), classes=classes)


def _selected(choice: str, layers: Sequence[Tensor]) -> list[Tensor]:
    """The hidden states of a choice; empty if there are none, or if they would be added and differ in width."""
    above = layers[1:]
    selected = {
        "first": layers[:1],
        # The state below the only layer is the embedding, which is a separate row of the table.
        "second_to_last": layers[-2:-1] if len(layers) > 2 else [],
        "last": layers[-1:],
        "sum": above,
        "sum_last_four": above[-4:],
        "concat_last_four": above[-4:],
        "mix": layers,
    }[choice]
    added = choice in ("sum", "sum_last_four", "mix") and len({layer.shape[1] for layer in selected}) > 1
    return [] if added else list(selected)


def _chapter(task: str, scores: dict[str, dict[str, list[float]]], how: str, *, confidence: float) -> Chapter:
    intervals = {
        name: {choice: interval(np.asarray(values), confidence=confidence) for choice, values in of_encoder.items()}
        for name, of_encoder in scores.items()
    }
    chapter = Chapter("Which layer to use as features")
    for name, entry in intervals.items():
        best = max(entry, key=lambda choice: entry[choice].mean)
        chapter.lead.append(
            f"{task}: the best features of {name} are {best.replace('_', ' ')} ({entry[best].mean:.3f}); the last "
            f"layer reaches {entry['last'].mean:.3f}."
        )
    samples = max(len(values) for of_encoder in scores.values() for values in of_encoder.values())
    chapter.text.append(
        f"{how}, frozen encoder, logistic regression; mean over {samples} samples of the labels with its interval. For "
        "comparison, the dev F1 of BERT-base on CoNLL-2003 (Devlin et al. 2019, table 7). Empty cells: the layers "
        "differ in width and cannot be added, or the encoder has too few."
    )
    names = {choice: choice.replace("_", " ") for choice in PUBLISHED}
    rows = [
        [names[choice], published, *(bounds(of[choice]) if choice in of else "" for of in intervals.values())]
        for choice, published in PUBLISHED.items()
    ]
    chapter.tables.append(Table(["layers", "BERT-base, NER", *scores], rows, task))
    places = {choice: float(place) for place, choice in enumerate(PUBLISHED)}
    lines = {name: band([places[choice] for choice in of], list(of.values())) for name, of in intervals.items()}
    ticks = {place: names[choice] for choice, place in places.items()}
    svg = figures.lines(lines, x_label="", y_label="score on dev", ticks=True, names=ticks)
    chapter.figures.append(Drawing(svg, f"{task}: features of a frozen encoder; bands are the intervals."))
    return chapter
