"""One fine-tuning run: one budget and one seed of one (task, family, start), from encoder to answers.

The head first learns on features that the frozen encoder gives once; then, with method `finetune`, everything goes on
learning from there, scored on dev again and again, and the best weights are kept, those of the head alone among them.
With method `features` the encoder stays as it is: a linear head of a classification is a logistic regression, any other
head is what goes on learning, on the features.
Every run is a function of its `RunSpec`; what it has reached lies under `cluster.storage`, so that a run which was
killed goes on from its last checkpoint and a finished one is not done again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.finetuning.features import FeatureTable, head_answers, read_by_head
from components.finetuning.frozen import features
from components.finetuning.probe import MOST_ROWS, FeatureSampler, HeadAlone, fit_head, solve_head, train_head
from components.finetuning.specs import RunSpec, device, drawn, drawn_by_any, encode, start_of, with_head
from components.models.base import LanguageModel
from components.scoring import Scoring
from components.task_models.base import Encoded
from components.task_models.heads import ClassificationHead, TextHead
from components.task_models.model import TaskModel, answers, cloned_state
from components.task_models.sampler import ExampleSampler
from components.tasks.data import Answer, Split
from components.tasks.examples import read_facts, read_split
from components.tasks.kinds import scoring_for
from components.tasks.results import best_score
from components.tokenization import Tokenizer
from components.training.checkpoint import CheckpointStore
from components.training.distributed import World
from components.training.groups import ParameterGroup, decayed, discriminative
from components.training.loop import TrainingState, train
from components.training.rng import counter_rng, counter_seed

#: Prefix of the best weights so far in a checkpoint, beside the training state's own names.
BEST = "best."
#: Prefix of the answers that the head alone gives, on the frozen encoder.
ALONE = "frozen."


class Keyed(Protocol):
    """What has checkpoints: where they are, and under which key."""

    @property
    def storage(self) -> str: ...
    @property
    def key(self) -> str: ...


def steps_between(epochs: float, *, epoch: int) -> int:
    """Steps from one layer group to the next, for `unfreeze_epochs` and the steps of an epoch; where few labels make an
    epoch short, a part of it is still one step."""
    return max(1, round(epochs * epoch)) if epochs else 0


def finished(spec: Keyed) -> bool:
    """Whether the run's result is there."""
    stored = CheckpointStore(spec.storage, key=spec.key).latest()
    return stored is not None and bool(stored.numbers.get("done"))


