"""Networks for the study of transferability: base networks, and networks with copied layers (Yosinski et al. 2014).

A base network is trained on a task from random weights. A network with n copied layer groups takes its lowest n groups
from a base network; the groups above and the head are initialised randomly, independently of the base network's own
initial weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from components.errors import ConfigError
from components.finetuning.features import extract
from components.models.base import LanguageModel
from components.models.encoder import Encoder, build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel, answers
from components.task_models.sampler import ExampleSampler
from components.tasks.budgets import sample_rows
from components.tasks.data import Split
from components.tasks.examples import read_facts, read_split, strata_of
from components.tasks.kinds import scoring_for
from components.training.checkpoint import CheckpointStore
from components.training.groups import decayed
from components.training.loop import TrainingState, train
from components.training.rng import counter_rng, counter_seed

#: Evaluations on dev during training; the best counts, as in fine-tuning.
EVALUATIONS = 5
#: Minimum number of classes of a task that is divided into two.
CLASSES = 4

Half = Literal["A", "B"]


@dataclass(frozen=True)
class Network:
    """One network to train, as plain values that can be sent to another process.

    Attributes:
        examples: output directory of the stage `examples` of the task that is learned.
        half: half of the task's classes, if it is divided into two tasks.
        encoder: directory of an encoder of the same architecture and with the tokenizer; its weights are not used.
        settings: of fine-tuning.
        budget: labels per class; -1 for all.
        seed: of the labels, of the random layers and of training.
        epochs: length of the training.
        storage: `cluster.storage`.
        source: key of the base network of the copied layer groups; empty for a base network.
        copied: n, the number of copied layer groups.
        learning: whether the copied groups are trained.
        key: under which the encoder is stored; empty: not stored.
    """

    examples: Path
    half: Half | None
    encoder: Path
    settings: FinetuneSettings
    budget: int
    seed: int
    epochs: float
    storage: str
    source: str = ""
    copied: int = 0
    learning: bool = True
    key: str = ""


def learn(network: Network) -> float:
    """Train a network; returns its best dev metric. Deterministic.

    All trained layers have the same learning rate from the first step: discriminative rates and gradual unfreezing
    would favour the copied layers.

    Raises:
        ArtifactError: encoder or examples are damaged.
        ConfigError: the settings do not suit the encoder.
        TrainingError: a loss is not finite.
    """
    facts = read_facts(network.examples)
    task, labels = find_task(facts.kind), labels_of(network)
    rate = network.settings.scratch.rate or network.settings.training.rate
    training = network.settings.training.model_copy(update={"rate": rate})
    # The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
    # train them for another task.
    changes = {"method": "finetune", "layers": "last", "lm_weight": 0.0, "training": training}
    settings = network.settings.model_copy(update=changes)
    loaded = load_encoder(network.encoder)
    # The two base networks start from different weights, and the random layers of a copy from others again.
    origin = ("above",) if network.source else ("base", network.examples.name, network.half or "")
    encoder = random_encoder(loaded, seed=counter_seed(network.seed, *origin))
    encoder.set_dropout(settings.dropout)
    torch.manual_seed(counter_seed(network.seed, "head", network.copied))
    model = TaskModel(encoder, task=task, settings=settings, labels=labels).eval()
    if network.source:
        copy_layers(encoder, network)
    train_split, dev = (split_of(network, name) for name in ("train", "dev"))
    rows, _ = sample_rows(strata_of(train_split, facts.kind), network.budget, seed=network.seed)
    train_split = train_split.take(rows)
    encoded, held = (task.encode(split.fields, loaded.tokenizer, encoder, settings) for split in (train_split, dev))
    model.head.prepare(train_split.targets)
    model.head.fit_norm(extract(model, encoded).vectors)
    layers = encoder.layer_groups()
    learning = [*(layers if network.learning else layers[network.copied :]), model.own_parameters()]
    parameters = [parameter for group in learning for parameter in group]
    state = TrainingState.fresh(model, decayed(parameters), settings=training)
    sampler = ExampleSampler(
        encoded, train_split.targets, batch_size=training.batch_size, seed=counter_seed(network.seed, "batches")
    )
    steps = max(settings.min_steps, math.ceil(network.epochs * -(-len(rows) // training.batch_size)))
    scored_at = {round(steps * (number + 1) / EVALUATIONS) for number in range(EVALUATIONS)} - {0}
    scoring = scoring_for(facts.kind, labels)
    best = -math.inf
    for report in train(
        state, sampler, settings=training, total_steps=steps, seed=counter_seed(network.seed, "finetune")
    ):
        if report.step in scored_at:
            if state.average is not None:
                state.average.swap()
            found = scoring.score(dev.fields, dev.targets, answers(model, held))
            best = max(best, found[scoring.main])
            if state.average is not None and report.step < steps:
                state.average.swap()
    if network.key:
        weights = {name: value.detach().cpu() for name, value in encoder.named_parameters()}
        CheckpointStore(network.storage, key=network.key).save(steps, weights, {"score": best})
    return best


def random_encoder(loaded: Encoder, *, seed: int) -> LanguageModel:
    """An encoder of the same size with random weights."""
    torch.manual_seed(seed)
    sizes = loaded.model.config.model_dump(mode="json", exclude={"vocabulary"})
    fresh = build_model(loaded.family, vocabulary=loaded.model.config.vocabulary, settings=sizes)
    fresh.bind(loaded.tokenizer)
    return fresh


def copy_layers(encoder: LanguageModel, network: Network) -> None:
    """Copy the lowest `network.copied` layer groups of the base network `network.source` into an encoder.

    Raises:
        ConfigError: the base network is not stored.
    """
    stored = CheckpointStore(network.storage, key=network.source).latest()
    if stored is None:
        raise ConfigError(f"{network.storage}: the base network {network.source} is missing; run the study again")
    names = {id(parameter): name for name, parameter in encoder.named_parameters()}
    with torch.no_grad():
        for group in encoder.layer_groups()[: network.copied]:
            for parameter in group:
                parameter.copy_(stored.tensors[names[id(parameter)]])


def labels_of(network: Network) -> list[str]:
    """The labels of the task, or of its half."""
    labels = read_facts(network.examples).labels
    return labels if network.half is None else [labels[index] for index in _classes(network, len(labels))]


def split_of(network: Network, name: str) -> Split:
    """A split of the task; of a half only the rows of its classes, numbered anew."""
    split = read_split(network.examples, name)
    if network.half is None:
        return split
    classes = _classes(network, len(read_facts(network.examples).labels))
    kept = split.take(np.flatnonzero(np.isin(split.labels, classes)))
    targets = [np.searchsorted(classes, target).astype(np.float64) for target in kept.targets]
    return Split(kept.fields, targets, kept.slices, kept.ids, kept.groups, kept.lines)


def _classes(network: Network, count: int) -> list[int]:
    """Indices of the classes of a half, ascending: a random division that depends on the seed (Yosinski et al. 2014,
    section 3)."""
    order = counter_rng(network.seed, "classes").permutation(count)
    return sorted((order[: count // 2] if network.half == "A" else order[count // 2 :]).tolist())
