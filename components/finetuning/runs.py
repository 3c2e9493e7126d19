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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.config import FinetuneSettings
from components.finetuning.examples import read_facts, read_split, strata_of
from components.finetuning.features import FeatureTable, extract, head_answers
from components.finetuning.heads import ClassificationHead, TextHead
from components.finetuning.model import TaskModel, answers, cloned_state
from components.finetuning.probe import MOST_ROWS, FeatureSampler, HeadAlone, fit_head, solve_head, train_head
from components.finetuning.results import best_score
from components.finetuning.sampler import ExampleSampler
from components.finetuning.tasks import find_task
from components.finetuning.tasks.base import Answer, Encoded, Fields, Split
from components.finetuning.tasks.checks import draw
from components.models.base import LanguageModel
from components.models.encoder import build_model, load_encoder
from components.scoring import Scoring, scoring_for
from components.tokenization import Tokenizer
from components.training.checkpoint import CheckpointStore
from components.training.counters import counter_rng, counter_seed
from components.training.groups import ParameterGroup, decayed, discriminative
from components.training.loop import TrainingState, train
from components.training.precision import Precision
from components.training.world import World

#: Prefix of the best weights so far in a checkpoint, beside the training state's own names.
BEST = "best."
#: Prefix of the answers that the head alone gives, on the frozen encoder.
ALONE = "frozen."
#: Splits whose features a process keeps for its next runs.
KEPT_FEATURES = 6
_FEATURES: dict[tuple[str, str], FeatureTable] = {}


@dataclass(frozen=True)
class RunSpec:
    """Everything that a run depends on; plain values, to be sent to another process.

    Attributes:
        examples: output directory of the stage `examples`.
        encoder: encoder directory.
        settings: `finetune.<family>`, with what differs from scratch already in place.
        budget: rows a stratum, -1 for all.
        storage: `cluster.storage`.
        key: of this run's checkpoints.
        features: names the frozen encoder's features; runs with the same weights have the same.
    """

    examples: Path
    encoder: Path
    settings: FinetuneSettings
    budget: int
    seed: int
    precision: Precision
    storage: str
    key: str
    features: str


def device() -> torch.device:
    """The first GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build(spec: RunSpec) -> tuple[TaskModel, Tokenizer]:
    """The model before anything is learned, and the tokenizer."""
    encoder, tokenizer = start_of(spec)
    return with_head(spec, encoder), tokenizer


def start_of(spec: RunSpec) -> tuple[LanguageModel, Tokenizer]:
    """The encoder's weights as stored, or fresh ones of the run's seed where it is untrained; and its tokenizer."""
    loaded = load_encoder(spec.encoder)
    encoder = loaded.model
    if not loaded.trained:
        torch.manual_seed(counter_seed(spec.seed, "encoder"))
        sizes = encoder.config.model_dump(mode="json", exclude={"vocabulary"})
        encoder = build_model(loaded.family, vocabulary=encoder.config.vocabulary, settings=sizes)
        encoder.bind(loaded.tokenizer)
    encoder.set_dropout(spec.settings.dropout)
    return encoder, loaded.tokenizer


def with_head(spec: RunSpec, encoder: LanguageModel) -> TaskModel:
    """The encoder with the task's head on top, whose weights are the seed's own."""
    facts = read_facts(spec.examples)
    torch.manual_seed(counter_seed(spec.seed, "head"))
    model = TaskModel(encoder, task=find_task(facts.kind), settings=spec.settings, labels=facts.labels)
    # One mode for all parts: the loop switches a model that is not in training mode, and looks at its top only.
    return model.to(device()).eval()


def encode(spec: RunSpec, model: TaskModel, tokenizer: Tokenizer, rows: Sequence[Fields]) -> list[Encoded]:
    """Rows as the encoder reads them."""
    return find_task(read_facts(spec.examples).kind).encode(rows, tokenizer, model.encoder, spec.settings)


def drawn(spec: RunSpec) -> tuple[Split, dict[int, int]]:
    """The run's training rows, and the strata of which there are too few (see `draw`)."""
    train = read_split(spec.examples, "train")
    rows, short = draw(strata_of(train, read_facts(spec.examples).kind), spec.budget, seed=spec.seed)
    return train.take(rows), short


class Keyed(Protocol):
    """What has checkpoints: where they are, and under which key."""

    @property
    def storage(self) -> str: ...
    @property
    def key(self) -> str: ...


def finished(spec: Keyed) -> bool:
    """Whether the run's result is there."""
    stored = CheckpointStore(spec.storage, key=spec.key).latest()
    return stored is not None and bool(stored.numbers.get("done"))


def packed(name: str, found: Sequence[Answer]) -> dict[str, Tensor]:
    """Answers as tensors of a checkpoint."""
    flat = np.concatenate([*found, np.zeros(0, dtype=np.float32)])
    lengths = np.asarray([len(answer) for answer in found], dtype=np.int64)
    return {name: torch.from_numpy(flat), f"{name}.lengths": torch.from_numpy(lengths)}


def unpacked(name: str, tensors: dict[str, Tensor]) -> list[Answer]:
    """The answers that `packed` put among the tensors."""
    ends = np.cumsum(tensors[f"{name}.lengths"].numpy())
    return np.split(tensors[name].numpy(), ends[:-1])


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
    run.learn(store)
    predicted = run.predict()
    record = run.record | {
        "rows": len(run.splits["train"]),
        "short": short,
        "seconds": round(run.record["seconds"] + time.perf_counter() - began, 3),
    }
    weights = {f"model.{name}": value.cpu() for name, value in cloned_state(run.model).items()}
    store.save(run.steps + 1, predicted | run.frozen | weights, {"done": True, "record": record})
    return record


