"""Networks with copied, random, trained and frozen layers (Yosinski, Clune, Bengio and Lipson 2014)."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from components.data.tasks.examples import read_split
from components.data.tasks.results import best_score
from components.learners.finetuning import stage
from components.learners.finetuning.fit import Fit, fresh_encoder
from components.learners.finetuning.runs import Run
from components.learners.finetuning.stage import for_start
from components.learners.task_models.model import TaskModel
from components.models.encoder import load_encoder
from components.studies.frame import Outputs
from components.studies.labelled import Labelled
from components.training.loop import TrainingState
from components.training.rng import counter_seed

#: Series -> (base network of the copied layers, whether they are trained).
SERIES = dict(zip(("BnB", "BnB+", "AnB", "AnB+"), itertools.product("BA", (False, True)), strict=True))
#: The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
#: train them for another task; a random head; and the best of five evaluations on dev counts.
SETTINGS = {"layers": "last", "lm_weight": 0.0, "head_steps": 0, "evaluations": 5}


def fits_of(
    outputs: Outputs, data: Mapping[str, Labelled], block: str, start: str, epochs: float
) -> list[dict[str, Fit]]:
    """The trainings of the base networks, for every seed of task B. An encoder's weights are not used."""
    settings = for_start(outputs.finetuning(block), trained=False).model_copy(update={**SETTINGS, "epochs": epochs})
    # Nothing is kept of a network.
    cluster = {"cluster": outputs.params.cluster.model_copy(update={"checkpoint_seconds": math.inf})}
    jobs = {base: of.job(outputs, block, start, settings).model_copy(update=cluster) for base, of in data.items()}
    seeds = data["B"].facts.seeds
    fits = {
        base: list(stage.fits_of(job, settings, [(data[base].labels, seed) for seed in seeds]))
        for base, job in jobs.items()
    }
    return [dict(zip(fits, of_seed, strict=True)) for of_seed in zip(*fits.values(), strict=True)]


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
    lowest = [parameter for group in encoder.layer_groups()[:copied] for parameter in group]
    if source:
        others = (parameter for group in source.encoder.layer_groups()[:copied] for parameter in group)
        with torch.no_grad():
            for parameter, other in zip(lowest, others, strict=True):
                parameter.copy_(other)
    model.head.fit_norm(member.inputs("train", trained=True).matrix())
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
