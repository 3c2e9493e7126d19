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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from components.cluster.launcher import map_parallel
from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.tasks.budgets import ALL
from components.evaluation.aggregates import Scores, unit
from components.learners.task_models import base
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor, extract
from components.learners.task_models.sampler import ExampleSampler
from components.models.encoder import Encoder, architecture_of, build_model, load_encoder
from components.reporting.evaluations import labels_at
from components.settings.finetune import FinetuneSettings
from components.studies.frame import STAGE_OF, Budget, Measured, Outputs, Row, Sheet, Task
from components.studies.frozen import Labelled, layer_vectors, logme, numbers_of
from components.studies.words import evenly
from components.training.loop import TrainingState, train
from components.training.optim import decayed
from components.training.rng import counter_seed

#: Maximum number of vectors for LogME.
VECTORS = 4000
#: Evaluations on dev during training; the best counts, as in fine-tuning.
EVALUATIONS = 5

#: Series -> (base network of the copied layers, whether they are trained).
SERIES = dict(zip(("BnB", "BnB+", "AnB", "AnB+"), itertools.product("BA", (False, True)), strict=True))
#: A trained network and its best dev metric.
Trained = tuple[TaskModel, float]


@dataclass(frozen=True)
class Networks:
    """All networks of one seed. `encoder`: directory with architecture and tokenizer; its weights are not used."""

    tasks: Mapping[str, Labelled]
    encoder: Path
    settings: FinetuneSettings
    seed: int
    epochs: float


