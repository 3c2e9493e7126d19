"""What every worker does to train a language model on a token store; pretraining and adaptation differ in the start.

A worker goes on from the newest checkpoint, trains, and leaves everything that is wanted of it in the last one. So
workers may be killed at any moment, and need not share a disk with the stage if checkpoints are in S3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from components.errors import TrainingError
from components.models.base import LanguageModel
from components.models.encoder import build_model, load_encoder
from components.pretraining.perplexity import heldout_sampler, measure
from components.pretraining.samplers import WindowSampler, sampler_for
from components.pretraining.vectors import cooccurrence_vectors, start_embeddings
from components.settings.section import Section
from components.settings.training import LanguageModelTraining
from components.tokenization import load_tokenizer, overlap
from components.tokenization.store import TokenStore
from components.training.checkpoint import CheckpointStore
from components.training.distributed import Worker, World
from components.training.groups import decayed
from components.training.loop import StepReport, TrainingState, train
from components.training.optim import non_monotone
from components.training.precision import Precision, choose, product_size
from components.training.rng import counter_seed

#: Rows of the training curve, each with a held-out loss over this many pieces.
CURVE_POINTS = 20
CURVE_PIECES = 2048
#: Pieces over which perplexity is measured before and after.
FINAL_PIECES = 32_768
#: A budget in seconds: steps are timed for at most this share of it and this many, after some that warm up.
MEASURED_SHARE = 0.03
MEASURED_STEPS = 200
WARM_UP_STEPS = 3
#: Steps between two exchanges on whether a checkpoint is due, where several workers must agree.
AGREE_EVERY = 10


class LanguageModelRun(Section):
    """Everything that decides what is learned.

    Attributes:
        name: for progress lines.
        family, preset, model: the model that is built, unless there is a `parent`.
        parent: encoder directory whose weights are the start, its rows re-mapped to `tokenizer`'s pieces.
        tokens, tokenizer: directories of the text and of the tokenizer that it was encoded with.
        code: digest of the code and libraries that the stage can reach; part of the key of the checkpoints.
        storage, key: where the checkpoints are; filled in by `train_encoder`.
    """

    name: str
    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    parent: Path | None = None
    tokens: Path
    tokenizer: Path
    training: LanguageModelTraining
    seed: int = 0
    code: str = ""
    storage: str = ""
    key: str = ""

    @property
    def step_tokens(self) -> int:
        """Input tokens of a step, on average."""
        return self.training.batch_size * self.training.window

    @property
    def steps(self) -> int | None:
        """Steps that take in the token budget; None where the budget is time."""
        return None if self.training.tokens is None else max(1, round(self.training.tokens / self.step_tokens))


@dataclass
class Progressed:
    """What a run has to show so far; stored in every checkpoint. `steps` is how many it will take."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    workers: int = 1
    gradient_norm: float = 0.0
    losses: list[float] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


def work(run: LanguageModelRun, worker: Worker) -> None:
    """One worker's part of a run: train from the newest checkpoint to the end, which is a checkpoint again."""
    world = worker.world
    model = start_model(run).to(world.device)
    settings = run.training
    pieces = load_tokenizer(run.tokenizer).pieces
    sampler = sampler_for(
        run.family,
        TokenStore(run.tokens, "train"),
        config=model.config,
        pieces=pieces,
        batch_size=settings.batch_size,
        window=settings.window,
        seed=run.seed,
        jitter=settings.window_jitter,
    )
    heldout = _Heldout(run, model, pieces, world)
    checkpoints = CheckpointStore(run.storage, key=run.key)
    checkpoint = checkpoints.latest_for_all(world)
    if checkpoint is None:
        if settings.vectors:
            _start_from_vectors(run, model)
        size = product_size(model)
        precision = world.broadcast(choose(settings.precision, device=world.device, size=size))
        state = TrainingState.fresh(model, decayed(model.parameters()), settings=settings, precision=precision)
        steps = run.steps or world.broadcast(_steps_in_time(run, sampler, precision, world))
        progressed = Progressed(steps=steps, before=heldout.measure(state, pieces=FINAL_PIECES))
        # Stores precision and number of steps: a resumed run keeps them, also on another machine.
        _save(checkpoints, state, progressed, world)
    else:
        state = TrainingState.fresh(model, decayed(model.parameters()), settings=settings)
        state.restore(checkpoint.tensors, checkpoint.numbers["state"], world=world)
        progressed = Progressed(**checkpoint.numbers["progressed"])
    progressed.workers = world.size
    _train(run, state, sampler, heldout, checkpoints, progressed, worker)


