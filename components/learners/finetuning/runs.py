"""One training: one seed, and one label budget of each task, from encoder to predictions.

Most have one task; several share an encoder. Each head is first trained on features of the frozen encoder; the way to
learn (`components.learners.ways`) decides what is trained after that. Where choices are made on dev, the weights with
the highest metric are kept. In a fold of a cross-validation, the predictions of its rows at every evaluation are kept;
after a cross-validation, the weights at the chosen evaluation. A killed training resumes from its last checkpoint, and
a finished one is not repeated."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.cluster.distributed import World
from components.core.artifacts import read_manifest
from components.core.clock import OutOfTimeError, seconds_left
from components.core.measurements import Curve
from components.data.tasks.data import Answer, Fields, Target
from components.data.tasks.results import best_score
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.data.unlabelled_texts import read_unlabelled
from components.learners.base import per_row
from components.learners.finetuning.fit import (
    LABELS,
    NAMES,
    Fit,
    Fits,
    below,
    epoch_of,
    label_fields,
    load_initial_encoder,
    names_of,
    pack,
    title_of,
    weights_of,
    with_head,
)
from components.learners.finetuning.soft_labels import soft_labels_of
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import FeatureTable, read_by_head
from components.learners.task_models.heads import ClassWeight, ImitatingHead, TextHead
from components.learners.task_models.model import TaskModel, cloned_state
from components.learners.task_models.predictor import Predictor, extract
from components.learners.task_models.probe import MOST_ROWS, HeadCandidate, HeadRows, solve_head, train_head
from components.learners.ways.base import TrainingRows
from components.models.base import Batch, Carry, LanguageModel, Losses
from components.tokenization import Tokenizer
from components.training.checkpoint import Checkpoint, CheckpointStore
from components.training.loop import TrainingState, train
from components.training.precision import first_device
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler

#: Points of a training's curve in monitoring; a stage has many trainings.
CURVE_POINTS = 60
#: Prefixes of a task's tensors in a checkpoint: its best weights so far, and the weights of a model.
BEST, MODEL = "best.", "model."


class Member:
    """One task in a training: its model, its rows, its metrics, and the weights that are kept.

    Args:
        fit: its inputs.
        encoder: the encoder of all tasks.
        tokenizer: the encoder's.
    """

    def __init__(self, fit: Fit, encoder: LanguageModel, tokenizer: Tokenizer) -> None:
        self.fit, self.way, self._tokenizer = fit, fit.way, tokenizer
        self.model = model = with_head(fit, encoder)
        self.rows, settings = fit.rows(), fit.settings
        self.scoring = self.rows.scoring
        #: The rows on which it is scored; None: it ends at a given evaluation.
        self.judged = None if fit.stop is not None else self.rows.dev if fit.fold is None else self.rows.held_out
        #: Whether the head on frozen features is solved for instead of trained by gradient steps.
        self.is_solved = settings.head_steps > 0 and isinstance(model.head, TextHead) and model.head.is_linear
        #: The part of the model whose best weights are kept.
        self.learning: nn.Module = self.way.stored(model)
        model.head.decides = False
        if fit.calibration is not None:
            model.head.calibration = fit.calibration
        model.head.prepare(self.rows.labelled.targets)
        self._best: dict[str, Tensor] = {}
        #: The answers to the judged rows at every evaluation (`pack`).
        self._points: dict[str, Tensor] = {}
        self._encodings: dict[str, list[Encoded]] = {}
        self.record: dict[str, Any] = {
            "budget": fit.budget,
            "seed": fit.seed,
            "precision": fit.precision,
            "score": self.scoring.main,
            "curve": [],
            "best_step": 0,
            "best_epoch": 0.0,
            "stop": 0,
            "steps": 0,
            "tokens": 0,
            "seconds": 0.0,
        }

    # -- rows --------------------------------------------------------------------------------------------------------

    def encoded(self, split: str) -> list[Encoded]:
        """A split as piece ids; not computed where only a head is trained."""
        if split not in self._encodings:
            rows = {"train": self.rows.labelled, "dev": self.judged, "test": self.rows.test}.get(split)
            self._encodings[split] = self._encode(self.fit.fields(split) if rows is None else rows.fields)
        return self._encodings[split]

    def features(self, split: str) -> FeatureTable:
        """The features of a split's rows by the encoder before training."""
        if split == "train":
            return self.fit.features("train", self.rows.learned)
        if split == "dev" and self.rows.held is not None:
            return self.fit.features("train", self.rows.drawn[self.rows.held])
        return self.fit.features(split)

    def inputs(self, split: str, *, trained: bool) -> FeatureTable:
        """The inputs of the head for a split's rows, by the encoder as it is, or as it was before training."""
        if not trained:
            return read_by_head(self.model, self.features(split))
        return read_by_head(self.model, extract(self.model, self.encoded(split), precision=self.fit.precision))

    def _head_rows(self, *, names: bool | None, trained: bool = False) -> HeadRows:
        """The rows on which the head is trained alone, a sample of more than `MOST_ROWS`, with the names of the labels
        or without."""
        rows = np.arange(len(self.rows.labelled))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.fit.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table = self.inputs("train", trained=trained).take(rows)
        targets = [self.rows.labelled.targets[row] for row in rows]
        if names:
            table = table.joined(self.inputs(NAMES, trained=trained).averaged(self._named))
            targets += _targets(np.unique(self._named))
        return HeadRows(table, targets)

    def training_rows(self) -> TrainingRows:
        """The rows that are learned from, with the names of the labels if they are chosen."""
        names, targets = self.candidate.names, list(self.rows.labelled.targets)
        splits, (texts, taught) = ["train", *[NAMES] * bool(names)], self.taught
        if self.way.trains_encoder:
            inputs: Any = [row for split in splits for row in self.encoded(split)]
        else:
            inputs = reduce(FeatureTable.joined, map(self.features, splits))
        targets += _targets(self._named) if names else []
        return TrainingRows(self.model, self.fit.seed, targets, inputs, taught, self._encode(texts))

    @cached_property
    def _named(self) -> NDArray[np.int64]:
        """The label of each text of `NAMES`."""
        facts = self.fit.facts
        return np.repeat(np.arange(len(facts.labels)), [len(texts) for texts in label_fields(facts)])

    @cached_property
    def taught(self) -> tuple[list[Fields], list[Target]]:
        """Texts that teachers have labelled, and their predictions."""
        if not self.fit.teachers:
            return [], []
        assert self.fit.texts is not None
        texts = read_unlabelled(self.fit.texts)
        scored = self.rows.left_out.union(() if self.judged is None else self.judged.digests)
        rows, taught = soft_labels_of(self.fit, texts, scored)
        return [texts[row] for row in rows], taught

    def _encode(self, rows: Sequence[Fields]) -> list[Encoded]:
        return self.fit.encode(self.model, self._tokenizer, rows)

    # -- the head ----------------------------------------------------------------------------------------------------

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to train once the head is solved for."""
        return not self.way.trains_encoder and self.is_solved and self.model.features.mix is None

    @cached_property
    def candidates(self) -> list[HeadCandidate]:
        """Candidates of the head; those that differ only in the penalty are next to each other, the largest first. Of
        a head that is not solved, only whether the names of the labels are training texts."""
        fit, head = self.fit, self.model.head
        names, weights = names_of(fit), list[ClassWeight | None]([None])
        if self.is_solved:
            weights = list(weights_of(fit, head, self.scoring.main))
        elif len(names) > 1:
            names = [None]
        norms = head.norm_kinds if isinstance(head, TextHead) and head.norm_kinds else [None]
        penalties = sorted(fit.settings.head_penalties, reverse=True)
        return [
            HeadCandidate(norm, penalty, named, weight)
            for named, weight, norm, penalty in product(names, weights, norms, penalties)
        ]

    @property
    def candidate(self) -> HeadCandidate:
        return self.fit.head or self.candidates[0]

    def answers_by_candidate(self) -> dict[HeadCandidate, list[Answer]]:
        """The answers to the judged rows by a head that is solved with each candidate, before `Head.calibrate`."""
        dev = self.features("dev")
        names = {candidate.names for candidate in self.candidates}
        rows = {each: self._head_rows(names=each) for each in names}
        result = {}
        for candidate in self.candidates:
            self._solve(rows[candidate.names], candidate)
            result[candidate] = Predictor(self.model).decide(dev)
        return result

    def _solve(self, rows: HeadRows, candidate: HeadCandidate) -> None:
        head, settings = self.model.head, self.fit.settings
        # Features are few and stay on the CPU, independent of the encoder's device.
        head.cpu()
        # In a run that trains the encoder alone, the head is frozen.
        head.requires_grad_()
        if self.is_solved:
            assert isinstance(head, TextHead)
            solve_head(head, rows=rows, candidate=candidate, steps=settings.head_steps)
        else:
            seed = counter_seed(self.fit.seed, "head alone")
            train_head(head, rows=rows, settings=settings.training, steps=settings.head_steps, seed=seed)
        head.to(first_device()).eval()

    def fit_head(self, *, trained: bool) -> None:
        """Fit the head to the training rows, as the encoder reads them now, or as it did before training."""
        self._solve(self._head_rows(names=self.candidate.names, trained=trained), self.candidate)

    def start(self) -> None:
        """Train the head on the frozen encoder's features."""
        if self.fit.settings.head_steps and (self.is_solved or self.way.trains_encoder):
            self.fit_head(trained=False)
        elif not self.way.trains_encoder and not self.is_solved:
            self.model.head.cpu().fit_norm(self.inputs("train", trained=False).matrix())
            self.model.head.to(first_device())
        self.model.head.penalty *= self.way.penalty_factor(labelled=len(self.rows.labelled), taught=len(self.taught[1]))
        self.model.eval()

    # -- evaluations and results -------------------------------------------------------------------------------------

    def evaluate(self, step: int, *, numbers: Sequence[int], epoch: int, loss: float | None) -> None:
        """Add the metrics of the current weights to the curve; keep the weights if they are the best so far (the
        earlier ones at a tie), or if this is the evaluation at which the training ends.

        Args:
            step: number of steps so far.
            numbers: of the evaluation, from 1; several if there are fewer steps than evaluations; [0] before training.
            epoch: steps per epoch of all tasks.
            loss: training loss of the step.
        """
        if self.judged is None and self.fit.stop not in numbers:
            return
        trained = bool(step) and self.way.trains_encoder
        if self.way.refits_head and step:
            self.fit_head(trained=True)
        keeps = True
        if (judged := self.judged) is not None:
            curve, alone = self.record["curve"], self.fit.fold is None
            result = self._answers("dev", trained=trained)
            if alone:
                # In a fold, a head is calibrated on the predictions of all folds.
                result = self.model.head.calibrate(result, per_row(self.scoring, judged))
            scores = self.scoring.score(judged.fields, judged.targets, result)
            keeps = alone and (not curve or scores[self.scoring.main] > best_score(self.record))
            for number in numbers:
                self._points |= pack(at(number), result)
            curve.append({"step": step, "epoch": round(step / epoch, 3), "train_loss": loss, **scores})
        if keeps:
            self.record |= {"best_step": step, "best_epoch": round(step / epoch, 3), "stop": numbers[0]}
            self._best = cloned_state(self.learning)

    def result(self) -> dict[str, Tensor]:
        """The answers to the judged rows at every evaluation (`at.NUMBER`); of a training that is not of a fold, the
        predictions of test by the weights that are kept, and the weights (`model.`), or what students learn
        (`LABELS`)."""
        if self.judged is not None and self.fit.fold is not None:
            return self._points
        self.learning.load_state_dict(self._best)
        self.model.eval()
        self.model.head.decides = True
        # The best weights may be those before training, whose features are cached.
        trained = bool(self.record["best_step"]) and self.way.trains_encoder
        if self.fit.labels is not None:
            head = self.model.head
            assert isinstance(head, ImitatingHead)  # as `refuse_distillation` has found
            return pack(LABELS, self._answers(LABELS, trained=trained, answer=head.taught))
        weights = {f"{MODEL}{name}": value.cpu() for name, value in cloned_state(self.model).items()}
        return self._points | pack("test", self._answers("test", trained=trained)) | weights

    def tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint stores for the task in addition to the state of the training."""
        return {f"{BEST}{name}": value.cpu() for name, value in self._best.items()} | self._points

    def restore(self, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
        """Restore the tensors that `tensors` returned, and the record."""
        self._best, self.record = below(BEST, tensors), dict(record)
        self._points = {name: value for name, value in tensors.items() if not name.startswith(BEST)}

    def _answers(self, split: str, *, trained: bool, answer: Any = None) -> list[Answer]:
        """Predictions of the present weights, of test as the stored classifier repeats them to the last bit; `trained`:
        whether the encoder was trained, else its features are cached."""
        if not trained:
            return Predictor(self.model).decide(self.features(split), answer=answer)
        # Larger batches take less time.
        fixed = split == "test" or self.way.refits_head
        predictor = Predictor(self.model, precision=self.fit.precision, fixed=fixed)
        return predictor.answers(self.encoded(split), answer=answer)


def at(number: int) -> str:
    """Name of the answers to the judged rows at an evaluation (`pack`)."""
    return f"at.{number}"


def _targets(labels: NDArray[np.int64]) -> list[Target]:
    return [np.asarray([label], dtype=np.float64) for label in labels]


def finished(fits: Fits) -> bool:
    stored = fits[0].store.latest()
    return stored is not None and bool(stored.numbers.get("done"))


def result(fits: Fits, task: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors (`Member.result`) and the record of one task of a finished training."""
    stored = fits[0].store.latest()
    assert stored is not None, f"{fits[0].key} is not finished"
    return below(_prefix(task), stored.tensors), dict(stored.numbers["records"][task])


