"""One fine-tuning run: one budget and one seed of one (task, family, start), from encoder to predictions.

The head first learns on features that the frozen encoder gives once; then, with method `finetune`, everything goes on
learning from there, scored on dev again and again, and the best weights are kept, those of the head alone among them.
Every run is a function of its `RunSpec`; what it has reached lies under `cluster.storage`, so that a run which was
killed goes on from its last checkpoint and a finished one is not done again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.config import FinetuneSettings
from components.finetuning.examples import read_facts, read_labels, read_split
from components.finetuning.model import Classifier, cloned_state, probabilities, run_over
from components.finetuning.probe import MOST_ROWS, Probe, fit_head, train_head
from components.finetuning.sampler import ExampleSampler
from components.finetuning.scores import dev_scores
from components.finetuning.tasks import find_task
from components.finetuning.tasks.checks import draw
from components.models.encoder import build_model, load_encoder
from components.tokenization import Tokenizer
from components.training.checkpoint import CheckpointStore
from components.training.counters import counter_rng, counter_seed
from components.training.groups import discriminative
from components.training.loop import TrainingState, train
from components.training.precision import Precision
from components.training.world import World

#: Prefix of the best weights so far in a checkpoint, beside the training state's own names.
BEST = "best."
#: Prefix of the probabilities that the head alone gives, on the frozen encoder.
ALONE = "frozen."
#: Splits whose features a process keeps for its next runs.
KEPT_FEATURES = 6
_FEATURES: dict[tuple[str, str], Tensor] = {}


@dataclass(frozen=True)
class RunSpec:
    """Everything that a run depends on; plain values, to be sent to another process.

    Attributes:
        examples: output directory of the stage `examples`.
        encoder: encoder directory.
        settings: `finetune.<family>`, with what differs from scratch already in place.
        budget: labels a class, -1 for all.
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


def build(spec: RunSpec) -> tuple[Classifier, Tokenizer]:
    """The classifier before anything is learned: encoder weights as stored, or fresh ones of the run's seed where the
    encoder is untrained; the head's are the seed's own."""
    facts = read_facts(spec.examples)
    loaded = load_encoder(spec.encoder)
    encoder = loaded.model
    if not loaded.trained:
        torch.manual_seed(counter_seed(spec.seed, "encoder"))
        sizes = encoder.config.model_dump(mode="json", exclude={"vocabulary"})
        encoder = build_model(loaded.family, vocabulary=encoder.config.vocabulary, settings=sizes)
        encoder.bind(loaded.tokenizer)
    encoder.set_dropout(spec.settings.dropout)
    torch.manual_seed(counter_seed(spec.seed, "head"))
    task = find_task(facts.kind)
    classifier = Classifier(encoder, settings=spec.settings, outputs=len(facts.labels), head=task.head)
    # One mode for all parts: the loop switches a model that is not in training mode, and looks at its top only.
    return classifier.to(device()).eval(), loaded.tokenizer


def encode(spec: RunSpec, classifier: Classifier, tokenizer: Tokenizer, texts: list[str]) -> list[NDArray[np.int64]]:
    """Texts as the encoder reads them."""
    limit = min(spec.settings.max_length, classifier.encoder.max_tokens or spec.settings.max_length)
    return find_task(read_facts(spec.examples).kind).encode(texts, tokenizer, classifier.encoder, limit)


def finished(spec: RunSpec) -> bool:
    """Whether the run's result is there."""
    stored = CheckpointStore(spec.storage, key=spec.key).latest()
    return stored is not None and bool(stored.numbers.get("done"))


def execute(spec: RunSpec) -> dict[str, Any]:
    """Do a run, or what is left of it; its result is the last checkpoint: `dev` and `test` probabilities and the
    weights under `model.`; the record of the run (also returned) under the number `record`.

    Raises:
        TrainingError: the loss is no longer finite, or a checkpoint cannot be written.
        ArtifactError: encoder or examples are incomplete, or do not fit.
    """
    store = CheckpointStore(spec.storage, key=spec.key)
    stored = store.latest()
    if stored is not None and stored.numbers.get("done"):
        return dict(stored.numbers["record"])
    began = time.perf_counter()
    settings = spec.settings
    classifier, tokenizer = build(spec)
    rows, short = draw(read_labels(spec.examples, "train"), spec.budget, seed=spec.seed)
    split = {
        "train": read_split(spec.examples, "train", rows=rows),
        "dev": read_split(spec.examples, "dev"),
        "test": read_split(spec.examples, "test"),
    }
    pieces = {name: encode(spec, classifier, tokenizer, found.texts) for name, found in split.items()}
    run = _Run(spec, classifier, pieces, {name: found.labels for name, found in split.items()})
    if stored is None:
        run.start()
    else:
        run.resume(stored.tensors, stored.numbers)
    if settings.method == "finetune":
        run.finetune(store)
    predicted = run.predict()
    record = run.record | {
        "rows": len(rows),
        "short": {str(label): count for label, count in short.items()},
        "seconds": round(run.record["seconds"] + time.perf_counter() - began, 3),
    }
    weights = {f"model.{name}": value.cpu() for name, value in cloned_state(classifier).items()}
    frozen = {f"{ALONE}{name}": found for name, found in run.frozen.items()}
    store.save(run.steps + 1, predicted | frozen | weights, {"done": True, "record": record})
    return record


