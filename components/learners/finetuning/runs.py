"""One fine-tuning run: one seed, and one label budget of each task, from encoder to predictions.

A run has one member per task; the members share an encoder. Each head is first trained on features of the frozen
encoder; the way to learn (`components.learners.ways`) decides what is trained after that. Each member keeps the weights
with its highest metric on dev. A killed run resumes from its last checkpoint, and a finished one is not repeated."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.cluster.distributed import World
from components.core.artifacts import read_manifest
from components.core.clock import OutOfTimeError, seconds_left
from components.core.measurements import Curve
from components.data.tasks.budgets import budget_name
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.learners.finetuning.member import Member
from components.learners.finetuning.specs import RunSpec, load_initial_encoder
from components.learners.task_models.model import TaskModel
from components.learners.ways import way_of
from components.models.base import Batch, Carry, Losses
from components.settings.finetune import FinetuneSettings
from components.training.checkpoint import CheckpointStore
from components.training.loop import TrainingState, train
from components.training.precision import first_device
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler

#: Points of a run's curve in monitoring; a stage has many runs.
CURVE_POINTS = 60


@dataclass(frozen=True)
class GroupSpec:
    """All inputs of a run; plain values, to be sent to another process.

    Attributes:
        members: one per task; of the same encoder, settings, seed and precision.
        key: of the run's checkpoints.
        temperature: of the sampling of tasks.
    """

    members: tuple[RunSpec, ...]
    key: str
    temperature: float = 1.0

    @property
    def settings(self) -> FinetuneSettings:
        return self.members[0].settings

    @property
    def seed(self) -> int:
        return self.members[0].seed

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.members[0].storage, key=self.key)

    @property
    def title(self) -> str:
        """Name in monitoring, such as `20 labels seed 1` or `20 labels seed 1 fold 0`."""
        budgets = " and ".join(dict.fromkeys(budget_name(member.budget) for member in self.members))
        fold = self.members[0].fold
        return f"{budgets} labels seed {self.seed}" + ("" if fold is None else f" fold {fold}")

    @property
    def tasks(self) -> list[str]:
        """Names of the members' tasks; a single one is not named."""
        return [member.examples.name for member in self.members] if len(self.members) > 1 else [""]


def finished(spec: GroupSpec) -> bool:
    stored = spec.store.latest()
    return stored is not None and bool(stored.numbers.get("done"))