def _train(
    run: LanguageModelRun,
    state: TrainingState,
    sampler: WindowSampler,
    heldout: _Heldout,
    checkpoints: CheckpointStore,
    progressed: Progressed,
    worker: Worker,
) -> None:
    world, total = worker.world, progressed.steps
    saved = clock = time.perf_counter()
    for report in train(state, sampler, settings=run.training, total_steps=total, seed=run.seed, world=world):
        now = time.perf_counter()
        progressed.seconds += now - clock
        _note(progressed, report)
        last = report.step == total
        if report.step * CURVE_POINTS // total > (report.step - 1) * CURVE_POINTS // total:
            _add_point(progressed, report, heldout.measure(state, pieces=CURVE_PIECES))
            if state.average is not None and state.average.begins is None:
                measured = [point["heldout"] for point in progressed.curve if "heldout" in point]
                if non_monotone(measured):
                    state.average.begin(report.step)
        if last:
            progressed.after = heldout.measure(state, pieces=FINAL_PIECES)
        if last or _due(report, now - saved > run.training.checkpoint_seconds, world):
            _save(checkpoints, state, progressed, world)
            saved = time.perf_counter()
        shown = {"loss": progressed.losses[-1]} if progressed.losses else {}
        share = report.step / total
        worker.publish({"tokens": float(progressed.tokens), "seconds": progressed.seconds, "share": share, **shown})
        clock = time.perf_counter()


def _steps_in_time(run: LanguageModelRun, sampler: WindowSampler, precision: Precision, world: World) -> int:
    """Steps that fit into the budget of seconds, by the median time of some steps of a model of its own."""
    settings = run.training
    assert settings.seconds is not None
    model = start_model(run).to(world.device)
    state = TrainingState.fresh(model, decayed(model.parameters()), settings=settings, precision=precision)
    times: list[float] = []
    clock = began = time.perf_counter()
    for _ in train(state, sampler, settings=settings, total_steps=MEASURED_STEPS, seed=run.seed, world=world):
        if world.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        times.append(now - clock)
        clock = now
        # Workers exchange gradients in every step, so all of them must take the same number.
        if world.broadcast(len(times) > WARM_UP_STEPS and now - began > MEASURED_SHARE * settings.seconds):
            break
    return max(1, round(settings.seconds / float(np.median(times[WARM_UP_STEPS:] or times))))


class _Heldout:
    """Held-out text of a run, ready to be measured at any time."""

    def __init__(self, run: LanguageModelRun, model: LanguageModel, pieces: list[str], world: World) -> None:
        self.family = run.family
        self.store = TokenStore(run.tokens, "heldout")
        self.world = world
        self.sampler = heldout_sampler(
            run.family,
            self.store,
            config=model.config,
            pieces=pieces,
            batch_size=run.training.batch_size,
            window=run.training.window,
            workers=world.size,
        )

    def measure(self, state: TrainingState, *, pieces: int) -> dict[str, float]:
        """Perplexity of the weights that would be saved now; empty if there is too little held-out text."""
        if self.sampler is None:
            return {}
        model = state.model
        assert isinstance(model, LanguageModel)
        if state.average is not None:
            state.average.swap()
        measured = measure(
            model,
            self.sampler,
            self.store,
            family=self.family,
            pieces=pieces,
            precision=state.precision,
            world=self.world,
        )
        if state.average is not None:
            state.average.swap()
        return measured.named("")