def prepare(spec: RunSpec, encoder: LanguageModel, tokenizer: Tokenizer) -> tuple[Run, dict[str, int]]:
    """A run before anything is learned, and the strata that it has too few rows of, with their rows."""
    model = with_head(spec, encoder)
    train_split, short = drawn(spec)
    splits = {"train": train_split, "dev": read_split(spec.examples, "dev"), "test": read_split(spec.examples, "test")}
    encoded = {name: encode(spec, model, tokenizer, split.fields) for name, split in splits.items()}
    facts = read_facts(spec.examples)
    run = Run(spec, model, splits, encoded, scoring_for(facts.kind, facts.labels))
    return run, {str(stratum): count for stratum, count in short.items()}


class Run:
    """The moving parts of `execute`: the model, the record of its scores, the best weights so far."""

    def __init__(
        self,
        spec: RunSpec,
        model: TaskModel,
        splits: dict[str, Split],
        encoded: dict[str, list[Encoded]],
        scoring: Scoring,
    ) -> None:
        self.spec = spec
        self.model = model
        self.splits = splits
        self.encoded = encoded
        self.scoring = scoring
        settings = spec.settings
        #: Whether the head alone can be solved for.
        self.is_solved = isinstance(model.head, TextHead) and model.head.is_linear
        #: Whether only the head learns, on features.
        self.head_only = settings.method == "features"
        #: What the loop trains, and whose weights are kept.
        self.learning: nn.Module = HeadAlone(model.head) if self.head_only else model
        model.head.prepare(splits["train"].targets)
        self.epoch = -(-len(encoded["train"]) // settings.training.batch_size)
        self.steps = max(settings.min_steps, math.ceil(settings.epochs * self.epoch))
        self.state = self._fresh_state()
        self.best: dict[str, Tensor] = {}
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
            groups = decayed(self.model.head.parameters())
        else:
            groups = discriminative(
                self.model.encoder.layer_groups(),
                head=self.model.own_parameters(),
                factor=settings.discriminative,
                unfreezing=settings.unfreezing,
                unfreeze_every=round(settings.unfreeze_epochs * self.epoch),
            )
        return TrainingState.fresh(self.learning, groups, settings=settings.training, precision=self.spec.precision)

    def start(self) -> None:
        """The head alone, on the frozen encoder's features; its score on dev is that of epoch 0."""
        settings, head = self.spec.settings, self.model.head
        dev = self._features("dev")
        # Features are few and lie on the CPU, whatever the encoder runs on.
        head.cpu()
        if settings.head_steps and (self.is_solved or not self.head_only):
            self._head_alone(dev)
        elif self.head_only and not self.is_solved:
            head.fit_norm(self._features("train").vectors)
        self.model.eval()
        found = self._calibrated(lambda: head_answers(head, dev))
        if settings.frozen:
            self.frozen = packed(f"{ALONE}dev", found)
            self.frozen |= packed(f"{ALONE}test", head_answers(head, self._features("test")))
        head.to(device())
        # An average of the weights begins at the head that was just learned.
        self.state = self._fresh_state()
        self._score(found)

    def _head_alone(self, dev: FeatureTable) -> None:
        settings, head, split = self.spec.settings, self.model.head, self.splits["train"]
        rows = np.arange(len(split))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table = self._extract([self.encoded["train"][row] for row in rows])
        chosen = split.take(rows)
        seed = counter_seed(self.spec.seed, "head alone")
        if not isinstance(head, TextHead) or not head.is_linear:
            train_head(
                head,
                table=table,
                targets=chosen.targets,
                settings=settings.training,
                steps=settings.head_steps,
                seed=seed,
            )
            return
        if isinstance(head, ClassificationHead):
            probe = fit_head(
                head,
                features=table.vectors,
                labels=chosen.labels,
                dev=dev.vectors,
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
        if self.head_only and self.is_solved:
            return
        world = World(device=device())
        scored_at = {round(self.steps * (k + 1) / settings.evaluations) for k in range(settings.evaluations)} - {0}
        began = saved = time.perf_counter()
        before = self.record["seconds"]
        reports = train(
            self.state,
            self.sampler(),
            settings=settings.training,
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
        return packed("dev", self._answers("dev")) | packed("test", self._answers("test"))

    def sampler(self) -> ExampleSampler | FeatureSampler:
        """The batches of all steps."""
        batch_size, targets = self.spec.settings.training.batch_size, self.splits["train"].targets
        seed = counter_seed(self.spec.seed, "batches")
        if self.head_only:
            return FeatureSampler(self._features("train"), targets, batch_size=batch_size, seed=seed)
        return ExampleSampler(self.encoded["train"], targets, batch_size=batch_size, seed=seed, masks=self.model.masks)

    def _answers(self, split: str) -> list[Answer]:
        """Of the weights as they are."""
        if self.head_only:
            return head_answers(self.model.head, self._features(split))
        return answers(self.model, self.encoded[split], precision=self.spec.precision)

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

    def _features(self, split: str) -> FeatureTable:
        """Features of a split by the encoder as it was before anything was learned; runs of one process share those of
        dev and test."""
        key = (self.spec.key if split == "train" else self.spec.features, split)
        if key not in _FEATURES:
            while len(_FEATURES) >= KEPT_FEATURES:
                del _FEATURES[next(iter(_FEATURES))]
            _FEATURES[key] = self._extract(self.encoded[split])
        return _FEATURES[key]

    def _extract(self, encoded: Sequence[Encoded]) -> FeatureTable:
        return extract(self.model, encoded, precision=self.spec.precision)
