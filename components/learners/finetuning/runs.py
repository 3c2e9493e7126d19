"""One training: one seed, and one label budget of each task, from encoder to predictions.

Most have one task; several share an encoder. Each head is first trained on features of the frozen encoder; the way to
learn (`components.learners.ways`) decides what is trained after that. Where choices are made on dev, the weights with
the highest metric are kept. In a fold of a cross-validation, the predictions of its rows at every evaluation are kept;
after a cross-validation, the weights at the chosen evaluation. A killed training resumes from its last checkpoint, and
a finished one is not repeated."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from components.cluster.distributed import World
from components.core.artifacts import read_manifest
from components.core.clock import OutOfTimeError, seconds_left
from components.core.errors import ArtifactError
from components.core.measurements import Curve
from components.data.tasks.data import Answer, Target
from components.data.tasks.results import KIND as FINETUNED
from components.data.tasks.results import best_score
from components.data.unlabelled_texts import digest_of, read_unlabelled
from components.learners.base import per_row
from components.learners.finetuning.fit import (
    LABELS,
    NAMES,
    Fit,
    Fits,
    epoch_of,
    label_fields,
    labels_file,
    load_initial_encoder,
    names_of,
    pack,
    title_of,
    unpack,
    weights_of,
    with_head,
)
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import averaged, read_by_head
from components.learners.task_models.heads import Statistics
from components.learners.task_models.predictor import Predictor
from components.learners.task_models.probe import MOST_ROWS, HeadCandidate, HeadRows, solve_head, train_head
from components.learners.task_models.sampler import matrix
from components.learners.ways.base import Learned, TaskMixture, shares
from components.models.base import LanguageModel
from components.tokenization import Tokenizer
from components.training.checkpoint import Checkpoint, CheckpointStore, below
from components.training.loop import TrainingState, train
from components.training.precision import first_device
from components.training.rng import counter_rng, counter_seed

#: Points of a training's curve in monitoring; a stage has many trainings.
CURVE_POINTS = 60
#: Prefix of the best weights in a checkpoint.
BEST = "best."


class Member:
    """One task in a training: its model, its rows, its metrics, and the weights that are kept.

    Args:
        fit: its inputs.
        encoder: the encoder of all tasks.
        tokenizer: the encoder's.
    """

    def __init__(self, fit: Fit, encoder: LanguageModel, tokenizer: Tokenizer) -> None:
        self.fit, self.way, self.rows, self.tokenizer = fit, fit.way, fit.rows(), tokenizer
        self.model = with_head(fit, encoder)
        #: The rows on which it is scored; None: it ends at a given evaluation.
        self.judged = self.rows.held_out if fit.stop is None else None
        self.head = head = self.model.head
        #: Whether the head on frozen features is solved for instead of trained by gradient steps.
        self.is_solved = fit.settings.head_steps > 0 and head.is_linear
        head.decides = False
        if fit.calibration is not None:
            head.calibration = fit.calibration
        head.prepare(self.rows.labelled.targets)
        #: What a checkpoint stores of the task in addition to the state of the training: the answers to the judged
        #: rows at every evaluation (`at.NUMBER`), and the best weights of what is trained (`best.`).
        self.kept: dict[str, Tensor] = {}
        #: Whether the present weights of the encoder are trained; else its features are cached.
        self.trained = False
        #: Seconds of predictions for students, which are no part of the training.
        self.apart = 0.0
        self._encoded: dict[str, list[Encoded]] = {}
        self.record: dict[str, Any] = {
            "budget": fit.budget,
            "seed": fit.seed,
            "precision": fit.precision,
            **self.rows.record,
            "curve": [],
            "best_step": 0,
            "best_epoch": 0.0,
            "stop": 0,
        }

    # -- rows --------------------------------------------------------------------------------------------------------

    def encoded(self, split: str) -> list[Encoded]:
        """A split as piece ids; not computed where only a head is trained."""
        if split not in self._encoded:
            rows = {"train": self.rows.labelled, "dev": self.judged, "test": self.rows.test}.get(split)
            fields = self.fit.fields(split) if rows is None else rows.fields
            self._encoded[split] = self.model.encode(fields, self.tokenizer)
        return self._encoded[split]

    def features(self, split: str) -> list[Encoded]:
        """The features of a split's rows by the encoder before training."""
        held = None if self.rows.held is None else self.rows.drawn[self.rows.held]
        rows = {"train": self.rows.learned, "dev": held}.get(split)
        return self.fit.features(split if rows is None else "train", rows)

    def inputs(self, split: str) -> list[Encoded]:
        """The inputs of the head for a split's rows, by the encoder as it is."""
        if not self.trained:
            return read_by_head(self.model, self.features(split))
        predictor = Predictor(self.model, precision=self.fit.precision)
        return read_by_head(self.model, list(chain(*predictor.tables(self.encoded(split)))))

    def head_rows(self, names: bool | None) -> HeadRows:
        """The rows on which the head is trained alone, a sample of more than `MOST_ROWS`, with the names of the labels
        or without; the several texts of a label are averaged."""
        rows = np.arange(len(self.rows.labelled))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.fit.seed, "head alone").permutation(rows)[:MOST_ROWS])
        every = self.inputs("train")
        inputs, targets = [every[row] for row in rows], [self.rows.labelled.targets[row] for row in rows]
        if names:
            inputs += averaged(self.inputs(NAMES), self._named)
            targets += _targets(np.unique(self._named))
        return HeadRows(inputs, targets)

    def learned(self) -> Learned:
        """What is learned from: the labelled rows, then the names of the labels if they are chosen."""
        names = bool(self.candidate.label_names)
        splits, targets = ["train", *[NAMES] * names], [*self.rows.labelled.targets, *_targets(self._named) * names]
        read = self.encoded if self.way.trains_encoder else self.features
        return Learned(self.model, self.fit.seed, list(chain(*map(read, splits))), targets, self.taught)

    @cached_property
    def _named(self) -> NDArray[np.int64]:
        """The label of each text of `NAMES`."""
        return np.asarray([label for label, texts in enumerate(label_fields(self.fit.facts)) for _ in texts])

    @cached_property
    def taught(self) -> tuple[list[Encoded], list[Target]]:
        """Texts that teachers have labelled, and their predictions.

        Texts of the rows that the training is scored on, and what belongs to them, are left out, although they have no
        labels here: a served model has not learned from the texts of its requests."""
        if self.fit.taught is None:
            return [], []
        texts = read_unlabelled(self.fit.taught)
        scored = self.rows.left_out.union(() if self.judged is None else self.judged.digests)
        rows = [row for row, fields in enumerate(texts) if digest_of(fields) not in scored]
        labels = read_soft_labels(self.fit) if texts else []
        return self.model.encode([texts[row] for row in rows], self.tokenizer), [labels[row] for row in rows]

    # -- the head ----------------------------------------------------------------------------------------------------

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to train once the head is solved for."""
        return not self.way.trains_encoder and self.is_solved and self.model.features.mix is None

    @cached_property
    def candidates(self) -> list[HeadCandidate]:
        """Candidates of the head; those that differ only in the penalty are next to each other, the largest first. Of
        a head that is not solved, only whether the names of the labels are training texts."""
        settings, head, names = self.fit.settings, self.head, names_of(self.fit)
        if not self.is_solved and len(names) > 1:
            names = [None]
        asked = settings.class_weight if self.is_solved else "none"
        weights = weights_of(asked, head, self.rows.run.labelled.targets, main=self.rows.scoring.main)
        norms: list[Statistics | None] = ["length", "block", "fixed"] if settings.head_norm == "auto" else [None]
        penalties = sorted(settings.head_penalties, reverse=True)
        return [
            HeadCandidate(norm, penalty, named, weight)
            for named, weight, norm, penalty in product(names, weights, norms, penalties)
        ]

    @property
    def candidate(self) -> HeadCandidate:
        return self.fit.head or self.candidates[0]

    def answers_by_candidate(self) -> dict[HeadCandidate, list[Answer]]:
        """The answers to the judged rows by a head that is solved with each candidate, before `Head.calibrate`."""
        dev, result = self.features("dev"), {}
        rows = {names: self.head_rows(names) for names in {each.label_names for each in self.candidates}}
        for candidate in self.candidates:
            self._solve(rows[candidate.label_names], candidate)
            result[candidate] = Predictor(self.model).decide(dev)
        return result

    def _solve(self, rows: HeadRows, candidate: HeadCandidate) -> None:
        head, settings = self.head, self.fit.settings
        # Features are few and stay on the CPU, independent of the encoder's device.
        head.cpu()
        # In a run that trains the encoder alone, the head is frozen.
        head.requires_grad_()
        if self.is_solved:
            solve_head(head, rows=rows, candidate=candidate, steps=settings.head_steps)
        else:
            seed = counter_seed(self.fit.seed, "head alone")
            train_head(head, rows=rows, settings=settings.training, steps=settings.head_steps, seed=seed)
        head.to(first_device()).eval()

    def fit_head(self) -> None:
        """Fit the head to the training rows as the encoder reads them now."""
        self._solve(self.head_rows(self.candidate.label_names), self.candidate)

    def fit_norm(self) -> None:
        """Fit the normalisation of the head to the training rows as the encoder reads them now."""
        self.head.norm.fit(matrix(self.inputs("train")))

    def start(self) -> None:
        """Train the head on the frozen encoder's features. The penalty is divided among all rows, the texts of the
        teachers included."""
        if self.fit.settings.head_steps and (self.is_solved or self.way.trains_encoder):
            self.fit_head()
        elif not self.way.trains_encoder and not self.is_solved:
            self.fit_norm()
        count = len(self.rows.labelled)
        self.head.penalty *= count / (count + len(self.taught[1]))
        self.model.eval()

    # -- evaluations and results -------------------------------------------------------------------------------------

    def evaluate(self, step: int, *, numbers: Sequence[int], epoch: int, loss: float | None) -> dict[str, float]:
        """Add the metrics of the current weights to the curve; keep the weights if they are the best so far (the
        earlier ones at a tie), or if this is the evaluation at which the training ends. Returns the primary metric by
        its name in monitoring.

        Args:
            step: number of steps so far.
            numbers: of the evaluation, from 1; several if there are fewer steps than evaluations; [0] before training.
            epoch: steps per epoch of all tasks.
            loss: training loss of the step.
        """
        if self.judged is None and self.fit.stop not in numbers:
            return {}
        self.trained = bool(step) and self.way.trains_encoder
        if self.way.refits_head and step:
            self.fit_head()
        keeps, shown, place = True, {}, round(step / epoch, 3)
        if (judged := self.judged) is not None:
            curve, scoring, alone = self.record["curve"], self.rows.scoring, self.fit.fold is None
            result = self._answers("dev")
            if alone:
                # In a fold, a head is calibrated on the predictions of all folds.
                result = self.head.calibrate(result, per_row(scoring, judged))
            scores = scoring.score(judged.fields, judged.targets, result)
            keeps = alone and (not curve or scores[scoring.main] > best_score(self.record))
            labels = {} if alone else self._labels()
            for number in numbers:
                self.kept |= pack(at(number), result) | {f"{at(number)}.{name}": each for name, each in labels.items()}
            curve.append({"step": step, "epoch": place, "train_loss": loss, **scores})
            shown = {scoring.main: scores[scoring.main]}
            if keeps:
                self.record["chosen"] = len(curve) - 1
        if keeps:
            self.record |= {"best_step": step, "best_epoch": place, "stop": numbers[0]}
            for name, value in self.model.state_dict().items():
                if self.way.trains_encoder or not name.startswith("encoder."):
                    self.kept[f"{BEST}{name}"] = value.detach().to("cpu", copy=True)
        return shown

    def result(self) -> dict[str, Tensor]:
        """What is kept; of a training that is not of a fold also the predictions of test by the best weights, and what
        students learn (`LABELS`)."""
        if self.judged is not None and self.fit.fold is not None:
            return self.kept
        self.model.load_state_dict(below(BEST, self.kept), strict=False)
        self.model.eval()
        self.head.decides = True
        # The best weights may be those before training, whose features are cached.
        self.trained = bool(self.record["best_step"]) and self.way.trains_encoder
        return self.kept | pack("test", self._answers("test")) | self._labels()

    def _labels(self) -> dict[str, Tensor]:
        """What students learn from the present weights."""
        if not self.fit.fields(LABELS):
            return pack(LABELS, [])
        began = time.perf_counter()
        labels = self._answers(LABELS, self.head.taught)
        self.apart += time.perf_counter() - began
        return pack(LABELS, labels)

    def _answers(self, split: str, answer: Any = None) -> list[Answer]:
        """Predictions of the present weights, of test as the stored classifier repeats them to the last bit."""
        if not self.trained:
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


def read_soft_labels(fit: Fit) -> list[Target]:
    """The mean of the predictions of a training's teachers for every text: those that have learned from the same rows.

    A teacher's file of the group holds (`pack`) under `BUDGET.SEED.FOLD` the predictions by the run that has learned
    from the rows outside a fold, and under `BUDGET.SEED.all` by the run that has learned from all rows. So a student
    never learns the labels of the rows on which it is scored: neither itself nor through its teacher.

    Raises:
        ArtifactError: an output is incomplete, or has no predictions of this run.
    """
    result = []
    for folder in fit.job.teachers.values():
        path = folder / labels_file(fit.job.group)
        read_manifest(folder, kind=FINETUNED)
        try:
            with safe_open(path, framework="pt") as stored:
                tensors = {key: stored.get_tensor(key) for key in (fit.name, f"{fit.name}.lengths")}
        except (SafetensorError, OSError) as error:
            problem = f"has no predictions of the run {fit.name}; run the stage finetune again"
            raise ArtifactError(f"{path}: {problem}") from error
        result.append(unpack(fit.name, tensors))
    return [np.mean(each, axis=0, dtype=np.float64) for each in zip(*result, strict=True)]


def labels_of(fit: Fit, by_fold: Sequence[Mapping[str, Any]], ways: Mapping[Any, Fit]) -> dict[str, list[Answer]]:
    """Name of the run (`Fit.name`) -> its predictions for all texts of `FinetuneJob.labelled`: of a finished training,
    and of each of its folds in the way and at the point that were chosen without the fold's rows."""
    labels = {fit.name: unpack(LABELS, result(fit)[0])}
    for fold, chosen in enumerate(by_fold):
        of_fold = replace(ways[chosen["way"]], fold=fold)
        labels[of_fold.name] = unpack(f"{at(chosen['stop'])}.{LABELS}", result(of_fold)[0])
    return labels