def learn(
    networks: Networks, base: str, *, source: TaskModel | None = None, copied: int = 0, learning: bool = True
) -> Trained:
    """Train a network on the task of a base. Deterministic. All trained layers have the same learning rate from the
    first step: discriminative rates and gradual unfreezing would favour the copied layers.

    Args:
        source: network whose lowest `copied` layer groups are copied; None for a base network.
        learning: whether these are trained.
    """
    data, seed, loaded = networks.tasks[base], networks.seed, load_encoder(networks.encoder)
    task = find_task(data.facts.kind)
    # The two base networks start from different weights, and the random layers of a copy from others again.
    origin = ("above",) if source else ("base", data.facts.task, "")
    model = _model(networks, loaded, task, data.facts.labels, origin, copied)
    encoder, settings, training = model.encoder, model.settings, model.settings.training
    if source:
        pairs = zip(encoder.layer_groups()[:copied], source.encoder.layer_groups(), strict=False)
        with torch.no_grad():
            for ours, theirs in pairs:
                for parameter, other in zip(ours, theirs, strict=True):
                    parameter.copy_(other)
    split, dev = data.sample(seed=seed), data.dev
    encoded, held = (task.encode(of.fields, loaded.tokenizer, encoder, settings) for of in (split, dev))
    model.head.prepare(split.targets)
    model.head.fit_norm(extract(model, encoded).matrix())
    groups = [*encoder.layer_groups()[0 if learning else copied :], model.own_parameters()]
    parameters = [parameter for group in groups for parameter in group]
    state = TrainingState.fresh(model, decayed(parameters), settings=training)
    batches = ExampleSampler(encoded, split.targets, batch_size=training.batch_size, seed=counter_seed(seed, "batches"))
    steps = max(settings.min_steps, math.ceil(networks.epochs * -(-len(split) // training.batch_size)))
    scored_at = {round(steps * (number + 1) / EVALUATIONS) for number in range(EVALUATIONS)} - {0}
    scoring, best = data.scoring, -math.inf
    for report in train(state, batches, settings=training, total_steps=steps, seed=counter_seed(seed, "finetune")):
        if report.step in scored_at:
            if state.average is not None:
                state.average.swap()
            answers = Predictor(model, fixed=False).answers(held)
            best = max(best, scoring.score(dev.fields, dev.targets, answers)[scoring.main])
            if state.average is not None and report.step < steps:
                state.average.swap()
    return model, best


def _model(
    networks: Networks, loaded: Encoder, task: base.Task, labels: list[str], origin: Sequence[str], copied: int
) -> TaskModel:
    given = networks.settings
    training = given.training.model_copy(update={"rate": given.scratch.rate or given.training.rate})
    # The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
    # train them for another task.
    changes = {"method": "finetune", "layers": "last", "lm_weight": 0.0, "training": training}
    torch.manual_seed(counter_seed(networks.seed, *origin))
    sizes = loaded.model.config.model_dump(mode="json", exclude={"vocabulary"})
    encoder = build_model(loaded.family, vocabulary=loaded.model.config.vocabulary, settings=sizes)
    encoder.bind(loaded.tokenizer)
    encoder.set_dropout(given.dropout)
    torch.manual_seed(counter_seed(networks.seed, "head", copied))
    return TaskModel(encoder, task=task, settings=given.model_copy(update=changes), labels=labels).eval()


def of_seed(networks: Networks) -> list[list[float]]:
    """Train the base networks, then all copies; the scores of each of SERIES for n from 0."""
    bases = {name: learn(networks, name) for name in networks.tasks}
    cuts = range(1, len(architecture_of(networks.encoder).layer_groups()) + 1)
    return [
        [bases["B"][1], *(learn(networks, "B", source=bases[name][0], copied=n, learning=plus)[1] for n in cuts)]
        for name, plus in SERIES.values()
    ]


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
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n. The seeds are trained in parallel."""
    name = outputs.task(task)
    block, start = outputs.split_name(encoder or outputs.params.run.families[0])
    tasks = [outputs.task(other)] if other else [*outputs.params.run.tasks, *outputs.params.data.tasks]
    if (second := next((each for each in tasks if each != name), None)) is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    data = Labelled.of(outputs, name, budget or ALL)
    networks = Networks(
        tasks={"A": Labelled.of(outputs, second, budget or ALL), "B": data},
        encoder=outputs.encoder_directory(block, start).absolute(),
        settings=outputs.finetuning(block),
        seed=0,
        epochs=epochs,
    )
    jobs = [replace(networks, seed=seed) for seed in data.facts.seeds[:seeds]]
    results = dict[int, list[list[float]]]()
    with Progress("study transferability", total=len(jobs), unit="seed") as bar:
        for index, result in map_parallel(of_seed, jobs, settings=outputs.params.cluster):
            results[index] = result
            bar.advance(1)
    # Series, n, seed.
    values = np.moveaxis(np.asarray([results[index] for index in range(len(jobs))]), 0, -1)
    of_runs = {
        series: [Scores(range(len(jobs)), of_n[:, None]) for of_n in of]
        for series, of in zip(SERIES, values, strict=True)
    }
    rows: list[Row] = [
        {"n": n} | {series: of[n].interval() for series, of in of_runs.items()} for n in range(values.shape[1])
    ]
    changes: list[Row] = [
        {"series": series, "n": n, "minus B": of[n].minus(of[0]).interval()}
        for series, of in of_runs.items()
        for n in range(1, len(of))
    ]
    text = (
        f"{data.described}, mean over {len(jobs)} seeds, "
        "with its interval. The lowest n layer groups are copied (1: the embedding) from base B (BnB) or base A (AnB), "
        "trained on the labels of one task from random weights; those above are initialised randomly; +: the copied "
        "ones are trained, too. n = 0 is base B (Yosinski et al. 2014)."
    )
    sheets = [
        Sheet(rows, f"A {second}, B {name}, {block}"),
        Sheet(changes, "Change against base B, paired by seed", {"minus B": "+.3f"}, "minus B", "n", reference=0.0),
    ]
    return Measured(sheets, [text])


def which_source(
    outputs: Outputs,
    *,
    task: Task = "",
    encoders: Annotated[
        str, typer.Option(help="Candidates separated by commas, such as bert-adapted; all by default.")
    ] = "",
    budget: Budget = 0,
) -> Measured:
    """Which encoder suits a task, ranked before fine-tuning by LogME of its hidden states and the labels of a sample of
    train: language models, and encoders that were fine-tuned on other tasks (`intermediate_tasks`)."""
    data = Labelled.of(outputs, task, budget)
    name, sample = data.facts.task, data.sample(seed=data.facts.seeds[0])
    named = dict.fromkeys(outputs.split_name(of.strip()) for of in encoders.split(",") if of.strip())
    chosen = list(named) or candidates(outputs, name)
    if len(chosen) < 2:
        raise ConfigError("--encoders: at least two candidates are needed")
    numbers = numbers_of(sample)
    if len(np.unique(numbers)) < 2:
        raise ConfigError(f"{name}: the sample of train has only one label, so LogME is undefined; raise --budget")
    # Evenly spread, because files are often sorted by label.
    used = evenly(range(len(numbers)), VECTORS)
    targets = np.eye(len(data.facts.labels))[numbers[used]]
    rows = list[Row]()
    for block, start in chosen:
        settings = outputs.finetuning(block)
        layers = layer_vectors(outputs.encoder(block, start), sample, kind=data.facts.kind, settings=settings)
        evidence = logme(torch.cat(layers, dim=1)[used].double().numpy(), targets)
        rows.append({"encoder": f"{block}-{start}", "LogME": evidence})
    rows.sort(key=lambda row: -row["LogME"])
    text = f"Ranked on {labels_at(data.labels, unit(data.scoring))} of train, and no row of dev or test."
    return Measured([Sheet(rows, name, {"LogME": ".4f"}, "LogME")], [text])


def candidates(outputs: Outputs, task: str) -> list[tuple[str, str]]:
    """(block, start) of the trained encoders of the run, and of those that were fine-tuned on another task."""
    made = [path.parts[-3:-1] for path in sorted((outputs.out / "encoder").glob(f"[!.]*/[!.]*/{MANIFEST}"))]
    return [
        (block, start)
        for block, start in made
        if block in outputs.params.run.families
        and STAGE_OF.get(start) != "scratch"
        and not start.endswith(f"-after-{task}")
    ]
