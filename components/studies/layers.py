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
from components.data.scoring.intervals import CONFIDENCE, Interval, interval, left_out, sizes_of
from components.evaluation.aggregates import format_budget
from components.studies.frame import Budget, EncoderName, Measured, Outputs, Row, Sheet, Task, bounds, curves
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
    "second to last": "95.6",
    "last": "94.9",
    "sum": "95.5",
    "sum last four": "95.9",
    "concat last four": "96.1",
    "mix": "",
}
#: Maximum number of the task's seeds that are used; each gives another sample of the labels.
SEEDS = 3


def measure(outputs: Outputs, *, task: Task = "", encoder: EncoderName = "", budget: Budget = 0) -> Measured:
    """Dev metric of every choice of layers, and its difference to the last layer, for one or several encoders."""
    name = outputs.task(task)
    data = Labelled.of(outputs, name)
    if not len(data.dev):
        raise ConfigError(f"{name}: this study is measured on dev; name a file (data.tasks.{name}.dev)")
    labels, rows, lead = data.budget(budget), list[Row](), list[str]()
    how = f"{title(data.scoring.main)} on dev at {format_budget(labels, data.scoring)}"
    sizes = sizes_of(data.dev.clusters, len(data.dev))

    def around(scores_SG: Floats) -> Interval:
        return interval(scores_SG[:, 0], scores_SG[:, 1:], sizes, confidence=CONFIDENCE)

    for system, loaded in outputs.encoders(encoder).items():
        settings = outputs.finetuning(outputs.split_name(system)[0])
        scores: dict[str, list[Floats]] = {}
        dev = layer_vectors(loaded, data.dev, kind=data.facts.kind, settings=settings)
        for seed in data.facts.seeds[:SEEDS]:
            sample = data.sample(labels, seed=seed)
            train = layer_vectors(loaded, sample, kind=data.facts.kind, settings=settings)
            for choice in PUBLISHED:
                predicted = _predicted(choice, train, numbers_of(sample), dev, classes=len(data.facts.labels))
                if predicted:
                    scores.setdefault(choice, []).append(
                        max((_scores(data, of) for of in predicted), key=lambda of: of[0])
                    )
        stacked = {choice: np.stack(of) for choice, of in scores.items()}
        rows += [
            {
                "encoder": system,
                "layers": choice,
                "BERT-base, NER": PUBLISHED[choice],
                "score": around(of),
                "minus the last layer": None if choice == "last" else around(of - stacked["last"]),
            }
            for choice, of in stacked.items()
        ]
        best = max(stacked, key=lambda choice: stacked[choice][:, 0].mean())
        lead.append(f"{name}: the best features of {system} are {best} ({bounds(around(stacked[best]))}).")
    places = {choice: float(place) for place, choice in enumerate(PUBLISHED)}
    points = [row | {"place": places[row["layers"]]} for row in rows]
    names = {place: choice for choice, place in places.items()}
    drawing = curves(points, f"{name}: features of a frozen encoder.", x="place", y="score", by="encoder", names=names)
    text = (
        f"{how}, frozen encoder, logistic regression; means over samples of the labels. Intervals and differences are "
        "paired by sample and row of dev. For comparison, the dev F1 of BERT-base on CoNLL-2003 (Devlin et al. 2019, "
        "table 7). Choices are left out if the layers differ in width and cannot be added, or are too few."
    )
    return Measured([Sheet(rows, name)], lead, [text], [drawing])


def _scores(data: Labelled, probabilities: Floats) -> Floats:
    """(1 + G,) primary metric on dev, followed by that without each cluster of rows."""
    answers = answers_of(data.facts.kind, data.dev, probabilities)
    matrix = data.scoring.statistics(data.dev.fields, data.dev.targets, answers)
    whole, without = (
        data.scoring.scores(np.asarray(matrix.sum(0))),
        left_out(matrix, data.dev.clusters, data.scoring.scores),
    )
    return np.append(whole[data.scoring.main], without[data.scoring.main])


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
        "second to last": layers[-2:-1] if len(layers) > 2 else [],
        "last": layers[-1:],
        "sum": above,
        "sum last four": above[-4:],
        "concat last four": above[-4:],
        "mix": layers,
    }[choice]
    added = choice.startswith(("sum", "mix")) and len({layer.shape[1] for layer in selected}) > 1
    return [] if added else list(selected)
