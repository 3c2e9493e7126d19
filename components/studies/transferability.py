"""How transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups of a
network are copied from a base network, those above are random, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from components.cluster.launcher import map_parallel
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.tasks.budgets import ALL
from components.data.tasks.examples import read_split
from components.data.tasks.results import best_score
from components.learners.finetuning import stage
from components.learners.finetuning.fit import Fit, fresh_encoder
from components.learners.finetuning.runs import Run
from components.learners.task_models.model import TaskModel
from components.models.encoder import load_encoder
from components.studies.frame import Outputs, Parts, Sheet, over
from components.studies.labelled import Labelled
from components.training.loop import TrainingState
from components.training.rng import counter_seed

#: Series -> (base network of the copied layers, whether they are trained).
SERIES = {"BnB": ("B", False), "BnB+": ("B", True), "AnB": ("A", False), "AnB+": ("A", True)}
#: The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
#: train them for another task; a random head; and the best of five evaluations on dev counts.
SETTINGS = {"layers": "last", "lm_weight": 0.0, "head_steps": 0, "evaluations": 5}


def measure(
    outputs: Outputs,
    *,
    task: str = "",
    other: str = "",
    encoder: str = "",
    budget: int = 100,
    epochs: float = 10.0,
    seeds: int = 3,
) -> Parts:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n. The seeds are trained in parallel."""
    name, block, params = outputs.task(task), encoder or outputs.params.run.families[0], outputs.params
    others = [outputs.task(other)] if other else [*params.run.tasks, *params.data.tasks]
    if (second := next((each for each in others if each != name), None)) is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    data = {base: Labelled.of(outputs, of, budget or ALL) for base, of in (("A", second), ("B", name))}
    fits, results = fits_of(outputs, data, block, epochs)[:seeds], dict[int, list[list[float]]]()
    with Progress("study transferability", total=len(fits), unit="seed") as bar:
        for index, result in map_parallel(of_seed, fits, settings=params.cluster):
            results[index] = result
            bar.advance(1)
    # Series -> (n, seed)
    values = np.moveaxis(np.asarray([of for _, of in sorted(results.items())]), 0, -1)
    scores = dict(zip(SERIES, values, strict=True))
    rows = [{"n": n} | {series: over(of[n]) for series, of in scores.items()} for n in range(values.shape[1])]
    changes = [
        {"series": series, "n": n, "minus B": over(of[n] - of[0])}
        for series, of in scores.items()
        for n in range(1, len(of))
    ]
    yield f"{data['B'].described}, mean over {len(fits)} seeds, with its interval."
    yield Sheet(rows, f"A {second}, B {name}, {outputs.split_name(block)[0]}")
    yield Sheet(changes, "Change against base B, paired by seed", {"minus B": "+.3f"}, "minus B", "n", reference=0.0)


def fits_of(outputs: Outputs, data: Mapping[str, Labelled], encoder: str, epochs: float) -> list[dict[str, Fit]]:
    """The trainings of the base networks, for every seed of task B. An encoder's weights are not used."""
    (block, start), changes = outputs.split_name(encoder), {**SETTINGS, "epochs": epochs}
    settings = stage.for_start(outputs.finetuning(block), trained=False).model_copy(update=changes)
    # Nothing is kept of a network.
    cluster, fits = outputs.params.cluster.model_copy(update={"checkpoint_seconds": math.inf}), []
    for of in data.values():
        job = of.job(outputs, block, start, settings).model_copy(update={"cluster": cluster})
        fits.append(stage.fits_of(job, settings, [(of.labels, seed) for seed in data["B"].facts.seeds]))
    return [dict(zip(data, of_bases, strict=True)) for of_bases in zip(*fits, strict=True)]


def learn(
    fit: Fit, *, source: TaskModel | None = None, copied: int = 0, learning: bool = True
) -> tuple[TaskModel, float]:
    """Train a network from random weights; returns it with its best metric on dev. All trained layers have the same
    learning rate from the first step: other rates and gradual unfreezing would favour the copied layers.

    Args:
        source: network whose lowest `copied` layer groups are copied; None for a base network.
        learning: whether these are trained.
    """
    # Other weights than those of the encoder are scored, on dev also if choices are made by cross-validation.
    run = Run((replace(fit, stop=fit.settings.evaluations),), None)
    (member,), state = run.members, run.state
    member.judged = read_split(fit.job.examples, "dev")
    model, encoder = member.model, member.model.encoder
    # The two base networks start from different weights, and the random layers of a copy from others again.
    seed = counter_seed(fit.seed, *(("above",) if source else ("base", fit.job.task)))
    encoder.load_state_dict(fresh_encoder(load_encoder(fit.job.encoder), seed=seed).state_dict())
    lowest = [*chain(*encoder.layer_groups()[:copied])]
    for parameter, other in zip(lowest, chain(*(source or model).encoder.layer_groups()[:copied]), strict=True):
        parameter.data.copy_(other)
    member.trained = True
    member.fit_norm()
    if not learning:
        frozen = set(map(id, lowest))
        left = [[each for each in group.parameters if id(each) not in frozen] for group in state.groups]
        groups = [replace(group, parameters=of) for group, of in zip(state.groups, left, strict=True) if of]
        run.state = TrainingState.fresh(state.model, groups, settings=run.training, precision=state.precision)
    run.train(fit.store)
    return model, best_score(member.record)


def of_seed(fits: Mapping[str, Fit]) -> list[list[float]]:
    """Train the base networks, then all copies; the scores of each of SERIES for n from 0."""
    bases = {name: learn(fit) for name, fit in fits.items()}
    cuts = range(1, len(bases["B"][0].encoder.layer_groups()) + 1)
    return [
        [bases["B"][1], *(learn(fits["B"], source=bases[name][0], copied=n, learning=plus)[1] for n in cuts)]
        for name, plus in SERIES.values()
    ]