def result(spec: GroupSpec, member: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The result of a finished run for one of its members.

    Returns:
        Tensors: predictions on `dev` and `test` (`packing.unpack`) and weights under `model.`; and the record.
    """
    stored = spec.store.latest()
    assert stored is not None, f"run {spec.key} is not finished"
    return below(_prefix(member), stored.tensors), dict(stored.numbers["records"][member])


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _prefix(member: int) -> str:
    return f"member.{member}."


def execute(spec: GroupSpec) -> list[dict[str, Any]]:
    """Start, resume or skip a run; its last checkpoint is its result (see `result`). Returns the members' records.

    Raises:
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    store = spec.store
    stored = store.latest()
    if stored is not None and stored.numbers.get("done"):
        return list(stored.numbers["records"])
    began = time.perf_counter()
    encoder, tokenizer = load_initial_encoder(spec.members[0])
    run = Run(spec, [Member(member, encoder, tokenizer) for member in spec.members])
    if stored is None:
        run.start()
    else:
        run.resume(stored.tensors, stored.numbers)
    earlier = run.members[0].record["seconds"]
    run.train(store)
    tensors: dict[str, Tensor] = {}
    records = []
    for index, member in enumerate(run.members):
        tensors |= {f"{_prefix(index)}{name}": value for name, value in member.result().items()}
        seconds = round(earlier + time.perf_counter() - began, 3)
        short = {str(stratum): count for stratum, count in member.rows.of_task.short.items()}
        records.append(member.record | {"rows": len(member.rows), "short": short, "seconds": seconds})
    store.save(run.steps + 1, tensors, {"done": True, "records": records})
    return records


class Run:
    """The state of a run: its members around one encoder, the model that is trained, its batches, and the optimizer."""

    def __init__(self, spec: GroupSpec, members: Sequence[Member]) -> None:
        self.spec = spec
        self.members = members
        self.settings = spec.members[0].settings
        #: Steps per epoch, over all members.
        self.epoch = sum(member.epoch for member in members)
        self.steps, count = schedule_of(spec, epoch=self.epoch)
        #: Step -> numbers of the evaluations after it, from 1.
        self.evaluations = evaluations_at(self.steps, count=count)
        self.way = way_of(self.settings)
        self.model = self.way.trained(members[0].learning, members[0].training_rows())
        if len(members) > 1:
            self.model = JointModel([member.model for member in members]).to(first_device()).eval()
        #: Settings of the training loop.
        self.training = self.way.training(self.settings)
        self.state = self._fresh_state()
        self.curve = Curve(spec.title, total=self.steps, points=CURVE_POINTS)

    def _fresh_state(self) -> TrainingState:
        groups = self.way.groups(
            [member.model for member in self.members],
            self.settings,
            unfreeze_every=steps_between(self.settings.unfreeze_epochs, epoch=self.epoch),
        )
        precision = self.spec.members[0].precision
        return TrainingState.fresh(self.model, groups, settings=self.training, precision=precision)

    def start(self) -> None:
        """Train each head on the frozen encoder's features, and score it on dev as epoch 0."""
        answers = [member.fit_head() for member in self.members]
        for member in self.members:
            member.model.head.penalty *= self.way.penalty_factor(
                labelled=len(member.rows), taught=len(member.training_rows().taught)
            )
        # Training the heads has made them trainable; a run may train the encoder alone.
        self.state = self._fresh_state()
        for member, result in zip(self.members, answers, strict=True):
            if result is None:
                member.keep(self.state, numbers=[0], epoch=self.epoch)
            else:
                member.add_scores(result, self.state, numbers=[0], epoch=self.epoch)
        self.curve.add(0, **dev_scores([member.record for member in self.members], self.spec.tasks))

    def resume(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        for index, member in enumerate(self.members):
            member.restore(
                below(_prefix(index), tensors), numbers["records"][index], penalty=numbers["penalties"][index]
            )
        state = {name: value for name, value in tensors.items() if not name.startswith("member.")}
        self.state.restore(state, numbers["state"], world=World(device=first_device()))

    def train(self, store: CheckpointStore) -> None:
        """The remaining steps, up to the last evaluation that cross-validation has chosen."""
        last = self._last_step()
        if all(member.is_fixed for member in self.members) or self.state.step >= last:
            return
        world = World(device=first_device())
        began = saved = time.perf_counter()
        before = self.members[0].record["seconds"]
        reports = train(
            self.state,
            self._sampler(),
            settings=self.training,
            total_steps=self.steps,
            seed=counter_seed(self.spec.seed, "finetune"),
            world=world,
            in_stages=self.settings.unfreeze_schedule == "stages",
        )
        forecast = Forecast(self.spec.members[0].rounds, steps=last - self.state.step)
        for report in reports:
            now = time.perf_counter()
            forecast.check(last - report.step)
            for member in self.members:
                member.record["tokens"] += report.tokens
                member.record["steps"] = report.step
                member.record["seconds"] = before + now - began
            self.curve.step(
                report.step,
                tokens=self.members[0].record["tokens"],
                seconds=now - began,
                loss=report.loss,
                rate=report.rate,
                gradient_norm=report.gradient_norm,
            )
            if numbers := self.evaluations.get(report.step):
                for member in self.members:
                    member.evaluate(self.state, numbers=numbers, epoch=self.epoch, loss=report.loss)
                self.curve.add(report.step, **dev_scores([member.record for member in self.members], self.spec.tasks))
            if report.step >= last:
                break
            if now - saved >= self.spec.members[0].checkpoint_seconds and report.step < self.steps:
                self._checkpoint(store, world)
                saved = time.perf_counter()

    def _last_step(self) -> int:
        ends = (member.spec for member in self.members if member.spec.fold is None or member.spec.labels is not None)
        chosen = [spec.chosen for spec in ends]
        stops = {choice.stop for choice in chosen if choice is not None}
        if not stops:
            return self.steps
        return max((step for step, numbers in self.evaluations.items() if stops.intersection(numbers)), default=0)

    def _sampler(self) -> Sampler:
        samplers = [self.way.sampler(member.training_rows()) for member in self.members]
        if len(samplers) == 1:
            return samplers[0]
        return TaskMixture(
            samplers,
            shares([len(member.rows) for member in self.members], self.spec.temperature),
            steps=self.steps,
            seed=counter_seed(self.spec.seed, "together"),
        )

    def _checkpoint(self, store: CheckpointStore, world: World) -> None:
        kept = {
            f"{_prefix(index)}{name}": value
            for index, member in enumerate(self.members)
            for name, value in member.tensors().items()
        }
        numbers = {
            "state": self.state.numbers(),
            "records": [member.record for member in self.members],
            "penalties": [member.model.head.penalty for member in self.members],
        }
        store.save(self.state.step, self.state.tensors(world) | kept, numbers)


class Forecast:
    """The seconds of training against the limit of time, which is divided equally among `rounds` of runs."""

    #: Steps after which seconds are forecast; the first one, which also prepares tensors, is not counted.
    AFTER: ClassVar = 4

    def __init__(self, rounds: int, *, steps: int) -> None:
        self.steps, self._later = steps, seconds_left() * (1 - 1 / rounds)
        self._began = 0.0

    def check(self, left: int) -> None:
        """Check after a step that the remaining ones end in time.

        Raises:
            OutOfTimeError: they do not.
        """
        if (seconds := seconds_left()) == math.inf:
            return
        taken = self.steps - left - 1
        if taken == 0:
            self._began = time.monotonic()
        elif taken >= self.AFTER and left * (time.monotonic() - self._began) / taken > seconds - self._later:
            raise OutOfTimeError


def shares(sizes: Sequence[int], temperature: float) -> NDArray[np.float64]:
    """Probability of each task: size^(1 / temperature), normalised (Arivazhagan et al. 2019, section 4.2)."""
    weights = np.asarray(sizes, dtype=np.float64) ** (1 / temperature)
    return weights / weights.sum()


class TaskMixture(Sampler):
    """Batches of several tasks, one task per step; `task` in a batch is its index.

    The task of a step is a function of (seed, step); its batch is the next one of the task's own sampler. With fewer
    steps, the sequence of tasks is a prefix of the same sequence."""

    def __init__(
        self, samplers: Sequence[Sampler], probabilities: NDArray[np.float64], *, steps: int, seed: int
    ) -> None:
        self.samplers = samplers
        uniform = counter_rng(seed, "tasks").random(steps)
        last = len(samplers) - 1
        self.tasks = np.minimum(np.searchsorted(np.cumsum(probabilities), uniform, side="right"), last)
        #: (steps + 1, tasks) number of batches of each task before a step.
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
    def __init__(self, models: Sequence[TaskModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        model = self.models[int(batch["task"])]
        assert isinstance(model, TaskModel)
        return model.losses(batch)


def dev_scores(records: Sequence[Mapping[str, Any]], tasks: Sequence[str], *, point: int = -1) -> dict[str, float]:
    """The primary metric of each member on dev at a point of its curve, by the name of the quantity in monitoring."""
    return {
        f"dev_{task}_{record['score']}" if task else f"dev_{record['score']}": record["curve"][point][record["score"]]
        for task, record in zip(tasks, records, strict=True)
        if record["curve"]
    }


def schedule_of(spec: GroupSpec, *, epoch: int) -> tuple[int, int]:
    """Number of steps of a run, and of its evaluations; `epoch`: steps per epoch, over all members."""
    taught = 0
    if (distillation := spec.members[0].distillation) is not None:
        taught = int(read_manifest(distillation.texts, kind=UNLABELLED).facts["rows"])
    way = way_of(spec.settings)
    return way.steps(spec.settings, epoch=epoch, taught=taught), way.evaluations(spec.settings)


def evaluations_at(steps: int, *, count: int) -> dict[int, list[int]]:
    """Step -> numbers of the evaluations after it, from 1; they are evenly spaced over all steps."""
    result: dict[int, list[int]] = {}
    for number in range(1, count + 1):
        result.setdefault(max(1, round(steps * number / count)), []).append(number)
    return result


def steps_between(epochs: float, *, epoch: int) -> int:
    """Steps between the unfreezing of two layer groups; a fraction of an epoch is at least one step."""
    return max(1, round(epochs * epoch)) if epochs else 0