def finished(fit: Fit) -> Checkpoint | None:
    """The last checkpoint of a training that has ended."""
    stored = fit.store.latest()
    return stored if stored is not None and stored.numbers.get("done") else None


def result(fit: Fit) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors (`Member.result`) and the record of one task of a finished training."""
    stored = finished(fit)
    assert stored is not None, f"{fit.key} is not finished"
    return below(_prefix(fit.number), stored.tensors), dict(stored.numbers["records"][fit.number])


def _prefix(task: int) -> str:
    return f"member.{task}."


def execute(fits: Fits) -> list[dict[str, Any]]:
    """Start, resume or skip a training; its last checkpoint is its result (see `result`). Returns the tasks' records.

    Raises:
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    if (ended := finished(fits[0])) is not None:
        return list(ended.numbers["records"])
    store = fits[0].store
    run = Run(fits, store.latest())
    run.train(store)
    tensors = run.named([member.result() for member in run.members])
    for member in run.members:
        member.record |= run.counts()
    records = [member.record for member in run.members]
    store.save(run.steps + 1, tensors, {"done": True, "records": records})
    return records


class Run:
    """The state of a training: its tasks around one encoder, the model that is trained, and the optimizer. The heads
    are trained on the frozen encoder's features first, and scored as epoch 0; `stored`: where a training goes on."""

    def __init__(self, fits: Fits, stored: Checkpoint | None) -> None:
        self._began, self._tokens, self._seconds = time.perf_counter(), 0, 0.0
        self.fits, self.settings, self.way = fits, fits[0].settings, fits[0].way
        encoder, tokenizer = load_initial_encoder(fits[0])
        self.members = [Member(fit, encoder, tokenizer) for fit in fits]
        #: Steps per epoch, over all tasks.
        self.epoch = epoch_of(fits)
        self.steps, self.evaluations = fits[0].schedule(epoch=self.epoch)
        for member in self.members:
            member.start()
        models = [member.model for member in self.members]
        #: Settings of the training loop.
        self.training, unfreeze = self.way.training(self.settings), self.settings.unfreeze_epochs
        # A fraction of an epoch is at least one step.
        every = max(1, round(unfreeze * self.epoch)) if unfreeze else 0
        self.state = TrainingState.fresh(
            self.way.trained(models),
            self.way.groups(models, self.settings, unfreeze_every=every),
            settings=self.training,
            precision=fits[0].precision,
        )
        self.curve = Curve(title_of(fits), total=self.steps, points=CURVE_POINTS)
        if stored is None:
            self._evaluate([0], None)
            return
        self._tokens, self._seconds = stored.numbers["tokens"], stored.numbers["seconds"]
        for index, member in enumerate(self.members):
            member.kept = below(_prefix(index), stored.tensors)
            member.record |= stored.numbers["records"][index]
        state = {name: value for name, value in stored.tensors.items() if not name.startswith("member.")}
        self.state.restore(state, stored.numbers["state"], world=World(device=first_device()))

    def counts(self) -> dict[str, Any]:
        """Steps, tokens and seconds so far, those of interrupted starts included."""
        apart = sum(member.apart for member in self.members)
        seconds = round(self._seconds + time.perf_counter() - self._began - apart, 3)
        return {"steps": self.state.step, "tokens": self._tokens, "seconds": seconds}

    def named(self, of_members: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors of all tasks."""
        return {f"{_prefix(task)}{name}": each[name] for task, each in enumerate(of_members) for name in each}

    def _evaluate(self, numbers: Sequence[int], loss: float | None) -> None:
        for member in self.members:
            scores = member.evaluate(self.state.step, numbers=numbers, epoch=self.epoch, loss=loss)
            task = "" if len(self.members) == 1 else f"{member.fit.job.task}_"
            self.curve.add(self.state.step, **{f"dev_{task}{name}": value for name, value in scores.items()})

    def train(self, store: CheckpointStore) -> None:
        """The remaining steps, up to the last evaluation at which a task ends."""
        stops = {fit.stop for fit in self.fits}
        ends = [step for step, numbers in self.evaluations.items() if None in stops or stops.intersection(numbers)]
        last = max(ends, default=0)
        if all(member.is_fixed for member in self.members) or self.state.step >= last:
            return
        seed, world, saved = self.fits[0].seed, World(device=first_device()), time.perf_counter()
        samplers = [self.way.sampler(member.learned()) for member in self.members]
        sizes = [len(member.rows.labelled) for member in self.members]
        mixture = partial(TaskMixture, steps=self.steps, seed=counter_seed(seed, "together"))
        reports = train(
            self.state,
            samplers[0] if len(samplers) == 1 else mixture(samplers, shares(sizes, self.fits[0].temperature)),
            settings=self.training,
            total_steps=self.steps,
            seed=counter_seed(seed, "finetune"),
            world=world,
            in_stages=self.settings.unfreeze_schedule == "stages",
        )
        forecast = Forecast(self.fits[0].rounds, steps=last - self.state.step)
        for report in reports:
            forecast.check(last - report.step)
            self._tokens += report.tokens
            counts = self.counts()
            self.curve.step(
                report.step,
                tokens=self._tokens,
                seconds=counts["seconds"],
                loss=report.loss,
                rate=report.rate,
                gradient_norm=report.gradient_norm,
            )
            if numbers := self.evaluations.get(report.step):
                self._evaluate(numbers, report.loss)
            if report.step >= last:
                break
            if time.perf_counter() - saved >= self.fits[0].job.cluster.checkpoint_seconds and report.step < self.steps:
                tensors = self.state.tensors(world) | self.named([member.kept for member in self.members])
                records = [member.record for member in self.members]
                store.save(report.step, tensors, {"state": self.state.numbers(), "records": records, **self.counts()})
                saved = time.perf_counter()


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
