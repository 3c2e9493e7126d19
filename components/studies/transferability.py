"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups of a
network are copied from a base network, those above are random, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.
"""

import itertools
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from components.cluster.launcher import map_parallel
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.scoring import title
from components.data.scoring.base import Floats
from components.data.scoring.intervals import CONFIDENCE, Interval, interval
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.examples import read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import format_budget
from components.learners.task_models.base import Task
from components.learners.task_models.fixed_batches import extract
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel, answers
from components.learners.task_models.sampler import ExampleSampler
from components.models.encoder import Encoder, architecture_of, build_model, load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.studies.frame import Measured, Outputs, Row, Sheet, bounds, curves
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
    """One network to train. `encoder`: directory with architecture and tokenizer; its weights are not used. `source`:
    key of the base network of the n = `copied` layer groups; empty for a base network. `learning`: whether these are
    trained. `key`: under which the encoder is stored; empty: not stored."""

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
) -> dict[str, list[list[float]]]:
    """Train the base networks, then all copies; series -> n from 0 -> scores by seed."""
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
    _, base_b, *rest = scores.reshape(-1, len(seeds)).tolist()
    return {series: [base_b, *rest[row * groups : (row + 1) * groups]] for row, series in enumerate(SERIES)}


def measure(
    outputs: Outputs,
    *,
    task: Annotated[str, typer.Option(help="Task B; the first of run.tasks by default.")] = "",
    other: Annotated[str, typer.Option(help="Task A; the next of run.tasks, else of data.tasks by default.")] = "",
    encoder: Annotated[str, typer.Option(help="Block of pretrain; the first of run.families by default.")] = "",
    budget: Annotated[int, typer.Option(help="Labels per class (stratum) of both tasks; 0: all.", min=0)] = 100,
    epochs: Annotated[float, typer.Option(help="Epochs of training per network.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Number of seeds of task B to use.", min=1)] = 3,
) -> Measured:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n."""
    name = outputs.task(task)
    block, start = outputs.split_name(encoder or outputs.params.run.families[0])
    tasks = [outputs.task(other)] if other else [*outputs.params.run.tasks, *outputs.params.data.tasks]
    if (second := next((each for each in tasks if each != name), None)) is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    source, storage = outputs.encoder_directory(block, start), outputs.params.cluster.storage
    networks = {
        base: Network(
            examples=outputs.examples(of).absolute(),
            encoder=source.absolute(),
            settings=outputs.finetuning(block),
            budget=budget or ALL,
            seed=0,
            epochs=epochs,
            storage=storage if "://" in storage else str(Path(storage).absolute()),
        )
        for base, of in {"A": second, "B": name}.items()
    }
    groups, facts = len(architecture_of(source).layer_groups()), read_facts(networks["B"].examples)
    scores = trained(networks, groups=groups, seeds=facts.seeds[:seeds], cluster=outputs.params.cluster)
    values = {series: np.asarray(of) for series, of in scores.items()}

    def around(of: Floats, minus: Floats | float = 0.0) -> Interval:
        return interval(of - minus, confidence=CONFIDENCE)

    base = values["BnB"][0]
    rows: list[Row] = [{"n": n} | {series: around(of[n]) for series, of in values.items()} for n in range(groups + 1)]
    changes: list[Row] = [
        {"n": n} | {f"{series} minus B": around(of[n], base) for series, of in values.items()}
        for n in range(1, groups + 1)
    ]
    about = f"A {second}, B {name}, {block}"
    changed = ", ".join(f"{of} {bounds(by, '+.3f')}" for of, by in changes[-1].items() if of != "n")
    lead = f"{about}: base B reaches {base.mean():.3f}. The change by all {groups} copied layer groups: {changed}."
    scoring = scoring_for(facts.kind, facts.labels)
    text = (
        f"{title(scoring.main)} on dev at {format_budget(budget or ALL, scoring)}, mean over {len(base)} seeds with "
        "its interval. The lowest n layer groups are copied (1: the embedding) from base B (BnB) or base A (AnB), "
        "trained on the labels of one task from random weights; those above are initialised randomly; +: the copied "
        "ones are trained, too. n = 0 is base B (Yosinski et al. 2014)."
    )
    points = [{"n": row["n"], "series": series, "score": row[series]} for series in SERIES for row in rows]
    dashed = [series for series, (_, learning) in SERIES.items() if not learning]
    caption = f"{about}; n: copied layer groups; dashed: copied layers are frozen."
    drawing = curves(points, caption, x="n", y="score", by="series", dashed=dashed)
    sheets = [Sheet(rows, about), Sheet(changes, "Change against base B, paired by seed")]
    return Measured(sheets, [lead], [text], [drawing])
