"""Networks for the study of transferability (Yosinski et al. 2014): a copy takes its lowest n layer groups from a base
network. The groups above and the head are random, independently of the base network's own initial weights."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from components.cluster.launcher import map_parallel
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.tasks.budgets import sample_rows
from components.data.tasks.examples import read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.features import extract
from components.learners.task_models.base import Task
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel, answers
from components.learners.task_models.sampler import ExampleSampler
from components.models.encoder import Encoder, build_model, load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.training.checkpoint import CheckpointStore
from components.training.loop import TrainingState, train
from components.training.optim import decayed
from components.training.rng import counter_seed

#: Evaluations on dev during training; the best counts, as in fine-tuning.
EVALUATIONS = 5

#: Series -> (base network of the copied layers, whether they are trained).
SERIES = dict(zip(("BnB", "BnB+", "AnB", "AnB+"), itertools.product("BA", (False, True)), strict=True))


@dataclass(frozen=True)
class Network:
    """One network to train, as plain values that can be sent to another process.

    Attributes:
        encoder: directory of an encoder with the architecture and the tokenizer; its weights are not used.
        source: key of the base network of the copied layer groups; empty for a base network.
        copied: n, the number of copied layer groups; `learning`: whether they are trained.
        key: under which the encoder is stored; empty: not stored.
    """

    examples: Path
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
    """Train a network; returns its best dev metric. Deterministic. All trained layers have the same learning rate from
    the first step: discriminative rates and gradual unfreezing would favour the copied layers."""
    facts, loaded = read_facts(network.examples), load_encoder(network.encoder)
    task = find_task(facts.kind)
    model = _model(network, loaded, task, facts.labels)
    encoder, settings, training, seed = model.encoder, model.settings, model.settings.training, network.seed
    whole, dev = (read_split(network.examples, name) for name in ("train", "dev"))
    split = whole.take(sample_rows(strata_of(whole, facts.kind), network.budget, seed=seed)[0])
    encoded, held = (task.encode(of.fields, loaded.tokenizer, encoder, settings) for of in (split, dev))
    model.head.prepare(split.targets)
    model.head.fit_norm(extract(model, encoded).vectors)
    groups = encoder.layer_groups()
    learning = [*(groups if network.learning else groups[network.copied :]), model.own_parameters()]
    parameters = [parameter for group in learning for parameter in group]
    state = TrainingState.fresh(model, decayed(parameters), settings=training)
    batches = ExampleSampler(encoded, split.targets, batch_size=training.batch_size, seed=counter_seed(seed, "batches"))
    steps = max(settings.min_steps, math.ceil(network.epochs * -(-len(split) // training.batch_size)))
    scored_at = {round(steps * (number + 1) / EVALUATIONS) for number in range(EVALUATIONS)} - {0}
    scoring, best = scoring_for(facts.kind, facts.labels), -math.inf
    for report in train(state, batches, settings=training, total_steps=steps, seed=counter_seed(seed, "finetune")):
        if report.step in scored_at:
            if state.average is not None:
                state.average.swap()
            best = max(best, scoring.score(dev.fields, dev.targets, answers(model, held))[scoring.main])
            if state.average is not None and report.step < steps:
                state.average.swap()
    if network.key:
        weights = {name: value.detach().cpu() for name, value in encoder.named_parameters()}
        CheckpointStore(network.storage, key=network.key).save(steps, weights, {"score": best})
    return best


def _model(network: Network, loaded: Encoder, task: Task, labels: list[str]) -> TaskModel:
    given = network.settings
    training = given.training.model_copy(update={"rate": given.scratch.rate or given.training.rate})
    # The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
    # train them for another task.
    changes = {"method": "finetune", "layers": "last", "lm_weight": 0.0, "training": training}
    # The two base networks start from different weights, and the random layers of a copy from others again.
    origin = ("above",) if network.source else ("base", network.examples.name, "")
    torch.manual_seed(counter_seed(network.seed, *origin))
    sizes = loaded.model.config.model_dump(mode="json", exclude={"vocabulary"})
    encoder = build_model(loaded.family, vocabulary=loaded.model.config.vocabulary, settings=sizes)
    encoder.bind(loaded.tokenizer)
    encoder.set_dropout(given.dropout)
    torch.manual_seed(counter_seed(network.seed, "head", network.copied))
    model = TaskModel(encoder, task=task, settings=given.model_copy(update=changes), labels=labels).eval()
    if network.source:
        stored = CheckpointStore(network.storage, key=network.source).latest()
        if stored is None:
            raise ConfigError(f"{network.storage}: the base network {network.source} is missing; run the study again")
        names = {id(parameter): name for name, parameter in encoder.named_parameters()}
        with torch.no_grad():
            for parameter in itertools.chain(*encoder.layer_groups()[: network.copied]):
                parameter.copy_(stored.tensors[names[id(parameter)]])
    return model


def trained(
    networks: Mapping[str, Network], *, groups: int, seeds: Sequence[int], cluster: ClusterSettings
) -> tuple[list[float], dict[str, list[list[float]]]]:
    """Train the base networks, then all copies; scores of base A by seed, and series -> n from 0 -> scores by seed."""
    unique = uuid.uuid4().hex[:12]
    keys = {(base, seed): f"transferability-{unique}-{base}-{seed}" for base in networks for seed in seeds}
    bases = [replace(networks[base], seed=seed, key=key) for (base, seed), key in keys.items()]
    copies = [
        replace(networks["B"], seed=seed, source=keys[base, seed], copied=cut, learning=learning)
        for base, learning in SERIES.values()
        for cut in range(1, groups + 1)
        for seed in seeds
    ]
    scores = np.zeros(len(bases) + len(copies))
    try:
        with Progress("study transferability", total=len(scores), unit="network") as bar:
            for part, at in ((bases, scores[: len(bases)]), (copies, scores[len(bases) :])):
                for index, score in map_parallel(learn, part, settings=cluster):
                    at[index] = score
                    bar.advance(1)
    finally:
        for key in keys.values():
            CheckpointStore(networks["B"].storage, key=key).clear()
    base_a, base_b, *rest = scores.reshape(-1, len(seeds)).tolist()
    return base_a, {series: [base_b, *rest[row * groups : (row + 1) * groups]] for row, series in enumerate(SERIES)}
