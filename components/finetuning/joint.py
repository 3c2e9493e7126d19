"""One run of several tasks that share an encoder: a label budget and a head each, one seed.

In every step one task is drawn, with a probability in proportion to its rows^(1 / temperature): 1 draws by size, a
higher temperature evens the tasks out (Arivazhagan et al. 2019, section 4.2). Each head learns alone first, as in a run
of one task; then everything goes on from there. Every task keeps the weights that its own dev liked best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.finetuning.runs import ALONE, BEST, Run, prepare, steps_between
from components.finetuning.specs import RunSpec, device, start_of
from components.models.base import Batch, Carry, Losses
from components.task_models.model import TaskModel, cloned_state
from components.training.checkpoint import CheckpointStore
from components.training.distributed import World
from components.training.groups import discriminative
from components.training.loop import TrainingState, train
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler


@dataclass(frozen=True)
class JointSpec:
    """Everything that a joint run depends on.

    Attributes:
        members: one for each task; of the same encoder, settings, seed and precision.
        temperature: of the draw of tasks.
        key: of this run's checkpoints.
    """

    members: tuple[RunSpec, ...]
    temperature: float
    key: str

    @property
    def storage(self) -> str:
        """`cluster.storage`."""
        return self.members[0].storage

    @property
    def seed(self) -> int:
        """As in `RunSpec`."""
        return self.members[0].seed


def shares(sizes: Sequence[int], temperature: float) -> NDArray[np.float64]:
    """Probability of each task: size^(1 / temperature), normalised."""
    weights = np.asarray(sizes, dtype=np.float64) ** (1 / temperature)
    return weights / weights.sum()


class TaskMixture(Sampler):
    """Batches of several tasks, one task a step; `task` in a batch is its number.

    Which task a step belongs to is a function of (seed, step); its batch is the next one of the task's own sampler.

    Args:
        samplers: one a task.
        chances: probability of each.
        steps: as many as will be asked for; fewer are drawn alike.
        seed: decides the draw.
    """

    def __init__(self, samplers: Sequence[Sampler], chances: NDArray[np.float64], *, steps: int, seed: int) -> None:
        self.samplers = samplers
        draws = counter_rng(seed, "tasks").random(steps)
        last = len(samplers) - 1
        self.tasks = np.minimum(np.searchsorted(np.cumsum(chances), draws, side="right"), last)
        #: (steps + 1, tasks) batches of each task before a step.
        taken = np.cumsum(self.tasks[:, None] == np.arange(len(samplers)), axis=0)
        self.before = np.concatenate([np.zeros((1, len(samplers)), dtype=np.int64), taken])

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        task = int(self.tasks[step])
        batch = self.samplers[task].batch(int(self.before[step, task]), rank, world)
        return batch | {"task": torch.tensor(task)}

    def tokens_before(self, step: int) -> int:
        return sum(
            sampler.tokens_before(int(count)) for sampler, count in zip(self.samplers, self.before[step], strict=True)
        )


class JointModel(nn.Module):
    """Models of several tasks around one encoder."""

    def __init__(self, models: Sequence[TaskModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The loss of the task that the batch is of."""
        model = self.models[int(batch["task"])]
        assert isinstance(model, TaskModel)
        return model.losses(batch)


