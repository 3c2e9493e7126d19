"""Stage side of pretraining and adaptation: checks the inputs, starts the workers, writes the encoder directory."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from components.cluster import launcher as cluster
from components.cluster.distributed import World
from components.core.artifacts import Draft, read_manifest, write_json
from components.core.errors import ArtifactError, ConfigError, TrainingError
from components.core.measurements import Curve
from components.core.progress import Progress, Rate
from components.models.base import LanguageModel
from components.models.encoder import CURVE, count_parameters, load_encoder, save_encoder
from components.settings.cluster import ClusterSettings
from components.tokenization import load_tokenizer
from components.tokenization.store import TokenStore
from components.training.checkpoint import CheckpointStore, fingerprint
from components.training.loop import TrainingState
from components.training.precision import Precision
from components.training.pretraining.language_model import (
    LanguageModelRun,
    TrainingHistory,
    VectorsFile,
    initial_model,
    parameter_groups,
    vectors_ready,
    work,
)

#: Fields of a run that are not part of the checkpoint key: they do not affect the result, or the key contains a digest
#: of the content instead of the path.
NOT_LEARNED = {
    "name", "storage", "key", "checkpoint_seconds", "tokens", "tokenizer", "parent", "vectors_file", "vectors_digest",
    "vectors",
}  # fmt: skip
#: An increase of the held-out loss is reported if it is larger than this (nats per piece); smaller ones are noise.
RISE = 0.1


@dataclass(frozen=True)
class Trained:
    """A finished run: the model with the averaged weights, if there are, in evaluation mode on the CPU; and the
    checkpoints, which the caller clears after writing the output."""

    model: LanguageModel
    precision: Precision
    history: TrainingHistory
    checkpoints: CheckpointStore
    vectors: VectorsFile | None


def train_encoder(run: LanguageModelRun, *, settings: ClusterSettings) -> Trained:
    """Train a language model; resumes from the last checkpoint of an interrupted run.

    Raises:
        ArtifactError: an input is incomplete, or the tokens belong to another tokenizer.
        ConfigError: invalid sizes of the model, a window longer than its positions, or unsuitable word vectors.
        TrainingError: training cannot continue.
    """
    rows, sizes = _checked(run)
    with vectors_ready(run, sizes) as vectors:
        run = run.model_copy(update={"vectors": vectors and vectors.ready})
        return _trained(run, settings, rows=rows, vectors=vectors)


def _trained(run: LanguageModelRun, settings: ClusterSettings, *, rows: int, vectors: VectorsFile | None) -> Trained:
    checkpoints = CheckpointStore(settings.storage, key=f"{run.name.replace(' ', '-')}-{_key(run)}")
    run = run.model_copy(
        update={
            "storage": checkpoints.storage,
            "key": checkpoints.key,
            "checkpoint_seconds": settings.checkpoint_seconds,
        }
    )
    seconds = run.training.seconds
    total = run.steps * run.step_tokens if run.steps else seconds
    stored = checkpoints.latest() if checkpoints.steps() else None
    done = 0.0
    if stored is not None:
        reached_before = TrainingHistory(**stored.numbers["progressed"])
        done = seconds * stored.step / reached_before.steps if seconds else float(reached_before.tokens)
    with Progress(run.name, total=total, unit="s" if seconds else "tok", done=done) as bar:
        reached, speed, measurements = done, Rate(), _Measurements()

        def show(numbers: Mapping[str, float]) -> None:
            nonlocal reached
            measurements.add(numbers)
            # The number of steps of a budget in seconds is fixed at the start, so progress is the fraction of steps.
            now = seconds * numbers["share"] if seconds else numbers["tokens"]
            # After the loss of a worker some steps are repeated; the count does not decrease.
            advance = max(0.0, now - reached)
            reached += advance
            shown = {"loss": f"{numbers['loss']:.3f}"} if "loss" in numbers else {}
            speed.add(numbers["tokens"])
            if seconds and (tokens := speed.per_second) is not None:
                shown["tok/s"] = f"{tokens:,.0f}"
            bar.advance(advance, **shown)

        cluster.launch(work, run, settings=settings, rows=rows, progress=show)
    checkpoint = checkpoints.latest()
    if checkpoint is None or checkpoint.step < checkpoint.numbers["progressed"]["steps"]:
        raise TrainingError(f"{checkpoints.name}: the last checkpoint is missing or damaged; run the stage again")
    history = TrainingHistory(**checkpoint.numbers["progressed"])
    measurements.complete(history)
    if message := overfitted(history):
        print(f"{run.name}: warning: {message}")
    model = initial_model(run)
    state = TrainingState.fresh(model, parameter_groups(model, run.training), settings=run.training)
    state.restore(checkpoint.tensors, checkpoint.numbers["state"], world=World())
    if state.average is not None:
        state.average.swap()
    return Trained(model.eval(), state.precision, history, checkpoints, vectors)


def overfitted(history: TrainingHistory) -> str:
    """A message if the held-out loss at the end is higher than in an earlier row of the curve; empty if it is not."""
    measured = [point for point in history.curve if "heldout" in point]
    if not measured:
        return ""
    best, last = min(measured, key=lambda point: point["heldout"]), measured[-1]
    if last["heldout"] - best["heldout"] <= RISE:
        return ""
    return (
        f"the held-out loss rose from {best['heldout']:.2f} after {best['tokens']:,} tokens to {last['heldout']:.2f} "
        f"after {last['tokens']:,}; make fewer passes over the text (training.passes) or lower training.rate"
    )


class _Measurements:
    def __init__(self) -> None:
        self._curve: Curve | None = None
        self._last = self._heldout = 0

    def add(self, numbers: Mapping[str, float]) -> None:
        self._last = int(numbers["step"])
        if self._curve is None:
            self._curve = Curve(total=int(numbers["steps"]))
        self._curve.step(
            self._last,
            tokens=numbers["tokens"],
            seconds=numbers["seconds"],
            loss=numbers.get("loss"),
            rate=numbers["rate"],
            gradient_norm=numbers["gradient_norm"],
        )
        if (measured := int(numbers.get("heldout_step", 0))) > self._heldout:
            self._heldout = measured
            self._curve.add(measured, heldout_loss=numbers["heldout"])

    def complete(self, history: TrainingHistory) -> None:
        """The rows of the whole curve, of which the published numbers may lack some, the last one included."""
        curve = self._curve or Curve()
        for row in history.curve:
            live = {name: row.get(name) for name in ("loss", "rate", "gradient_norm") if row["step"] > self._last}
            curve.add(int(row["step"]), heldout_loss=row.get("heldout"), **live)


def write_encoder(
    draft: Draft, trained: Trained, *, run: LanguageModelRun, metrics: Mapping[str, float] | None = None
) -> None:
    """Write the files of an encoder directory and the facts of its manifest; adds metrics.json and curve.csv."""
    save_encoder(draft.path, family=run.family, model=trained.model, tokenizer=run.tokenizer)
    history = trained.history
    numbers: dict[str, Any] = {
        "tokens": history.tokens,
        "steps": history.steps,
        "seconds": round(history.seconds, 2),
        "tokens_per_second": round(history.tokens / max(history.seconds, 1e-9), 1),
        "workers": history.workers,
        "precision": trained.precision,
        "parameters": count_parameters(trained.model),
        "training_loss": history.curve[-1].get("loss") if history.curve else None,
        "gradient_norm": history.gradient_norm,
        **history.after,
        **{f"before_{name}": value for name, value in history.before.items()},
        **(trained.vectors.matched.numbers() if trained.vectors else {}),
        **(metrics or {}),
    }
    if history.compilation:
        numbers["compilation_seconds"] = round(history.compilation, 2)
    write_json(draft.path / "metrics.json", numbers)
    with (draft.path / "curve.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CURVE, restval="")
        writer.writeheader()
        writer.writerows(history.curve)
    draft.facts |= {
        "trained": True,
        "precision": trained.precision,
        "family": run.family,
        "tokenizer": load_tokenizer(run.tokenizer).fingerprint(),
        "tokens": read_manifest(run.tokens).digest,
        "parent": read_manifest(run.parent).digest if run.parent else None,
        "seed": run.seed,
        "training": run.training.model_dump(mode="json"),
        "torch": torch.__version__,
        **({"vectors": trained.vectors.digest} if trained.vectors else {}),
    }


def _checked(run: LanguageModelRun) -> tuple[int, LanguageModel]:
    """Least number of rows of a step, after checks of the inputs; and a model with the run's sizes."""
    store = TokenStore(run.tokens, "train")
    if store.tokenizer_fingerprint != load_tokenizer(run.tokenizer).fingerprint():
        raise ArtifactError(
            f"{run.tokens}: encoded with another tokenizer than {run.tokenizer}; run the tokenize stage again"
        )
    if run.parent is None:
        # Checks the sizes without allocating weights.
        with torch.device("meta"):
            model = initial_model(run)
    else:
        parent = load_encoder(run.parent)
        if parent.family != run.family:
            raise ArtifactError(
                f"{run.parent}: is an encoder of {parent.family!r}; run the pretrain stage of {run.family} first"
            )
        model = parent.model
    if model.sparse_parameters() and run.training.optimizer != "adamw":
        raise ConfigError(f"{run.name}: with model.sparse, training.optimizer must be adamw")
    if run.vectors_file is not None and model.piece_embedding() is None and model.static_vectors() is None:
        raise ConfigError(
            f"{run.name}: {run.family} reads characters and has no table of pieces that could start from word vectors; "
            "set model.static to their width, or remove vectors"
        )
    positions, longest = model.max_tokens, run.training.longest(model.max_tokens)
    if positions is not None and longest > positions:
        key = "window" if run.training.window > positions else "long_window"
        raise ConfigError(
            f"{run.name}: training.{key} {longest} is longer than the model's {positions} positions; lower it, or "
            "pretrain a model with more (model.positions, training.long_window)"
        )
    return run.training.batch_size * run.training.window // longest, model


def _key(run: LanguageModelRun) -> str:
    settings = run.model_dump(mode="json", exclude=NOT_LEARNED)
    return fingerprint(
        settings=settings,
        tokens=read_manifest(run.tokens).digest,
        tokenizer=load_tokenizer(run.tokenizer).fingerprint(),
        parent=read_manifest(run.parent).digest if run.parent else None,
        torch=torch.__version__,
        **({} if run.vectors is None else {"vectors": read_manifest(run.vectors).digest}),
    )