def _prefix(task: int) -> str:
    return f"member.{task}."


def execute(fits: Fits) -> list[dict[str, Any]]:
    """Start, resume or skip a training; its last checkpoint is its result (see `result`). Returns the tasks' records.

    Raises:
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    store = fits[0].store
    stored = store.latest()
    if stored is not None and stored.numbers.get("done"):
        return list(stored.numbers["records"])
    began = time.perf_counter()
    run = Run(fits, stored)
    earlier = run.members[0].record["seconds"]
    run.train(store)
    tensors = run.of_members(Member.result)
    seconds = round(earlier + time.perf_counter() - began, 3)
    for member in run.members:
        short = {str(stratum): count for stratum, count in member.rows.short.items()}
        member.record |= {"rows": len(member.rows.labelled), "short": short, "seconds": seconds}
    records = [member.record for member in run.members]
    store.save(run.steps + 1, tensors, {"done": True, "records": records})
    return records


class Run:
    """The state of a training: its tasks around one encoder, the model that is trained, and the optimizer. The heads
    are trained on the frozen encoder's features first, and scored as epoch 0; `stored`: where a training goes on."""

    def __init__(self, fits: Fits, stored: Checkpoint | None) -> None:
        self.fits, self.settings, self.way = fits, fits[0].settings, fits[0].way
        encoder, tokenizer = load_initial_encoder(fits[0])
        self.members = [Member(fit, encoder, tokenizer) for fit in fits]
        #: Steps per epoch, over all tasks.
        self.epoch = epoch_of(fits)
        #: `evaluations`: step -> numbers of the evaluations after it, from 1.
        self.steps, self.evaluations = schedule_of(fits[0], epoch=self.epoch)
        for member in self.members:
            member.start()
        models = [member.model for member in self.members]
        if len(fits) > 1:
            model: nn.Module = JointModel(models).to(first_device()).eval()
        else:
            model = self.way.trained(models[0], taught=bool(self.members[0].taught[1]))
        #: Settings of the training loop.
        self.training = self.way.training(self.settings)
        every = steps_between(self.settings.unfreeze_epochs, epoch=self.epoch)
        groups = self.way.groups(models, self.settings, unfreeze_every=every)
        self.state = TrainingState.fresh(model, groups, settings=self.training, precision=fits[0].precision)
        if stored is None:
            self._evaluate([0], None)
            return
        for index, member in enumerate(self.members):
            member.restore(below(_prefix(index), stored.tensors), stored.numbers["records"][index])
        state = {name: value for name, value in stored.tensors.items() if not name.startswith("member.")}
        self.state.restore(state, stored.numbers["state"], world=World(device=first_device()))

    def of_members(self, tensors: Callable[[Member], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return {
            f"{_prefix(task)}{name}": value
            for task, member in enumerate(self.members)
            for name, value in tensors(member).items()
        }

    def _evaluate(self, numbers: Sequence[int], loss: float | None) -> None:
        for member in self.members:
            member.evaluate(self.state.step, numbers=numbers, epoch=self.epoch, loss=loss)

    def train(self, store: CheckpointStore) -> None:
        """The remaining steps, up to the last evaluation at which a task ends."""
        last = self._last_step()
        if all(member.is_fixed for member in self.members) or self.state.step >= last:
            return
        world = World(device=first_device())
        began = saved = time.perf_counter()
        first = self.members[0].record
        before, curve = first["seconds"], Curve(title_of(self.fits), total=self.steps, points=CURVE_POINTS)
        reports = train(
            self.state,
            self._sampler(),
            settings=self.training,
            total_steps=self.steps,
            seed=counter_seed(self.fits[0].seed, "finetune"),
            world=world,
            in_stages=self.settings.unfreeze_schedule == "stages",
        )
        forecast = Forecast(self.fits[0].rounds, steps=last - self.state.step)
        for report in reports:
            now = time.perf_counter()
            forecast.check(last - report.step)
            for member in self.members:
                member.record["tokens"] += report.tokens
                member.record["steps"] = report.step
                member.record["seconds"] = before + now - began
            curve.step(
                report.step,
                tokens=first["tokens"],
                seconds=now - began,
                loss=report.loss,
                rate=report.rate,
                gradient_norm=report.gradient_norm,
            )
            if numbers := self.evaluations.get(report.step):
                self._evaluate(numbers, report.loss)
            if report.step >= last:
                break
            if now - saved >= self.fits[0].job.cluster.checkpoint_seconds and report.step < self.steps:
                self._checkpoint(store, world)
                saved = time.perf_counter()

    def _last_step(self) -> int:
        stops = {fit.stop for fit in self.fits}
        if None in stops:
            return self.steps
        return max((step for step, numbers in self.evaluations.items() if stops.intersection(numbers)), default=0)

    def _sampler(self) -> Sampler:
        samplers = [self.way.sampler(member.training_rows()) for member in self.members]
        if len(samplers) == 1:
            return samplers[0]
        return TaskMixture(
            samplers,
            shares([len(member.rows.labelled) for member in self.members], self.fits[0].temperature),
            steps=self.steps,
            seed=counter_seed(self.fits[0].seed, "together"),
        )

    def _checkpoint(self, store: CheckpointStore, world: World) -> None:
        numbers = {"state": self.state.numbers(), "records": [member.record for member in self.members]}
        store.save(self.state.step, self.state.tensors(world) | self.of_members(Member.tensors), numbers)


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
        #: Number of a step's batch in the task's own sampler.
        self.own = (np.cumsum(self.tasks[:, None] == np.arange(last + 1), axis=0) - 1)[np.arange(steps), self.tasks]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        task = int(self.tasks[step])
        return self.samplers[task].batch(int(self.own[step]), rank, world) | {"task": torch.tensor(task)}

    def tokens(self, step: int) -> int:
        return self.samplers[self.tasks[step]].tokens(int(self.own[step]))


class JointModel(nn.Module):
    def __init__(self, models: Sequence[TaskModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        model = self.models[int(batch["task"])]
        assert isinstance(model, TaskModel)
        return model.losses(batch)


def schedule_of(fit: Fit, *, epoch: int) -> tuple[int, dict[int, list[int]]]:
    """Number of steps of a training; and step -> numbers of the evaluations after it, from 1, which are evenly spaced
    over all steps. `epoch`: steps per epoch, over all tasks."""
    taught = 0
    if fit.teachers and fit.texts is not None:
        taught = int(read_manifest(fit.texts, kind=UNLABELLED).facts["rows"])
    steps, count = fit.way.steps(fit.settings, epoch=epoch, taught=taught), fit.way.evaluations(fit.settings)
    evaluations: dict[int, list[int]] = {}
    for number in range(1, count + 1):
        evaluations.setdefault(max(1, round(steps * number / count)), []).append(number)
    return steps, evaluations


def steps_between(epochs: float, *, epoch: int) -> int:
    """Steps between the unfreezing of two layer groups; a fraction of an epoch is at least one step."""
    return max(1, round(epochs * epoch)) if epochs else 0