def execute_joint(spec: JointSpec) -> list[dict[str, Any]]:
    """Do a joint run, or what is left of it. Its result is the last checkpoint: of task i what `runs.execute` stores,
    under `<i>.`; the records of all tasks (also returned) under the number `records`.

    Raises:
        TrainingError: the loss is no longer finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    store = CheckpointStore(spec.storage, key=spec.key)
    stored = store.latest()
    if stored is not None and stored.numbers.get("done"):
        return list(stored.numbers["records"])
    began = time.perf_counter()
    encoder, tokenizer = start_of(spec.members[0])
    prepared = [prepare(member, encoder, tokenizer) for member in spec.members]
    runs = [run for run, _ in prepared]
    joint = _JointRun(spec, runs)
    if stored is None:
        joint.start()
    else:
        joint.resume(stored.tensors, stored.numbers)
    earlier = joint.runs[0].record["seconds"]
    joint.learn(store)
    tensors: dict[str, Tensor] = {}
    records = []
    for place, (run, short) in enumerate(prepared):
        held = run.predict() | {f"model.{name}": value.cpu() for name, value in cloned_state(run.model).items()}
        tensors |= {f"{place}.{name}": value for name, value in held.items()}
        seconds = round(earlier + time.perf_counter() - began, 3)
        records.append(run.record | {"rows": len(run.splits["train"]), "short": short, "seconds": seconds})
    store.save(joint.steps + 1, tensors, {"done": True, "records": records})
    return records


class _JointRun:
    """The moving parts: a run of each task, which keeps its scores and best weights, and what all of them share."""

    def __init__(self, spec: JointSpec, runs: Sequence[Run]) -> None:
        self.spec = spec
        self.runs = runs
        settings = spec.members[0].settings
        self.epoch = sum(run.epoch for run in runs)
        self.steps = max(settings.min_steps, math.ceil(settings.epochs * self.epoch))
        self.model = JointModel([run.model for run in runs]).to(device()).eval()
        self.sampler = TaskMixture(
            [run.sampler() for run in runs],
            shares([len(run.splits["train"]) for run in runs], spec.temperature),
            steps=self.steps,
            seed=counter_seed(spec.seed, "together"),
        )
        self.state = self._share_state()

    def _share_state(self) -> TrainingState:
        settings = self.spec.members[0].settings
        groups = discriminative(
            self.runs[0].model.encoder.layer_groups(),
            head=[parameter for run in self.runs for parameter in run.model.own_parameters()],
            head_scale=settings.head_scale,
            factor=settings.discriminative,
            unfreezing=settings.unfreezing,
            unfreeze_every=steps_between(settings.unfreeze_epochs, epoch=self.epoch),
        )
        precision = self.spec.members[0].precision
        state = TrainingState.fresh(self.model, groups, settings=settings.training, precision=precision)
        for run in self.runs:
            run.state, run.epoch, run.steps = state, self.epoch, self.steps
        return state

    def start(self) -> None:
        """Each head alone, on the encoder as it is."""
        for run in self.runs:
            run.start()
        # An average of the weights begins at the heads that were just learned.
        self.state = self._share_state()

    def resume(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Go on from a checkpoint of `learn`."""
        for place, run in enumerate(self.runs):
            prefix = f"{BEST}{place}."
            run.best = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            run.record = dict(numbers["records"][place])
            run.model.head.penalty = float(numbers["penalties"][place])
        kept = {name: value for name, value in tensors.items() if not name.startswith((BEST, ALONE))}
        self.state.restore(kept, numbers["state"], world=World(device=device()))

    def learn(self, store: CheckpointStore) -> None:
        """All steps that are left; ends early when the patience of every task does."""
        settings = self.spec.members[0].settings
        world = World(device=device())
        scored_at = {round(self.steps * (k + 1) / settings.evaluations) for k in range(settings.evaluations)} - {0}
        began = saved = time.perf_counter()
        before = self.runs[0].record["seconds"]
        reports = train(
            self.state,
            self.sampler,
            settings=settings.training,
            total_steps=self.steps,
            seed=counter_seed(self.spec.seed, "finetune"),
            world=world,
        )
        if all(run.out_of_patience() for run in self.runs):
            return
        for report in reports:
            now = time.perf_counter()
            for run in self.runs:
                run.record["tokens"] += report.tokens
                run.record["steps"] = report.step
                run.record["seconds"] = before + now - began
                if report.step in scored_at:
                    run.score_now(loss=report.loss)
            if all(run.out_of_patience() for run in self.runs):
                break
            if now - saved >= settings.training.checkpoint_seconds and report.step < self.steps:
                self._checkpoint(store, world)
                saved = time.perf_counter()

    def _checkpoint(self, store: CheckpointStore, world: World) -> None:
        best = {
            f"{BEST}{place}.{name}": value.cpu()
            for place, run in enumerate(self.runs)
            for name, value in run.best.items()
        }
        numbers = {
            "state": self.state.numbers(),
            "records": [run.record for run in self.runs],
            "penalties": [run.model.head.penalty for run in self.runs],
        }
        store.save(self.state.step, self.state.tensors(world) | best, numbers)