def _note(progressed: Progressed, report: StepReport) -> None:
    progressed.tokens += report.tokens
    if report.loss is not None:
        progressed.losses.append(report.loss)
    if report.gradient_norm is not None:
        progressed.gradient_norm = report.gradient_norm


def _add_point(progressed: Progressed, report: StepReport, measured: dict[str, float]) -> None:
    """A row of the curve: the mean training loss since the last row, and the held-out loss now."""
    point = {"step": report.step, "tokens": progressed.tokens, "seconds": round(progressed.seconds, 3)}
    if progressed.losses:
        point["loss"] = float(np.mean(progressed.losses))
        progressed.losses = progressed.losses[-1:] if report.loss is None else []
    if measured:
        point["heldout"] = measured["loss"]
    progressed.curve.append({**point, "rate": report.rate, "gradient_norm": progressed.gradient_norm})


def _due(report: StepReport, overdue: bool, world: World) -> bool:
    """Whether to write a checkpoint now; rank 0's clock decides for all. Only where the loss is known to be finite."""
    if report.loss is None:
        return False
    if world.size == 1:
        return overdue
    return report.step % AGREE_EVERY == 0 and world.broadcast(overdue)


def _save(checkpoints: CheckpointStore, state: TrainingState, progressed: Progressed, world: World) -> None:
    """Rank 0 writes; if it cannot, every worker learns of it and stops."""
    tensors = state.tensors(world)
    failure = None
    if world.is_main:
        try:
            checkpoints.save(state.step, tensors, {"state": state.numbers(), "progressed": vars(progressed)})
        except TrainingError as error:
            failure = str(error)
    if failure := world.broadcast(failure):
        raise TrainingError(failure)


def _start_from_vectors(run: LanguageModelRun, model: LanguageModel) -> None:
    """Start the embeddings that nothing is known about from vectors of the run's text."""
    table = model.piece_embedding()
    if table is None:
        return
    known = None
    if run.parent is not None:
        known = overlap(load_encoder(run.parent).tokenizer.pieces, load_tokenizer(run.tokenizer).pieces) >= 0
    store = TokenStore(run.tokens, "train")
    vectors = cooccurrence_vectors(store, vocabulary=table.shape[0], width=table.shape[1])
    start_embeddings(table, vectors.to(table.device), known=known)


def start_model(run: LanguageModelRun) -> LanguageModel:
    """The model before the first step: random from the run's seed, or the parent's weights for this vocabulary."""
    model = _fresh_model(run) if run.parent is None else _parent_model(run, run.parent)
    model.set_dropout(run.training.dropout)
    return model


def _fresh_model(run: LanguageModelRun) -> LanguageModel:
    tokenizer = load_tokenizer(run.tokenizer)
    torch.manual_seed(counter_seed(run.seed, "weights"))
    model = build_model(
        run.family,
        vocabulary=tokenizer.vocab_size,
        preset=run.preset,
        settings=run.model,
        tokenizer=tokenizer.kind,
    )
    model.bind(tokenizer)
    model.set_output_bias(torch.from_numpy(tokenizer.log_frequencies()))
    return model


def _parent_model(run: LanguageModelRun, parent: Path) -> LanguageModel:
    tokenizer = load_tokenizer(run.tokenizer)
    encoder = load_encoder(parent)
    if encoder.tokenizer.fingerprint() != tokenizer.fingerprint():
        encoder.model.remap_vocabulary(torch.from_numpy(overlap(encoder.tokenizer.pieces, tokenizer.pieces)))
        encoder.model.bind(tokenizer)
        # New pieces have no frequency yet, and shared ones that of the other corpus.
        encoder.model.set_output_bias(torch.from_numpy(tokenizer.log_frequencies()))
    return encoder.model