class _Run:
    """The moving parts of `execute`: the classifier, the record of its scores, the best weights so far."""

    def __init__(
        self,
        spec: RunSpec,
        classifier: Classifier,
        pieces: dict[str, list[NDArray[np.int64]]],
        labels: dict[str, NDArray[np.int64]],
    ) -> None:
        self.spec = spec
        self.classifier = classifier
        self.pieces = pieces
        self.labels = labels
        training = spec.settings.training
        self.sampler = ExampleSampler(
            pieces["train"], labels["train"], batch_size=training.batch_size, seed=counter_seed(spec.seed, "batches")
        )
        self.epoch = self.sampler.epoch_steps
        self.steps = max(spec.settings.min_steps, math.ceil(spec.settings.epochs * self.epoch))
        self.state = self._fresh_state()
        self.best: dict[str, Tensor] = {}
        self.frozen: dict[str, Tensor] = {}
        self.record: dict[str, Any] = {
            "budget": spec.budget,
            "seed": spec.seed,
            "precision": spec.precision,
            "curve": [],
            "best_step": 0,
            "best_epoch": 0.0,
            "steps": 0,
            "tokens": 0,
            "seconds": 0.0,
        }

    def _fresh_state(self) -> TrainingState:
        settings = self.spec.settings
        groups = discriminative(
            self.classifier.encoder.layer_groups(),
            head=self.classifier.own_parameters(),
            factor=settings.discriminative,
            unfreeze_every=round(settings.unfreeze_epochs * self.epoch),
        )
        return TrainingState.fresh(self.classifier, groups, settings=settings.training, precision=self.spec.precision)

    def start(self) -> None:
        """The head alone, on the frozen encoder's features; its score on dev is that of epoch 0."""
        settings = self.spec.settings
        dev = self._features("dev")
        # Features are few and lie on the CPU, whatever the encoder runs on.
        self.classifier.head.cpu()
        if settings.head_steps:
            rows = np.arange(len(self.pieces["train"]))
            if len(rows) > MOST_ROWS:
                rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
            features = self._compute_features([self.pieces["train"][row] for row in rows])
            probe = self._fit_head(features, self.labels["train"][rows], dev)
            if probe is not None:
                self.record |= {"penalty": probe.penalty, "penalties": {str(k): v for k, v in probe.scores.items()}}
                # The regression sums over the rows, fine-tuning takes their mean.
                self.classifier.penalty = probe.penalty / len(rows)
        self.classifier.eval()
        with torch.inference_mode():
            found = self.classifier.head(dev).softmax(1)
            if settings.frozen:
                self.frozen = {"dev": found, "test": self.classifier.head(self._features("test")).softmax(1)}
        self.classifier.head.to(device())
        # An average of the weights begins at the head that was just learned.
        self.state = self._fresh_state()
        self._score(found.numpy())

    def resume(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Go on from a checkpoint of `finetune`."""
        self.best = {name.removeprefix(BEST): value for name, value in tensors.items() if name.startswith(BEST)}
        self.frozen = {name.removeprefix(ALONE): value for name, value in tensors.items() if name.startswith(ALONE)}
        kept = {name: value for name, value in tensors.items() if not name.startswith((BEST, ALONE))}
        self.state.restore(kept, numbers["state"], world=World(device=device()))
        self.record = dict(numbers["record"])
        self.classifier.penalty = float(numbers["penalty"])

    def finetune(self, store: CheckpointStore) -> None:
        """All steps that are left, with dev scores spread evenly over them; ends early when patience does."""
        settings = self.spec.settings
        world = World(device=device())
        scored_at = {round(self.steps * (k + 1) / settings.evaluations) for k in range(settings.evaluations)} - {0}
        began = saved = time.perf_counter()
        before = self.record["seconds"]
        reports = train(
            self.state,
            self.sampler,
            settings=settings.training,
            total_steps=self.steps,
            seed=counter_seed(self.spec.seed, "finetune"),
            world=world,
        )
        if self._out_of_patience():
            return
        for report in reports:
            self.record["tokens"] += report.tokens
            self.record["steps"] = report.step
            if report.step in scored_at:
                self._score(self._averaged_probabilities("dev"), loss=report.loss)
                if self._out_of_patience():
                    break
            now = time.perf_counter()
            self.record["seconds"] = before + now - began
            if now - saved >= settings.training.checkpoint_seconds and report.step < self.steps:
                self._checkpoint(store, world)
                saved = time.perf_counter()

    def predict(self) -> dict[str, Tensor]:
        """Probabilities of dev and test by the best weights, which the classifier then holds."""
        self.classifier.load_state_dict(self.best)
        if self.record["best_step"] == 0 and self.spec.settings.method == "features":
            self.classifier.eval()
            with torch.inference_mode():
                features = {name: self._features(name).to(device()) for name in ("dev", "test")}
                return {name: self.classifier.head(found).float().softmax(1).cpu() for name, found in features.items()}
        return {
            name: torch.from_numpy(probabilities(self.classifier, self.pieces[name], precision=self.spec.precision))
            for name in ("dev", "test")
        }

    def _fit_head(self, features: Tensor, labels: NDArray[np.int64], dev: Tensor) -> Probe | None:
        settings = self.spec.settings
        if settings.head_hidden == 0:
            return fit_head(
                self.classifier.head,
                features=features,
                labels=labels,
                dev=dev,
                score=lambda found: dev_scores(self.labels["dev"], found)["macro_f1"],
                penalties=settings.head_penalties,
                steps=settings.head_steps,
            )
        train_head(
            self.classifier.head,
            features=features,
            labels=labels,
            settings=settings.training,
            steps=settings.head_steps,
            seed=counter_seed(self.spec.seed, "head alone"),
        )
        return None

    def _score(self, found: NDArray[np.float32], *, loss: float | None = None) -> None:
        """Note the scores on dev; keep the weights if they are the best so far (the earlier ones at a tie)."""
        scores = dev_scores(self.labels["dev"], found)
        step = self.state.step
        curve = self.record["curve"]
        if not curve or scores["macro_f1"] > max(point["macro_f1"] for point in curve):
            self.record |= {"best_step": step, "best_epoch": round(step / self.epoch, 3)}
            self._swap()
            self.best = cloned_state(self.classifier)
            self._swap()
        curve.append({"step": step, "epoch": round(step / self.epoch, 3), "train_loss": loss, **scores})

    def _averaged_probabilities(self, split: str) -> NDArray[np.float32]:
        self._swap()
        found = probabilities(self.classifier, self.pieces[split], precision=self.spec.precision)
        self._swap()
        return found

    def _swap(self) -> None:
        if self.state.average is not None:
            self.state.average.swap()

    def _out_of_patience(self) -> bool:
        patience, curve = self.spec.settings.patience, self.record["curve"]
        best = max(range(len(curve)), key=lambda place: curve[place]["macro_f1"])
        return patience is not None and len(curve) - 1 - best >= patience

    def _checkpoint(self, store: CheckpointStore, world: World) -> None:
        tensors = self.state.tensors(world) | {f"{BEST}{name}": value.cpu() for name, value in self.best.items()}
        tensors |= {f"{ALONE}{name}": value for name, value in self.frozen.items()}
        store.save(
            self.state.step,
            tensors,
            {"state": self.state.numbers(), "record": self.record, "penalty": self.classifier.penalty},
        )

    def _features(self, split: str) -> Tensor:
        """Features of a split by the encoder as it was before anything was learned; runs of one process share them."""
        key = (self.spec.features, split)
        if key not in _FEATURES:
            while len(_FEATURES) >= KEPT_FEATURES:
                del _FEATURES[next(iter(_FEATURES))]
            _FEATURES[key] = self._compute_features(self.pieces[split])
        return _FEATURES[key]

    def _compute_features(self, pieces: list[NDArray[np.int64]]) -> Tensor:
        return run_over(self.classifier.pooled, self.classifier, pieces, precision=self.spec.precision)