def execute(spec: RunSpec) -> dict[str, Any]:
    """Do a run, or what is left of it; its result is the last checkpoint: `dev` and `test` answers and the weights
    under `model.`; the record of the run (also returned) under the number `record`.

    Raises:
        TrainingError: the loss is no longer finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    store = CheckpointStore(spec.storage, key=spec.key)
    stored = store.latest()
    if stored is not None and stored.numbers.get("done"):
        return dict(stored.numbers["record"])
    began = time.perf_counter()
    run, short = prepare(spec, *start_of(spec))
    if stored is None:
        run.start()
    else:
        run.resume(stored.tensors, stored.numbers)
    earlier = run.record["seconds"]
    run.learn(store)
    predicted = run.predict()
    record = run.record | {
        "rows": len(run.rows),
        "short": short,
        "seconds": round(earlier + time.perf_counter() - began, 3),
    }
    weights = {f"model.{name}": value.cpu() for name, value in cloned_state(run.model).items()}
    store.save(run.steps + 1, predicted | run.frozen | weights, {"done": True, "record": record})
    return record


def prepare(spec: RunSpec, encoder: LanguageModel, tokenizer: Tokenizer) -> tuple[Run, dict[str, int]]:
    """A run before anything is learned, and the strata that it has too few rows of, with their rows."""
    model = with_head(spec, encoder)
    whole, facts = read_split(spec.examples, "train"), read_facts(spec.examples)
    rows, short = drawn(spec, whole)
    splits = {"train": whole.take(rows), **{name: read_split(spec.examples, name) for name in ("dev", "test")}}
    run = Run(spec, model, tokenizer, splits, rows, scoring_for(facts.kind, facts.labels))
    return run, {str(stratum): count for stratum, count in short.items()}


def pack(name: str, answers: Sequence[Answer]) -> dict[str, Tensor]:
    """Answers of different lengths as two tensors of a checkpoint: the values, and the lengths."""
    flat = np.concatenate([*answers, np.zeros(0, dtype=np.float32)])
    lengths = np.asarray([len(answer) for answer in answers], dtype=np.int64)
    return {name: torch.from_numpy(flat), f"{name}.lengths": torch.from_numpy(lengths)}


def unpack(name: str, tensors: Mapping[str, Tensor]) -> list[Answer]:
    """The answers that `pack` stored under this name."""
    ends = np.cumsum(tensors[f"{name}.lengths"].numpy())
    return np.split(tensors[name].numpy(), ends[:-1])


class Run:
    """The moving parts of `execute`: the model, the record of its scores, the best weights so far."""

    def __init__(
        self,
        spec: RunSpec,
        model: TaskModel,
        tokenizer: Tokenizer,
        splits: dict[str, Split],
        rows: NDArray[np.int64],
        scoring: Scoring,
    ) -> None:
        self.spec = spec
        self.model = model
        self.tokenizer = tokenizer
        self.splits = splits
        #: The places of the training rows in the whole train split.
        self.rows = rows
        self.scoring = scoring
        settings = spec.settings
        #: Whether the head alone is solved for: if it can be, and has steps for it.
        self.is_solved = settings.head_steps > 0 and isinstance(model.head, TextHead) and model.head.is_linear
        #: Whether only the head learns, on features.
        self.head_only = settings.method == "features"
        #: Of the head while it learns alone, by gradient steps.
        rate = settings.head_rate or settings.training.rate
        self.alone = settings.training.model_copy(update={"rate": rate})
        #: What the loop trains, and whose weights are kept.
        self.learning: nn.Module = model
        if self.head_only:
            self.learning = HeadAlone(model.head, above=model.above, mix=model.features.mix)
        model.head.prepare(splits["train"].targets)
        self.epoch = -(-len(rows) // settings.training.batch_size)
        self.steps = max(settings.min_steps, math.ceil(settings.epochs * self.epoch))
        self.state = self._fresh_state()
        self.best: dict[str, Tensor] = {}
        #: What they answered for dev, where the whole model was asked and not only the head.
        self.said: list[Answer] | None = None
        self._encodings: dict[str, list[Encoded]] = {}
        self.frozen: dict[str, Tensor] = {}
        self.record: dict[str, Any] = {
            "budget": spec.budget,
            "seed": spec.seed,
            "precision": spec.precision,
            "score": scoring.main,
            "curve": [],
            "best_step": 0,
            "best_epoch": 0.0,
            "steps": 0,
            "tokens": 0,
            "seconds": 0.0,
        }

    def _fresh_state(self) -> TrainingState:
        settings = self.spec.settings
        groups: list[ParameterGroup]
        if self.head_only:
            groups = decayed(self.learning.parameters())
        else:
            groups = discriminative(
                self.model.encoder.layer_groups(),
                head=self.model.own_parameters(),
                head_scale=settings.head_scale,
                factor=settings.discriminative,
                unfreezing=settings.unfreezing,
                unfreeze_every=steps_between(settings.unfreeze_epochs, epoch=self.epoch),
            )
        return TrainingState.fresh(self.learning, groups, settings=settings.training, precision=self.spec.precision)

    def start(self) -> None:
        """The head alone, on the frozen encoder's features; its score on dev is that of epoch 0."""
        settings, head = self.spec.settings, self.model.head
        dev = self._read("dev")
        # Features are few and lie on the CPU, whatever the encoder runs on.
        head.cpu()
        if settings.head_steps and (self.is_solved or not self.head_only):
            self._head_alone(dev)
        elif self.head_only and not self.is_solved:
            head.fit_norm(self._read("train").matrix())
        self.model.eval()
        found = self._calibrated(lambda: head_answers(head, dev))
        if settings.frozen:
            self.frozen = pack(f"{ALONE}dev", found)
            self.frozen |= pack(f"{ALONE}test", head_answers(head, self._read("test")))
        head.to(device())
        # An average of the weights begins at the head that was just learned.
        self.state = self._fresh_state()
        self._score(found)

    def _head_alone(self, dev: FeatureTable) -> None:
        settings, head, split = self.spec.settings, self.model.head, self.splits["train"]
        rows = np.arange(len(split))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table = self._read("train").take(rows)
        chosen = split.take(rows)
        seed = counter_seed(self.spec.seed, "head alone")
        if not isinstance(head, TextHead) or not head.is_linear:
            train_head(
                head,
                table=table,
                targets=chosen.targets,
                settings=self.alone,
                steps=settings.head_steps,
                seed=seed,
            )
            return
        if isinstance(head, ClassificationHead):
            probe = fit_head(
                head,
                features=table.matrix(),
                labels=chosen.labels,
                dev=dev.matrix(),
                score=lambda found: self._scores(list(found))[self.scoring.main],
                penalties=settings.head_penalties,
                steps=settings.head_steps,
            )
        else:
            probe = solve_head(
                head,
                table=table,
                targets=chosen.targets,
                dev=dev,
                score=lambda found: self._scores(found)[self.scoring.main],
                penalties=settings.head_penalties,
                steps=settings.head_steps,
            )
        self.record |= {"penalty": probe.penalty, "penalties": {str(k): v for k, v in probe.scores.items()}}

    def resume(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Go on from a checkpoint of `learn`."""
        self.best = {name.removeprefix(BEST): value for name, value in tensors.items() if name.startswith(BEST)}
        self.frozen = {name: value for name, value in tensors.items() if name.startswith(ALONE)}
        kept = {name: value for name, value in tensors.items() if not name.startswith((BEST, ALONE))}
        self.state.restore(kept, numbers["state"], world=World(device=device()))
        self.record = dict(numbers["record"])
        self.model.head.penalty = float(numbers["penalty"])

    def learn(self, store: CheckpointStore) -> None:
        """All steps that are left, with dev scores spread evenly over them; ends early when patience does."""
        settings = self.spec.settings
        if self.head_only and self.is_solved and self.model.features.mix is None:
            return
        world = World(device=device())
        scored_at = {round(self.steps * (k + 1) / settings.evaluations) for k in range(settings.evaluations)} - {0}
        began = saved = time.perf_counter()
        before = self.record["seconds"]
        reports = train(
            self.state,
            self.sampler(),
            settings=self.alone if self.head_only else settings.training,
            total_steps=self.steps,
            seed=counter_seed(self.spec.seed, "finetune"),
            world=world,
        )
        if self.out_of_patience():
            return
        for report in reports:
            self.record["tokens"] += report.tokens
            self.record["steps"] = report.step
            if report.step in scored_at:
                self.score_now(loss=report.loss)
                if self.out_of_patience():
                    break
            now = time.perf_counter()
            self.record["seconds"] = before + now - began
            if now - saved >= settings.training.checkpoint_seconds and report.step < self.steps:
                self._checkpoint(store, world)
                saved = time.perf_counter()

    def predict(self) -> dict[str, Tensor]:
        """Answers for dev and test by the best weights, which the model then holds."""
        self.learning.load_state_dict(self.best)
        self.model.eval()
        # Of the weights from before anything was learned the features are kept, or serve all runs that end so.
        answer = self._answers if self.record["best_step"] else self._answers_of_head
        dev = answer("dev") if self.said is None else self.said
        return pack("dev", dev) | pack("test", answer("test"))

    def sampler(self) -> ExampleSampler | FeatureSampler:
        """The batches of all steps."""
        batch_size, targets = self.spec.settings.training.batch_size, self.splits["train"].targets
        seed = counter_seed(self.spec.seed, "batches")
        if self.head_only:
            return FeatureSampler(self._features("train"), targets, batch_size=batch_size, seed=seed)
        return ExampleSampler(
            self._encoded("train"),
            targets,
            batch_size=batch_size,
            seed=seed,
            masks=self.model.masks,
            windows=self.model.windows_learned,
        )

    def _answers(self, split: str) -> list[Answer]:
        """Of the weights as they are."""
        if self.head_only:
            return self._answers_of_head(split)
        return answers(self.model, self._encoded(split), precision=self.spec.precision)

    def _answers_of_head(self, split: str) -> list[Answer]:
        """Of the head as it is, on the encoder from before anything was learned."""
        return head_answers(self.model.head, self._read(split))

    def _calibrated(self, answer: Callable[[], list[Answer]]) -> list[Answer]:
        """The answers for dev, after the head has chosen on dev what it chooses there."""
        dev, scoring = self.splits["dev"], self.scoring

        def of_each(found: list[Answer]) -> NDArray[np.float64]:
            return scoring.scores(scoring.statistics(dev.fields, dev.targets, found).toarray())[scoring.main]

        return self.model.head.calibrate(answer, of_each)

    def _scores(self, found: Sequence[Answer]) -> dict[str, float]:
        dev = self.splits["dev"]
        return self.scoring.score(dev.fields, dev.targets, found)

    def _score(self, found: Sequence[Answer], *, loss: float | None = None) -> None:
        """Note the scores on dev; keep the weights if they are the best so far (the earlier ones at a tie)."""
        scores = self._scores(found)
        step = self.state.step
        curve = self.record["curve"]
        if not curve or scores[self.scoring.main] > best_score(self.record):
            self.record |= {"best_step": step, "best_epoch": round(step / self.epoch, 3)}
            self._swap()
            self.best = cloned_state(self.learning)
            self._swap()
            self.said = list(found) if step else None
        curve.append({"step": step, "epoch": round(step / self.epoch, 3), "train_loss": loss, **scores})

    def score_now(self, *, loss: float | None) -> None:
        """Score the weights as they are (or their average) on dev."""
        self._swap()
        found = self._calibrated(lambda: self._answers("dev"))
        self._swap()
        self._score(found, loss=loss)

    def _swap(self) -> None:
        if self.state.average is not None:
            self.state.average.swap()

    def out_of_patience(self) -> bool:
        """Whether so many scores were no better than the best that the run should end."""
        patience, curve = self.spec.settings.patience, self.record["curve"]
        best = max(range(len(curve)), key=lambda place: curve[place][self.scoring.main])
        return patience is not None and len(curve) - 1 - best >= patience

    def _checkpoint(self, store: CheckpointStore, world: World) -> None:
        tensors = self.state.tensors(world) | {f"{BEST}{name}": value.cpu() for name, value in self.best.items()}
        store.save(
            self.state.step,
            tensors | self.frozen,
            {"state": self.state.numbers(), "record": self.record, "penalty": self.model.head.penalty},
        )

    def _encoded(self, split: str) -> list[Encoded]:
        """A split as the encoder reads it; never asked for where only a head learns."""
        if split not in self._encodings:
            self._encodings[split] = encode(self.spec, self.model, self.tokenizer, self.splits[split].fields)
        return self._encodings[split]

    def _read(self, split: str) -> FeatureTable:
        """What the head reads of a split's rows."""
        return read_by_head(self.model, self._features(split))

    def _features(self, split: str) -> FeatureTable:
        """Features of a split's rows by the encoder as it was before anything was learned."""
        table = features(self.spec, split)
        if split != "train":
            return table
        facts = read_facts(self.spec.examples)
        held = drawn_by_any(self.spec, read_split(self.spec.examples, "train"), facts)
        return table.take(np.searchsorted(held, self.rows))
