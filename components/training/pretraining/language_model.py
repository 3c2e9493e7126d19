"""Worker side of pretraining and adaptation. Workers resume from the newest checkpoint and store the complete result in
the last one, so they may be killed at any time and share no file system with the stage but the checkpoints."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from components.cluster.distributed import Worker, World
from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.models.encoder import build_model, load_encoder
from components.models.static import StaticVectors
from components.settings.section import Section
from components.settings.training import LanguageModelTraining
from components.tokenization import Tokenizer, load_tokenizer, overlap
from components.tokenization.store import TokenStore
from components.training.checkpoint import CheckpointStore, Saver
from components.training.loop import StepReport, TrainingState, is_compiled, train
from components.training.optim import ParameterGroup, decayed, discriminative, non_monotone
from components.training.precision import Precision, choose, computing, product_size
from components.training.pretraining.increments import IncrementText
from components.training.pretraining.perplexity import heldout_sampler, measure
from components.training.pretraining.samplers import Sampler, Tokens, training_sampler
from components.training.pretraining.word_vectors import (
    Matched,
    TextVectors,
    fill_channel,
    initialise_embeddings,
    prepare_vectors,
    start_from_vectors,
)
from components.training.rng import counter_seed

#: Number of rows of the training curve, all of which have a held-out loss if `training.heldout` is at least
#: CURVE_MEASURED; and of pieces over which each is measured.
CURVE_POINTS = 20
CURVE_MEASURED = 16_384
CURVE_PIECES = 2048
#: Measurement of the speed for a budget in seconds: maximum fraction of the budget, maximum number of steps, and number
#: of warm-up steps, which are not counted.
MEASURED_SHARE = 0.03
MEASURED_STEPS = 200
WARM_UP_STEPS = 3
#: With several workers: interval, in steps, at which they agree on whether a checkpoint is due.
AGREE_EVERY = 10


class LanguageModelRun(Section):
    """A training run: everything that determines its result, and the location of its checkpoints.

    Attributes:
        family, preset, model: family, and sizes of a new model; with a `parent`, its sizes are used.
        parent: encoder directory with the initial weights; its embeddings are re-mapped to the pieces of `tokenizer`.
        vectors_file, vectors_digest: a file of word vectors, which fills the static channel, or from which the
            embeddings of a new model without channel start; and its expected SHA-256.
        vectors: output of `word_vectors.prepare_vectors` for the file; set by `vectors_ready`.
        increment: the part of the train split that is read; None: all of it.
        storage, key, checkpoint_seconds: of the checkpoints; set by `train_encoder`.
    """

    name: str
    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    parent: Path | None = None
    vectors_file: Path | None = None
    vectors_digest: str | None = None
    vectors: Path | None = None
    tokens: Path
    tokenizer: Path
    increment: IncrementText | None = None
    training: LanguageModelTraining
    seed: int = 0
    code: str = ""
    storage: str = ""
    key: str = ""
    checkpoint_seconds: float = 60

    @property
    def step_tokens(self) -> int:
        return self.training.batch_size * self.training.window

    @property
    def steps(self) -> int | None:
        """Number of steps of the token budget, at most `training.passes` passes; None if the budget is in seconds."""
        tokens = self.training.tokens
        return None if tokens is None else self.within_passes(max(1, round(tokens / self.step_tokens)))

    def within_passes(self, steps: int) -> int:
        """The smaller of a number of steps and the number of steps of `training.passes` over the text."""
        if self.training.passes is None:
            return steps
        return min(steps, max(1, round(self.training.passes * self.text().tokens / self.step_tokens)))

    def text(self) -> Tokens:
        store = TokenStore(self.tokens, "train")
        return store if self.increment is None else self.increment.select(store, seed=self.seed)


@dataclass
class TrainingHistory:
    """Record of a run so far, stored in every checkpoint.

    Attributes:
        compilation: seconds of the first step of every start of a compiled run, which are not part of `seconds`.
        gradient_norm: the last one that was read, before clipping.
        losses: training losses that were read since the last row of the curve.
        before, after: measurements on held-out text before and after training.
    """

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    workers: int = 1
    compilation: float = 0.0
    gradient_norm: float = 0.0
    losses: list[float] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


def work(run: LanguageModelRun, worker: Worker) -> None:
    """Training function of a worker: from the newest checkpoint to the last one, which holds the result."""
    world = worker.world
    model = initial_model(run).to(world.device)
    settings = run.training
    tokenizer = load_tokenizer(run.tokenizer)
    sampler = training_sampler(
        run.family, run.text(), model=model, settings=settings, pieces=tokenizer.pieces, seed=run.seed
    )
    heldout = _Heldout(run, model, tokenizer, world)
    checkpoints = CheckpointStore(run.storage, key=run.key)
    saver = Saver(checkpoints, world)
    checkpoint = checkpoints.latest_for_all(world)
    if checkpoint is None:
        before_training(run, model)
        size = product_size(model)
        precision = world.broadcast(choose(settings.precision, device=world.device, size=size))
        state = _fresh_state(model, settings, precision)
        steps = run.steps or world.broadcast(_steps_in_time(run, sampler, precision, world))
        history = TrainingHistory(steps=steps, before=heldout.measure(state, pieces=settings.heldout, scored=True))
        # Stores the precision and the number of steps, so that a resumed run keeps them, even on another machine.
        saver.save(state, {"progressed": vars(history)})
    else:
        state = _fresh_state(model, settings, "float32")
        state.restore(checkpoint.tensors, checkpoint.numbers["state"], world=world)
        history = TrainingHistory(**checkpoint.numbers["progressed"])
    history.workers = world.size
    with closing(saver):
        _train(run, state, sampler, heldout, saver, history, worker)


def _train(
    run: LanguageModelRun,
    state: TrainingState,
    sampler: Sampler,
    heldout: _Heldout,
    saver: Saver,
    history: TrainingHistory,
    worker: Worker,
) -> None:
    world, total = worker.world, history.steps
    compiled = is_compiled(state.model, sampler, settings=run.training, steps=run.steps, device=world.device)
    first = state.step + 1
    every = max(1, CURVE_MEASURED // run.training.heldout)
    saved = clock = time.perf_counter()
    for report in train(
        state, sampler, settings=run.training, total_steps=total, seed=run.seed, world=world, compiled=compiled
    ):
        now = time.perf_counter()
        if compiled and report.step == first:
            history.compilation += now - clock
        else:
            history.seconds += now - clock
        history.tokens += report.tokens
        if report.loss is not None and report.gradient_norm is not None:
            history.losses.append(report.loss)
            history.gradient_norm = report.gradient_norm
        last = report.step == total
        if report.step * CURVE_POINTS // total > (report.step - 1) * CURVE_POINTS // total:
            measured = len(history.curve) % every == every - 1
            _add_point(history, report, heldout.measure(state, pieces=CURVE_PIECES) if measured else {})
            if state.average is not None and state.average.begins is None:
                losses = [point["heldout"] for point in history.curve if "heldout" in point]
                if non_monotone(losses):
                    state.average.begin(report.step)
        if last:
            history.after = heldout.measure(state, pieces=run.training.heldout, scored=True)
        if last or _due(report, now - saved > run.checkpoint_seconds, world):
            saver.save(state, {"progressed": vars(history)})
            saved = time.perf_counter()
        worker.publish(_numbers(history, report))
        clock = time.perf_counter()
    saver.wait()


def _numbers(history: TrainingHistory, report: StepReport) -> dict[str, float]:
    """The numbers that rank 0 publishes after a step; `heldout` is the last held-out loss, of `heldout_step`."""
    numbers = {
        "step": float(report.step),
        "steps": float(history.steps),
        "share": report.step / history.steps,
        "tokens": float(history.tokens),
        "seconds": history.seconds,
        "rate": report.rate,
        "gradient_norm": history.gradient_norm,
    }
    # A row of the curve takes the losses; its mean is then the latest.
    loss = history.losses[-1] if history.losses else (history.curve or [{}])[-1].get("loss")
    if loss is not None:
        numbers["loss"] = loss
    if measured := next((point for point in reversed(history.curve) if "heldout" in point), None):
        numbers |= {"heldout": measured["heldout"], "heldout_step": measured["step"]}
    return numbers


def parameter_groups(model: LanguageModel, settings: LanguageModelTraining) -> list[ParameterGroup]:
    """All parameters, with the discriminative learning rates of the settings (Howard and Ruder 2018, section 3.2).

    The top layer has the full rate. So have the embeddings, because they are also the output layer in most families,
    and what belongs to no layer (as in fastai's `awd_lstm_lm_split`).
    """
    if settings.discriminative == 1:
        return decayed(model.parameters())
    _, *layers = model.layer_groups()
    inside = {id(parameter) for layer in layers for parameter in layer}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in inside]
    return discriminative(layers, head=rest, factor=settings.discriminative, unfreezing="none")


def _fresh_state(model: LanguageModel, settings: LanguageModelTraining, precision: Precision) -> TrainingState:
    return TrainingState.fresh(model, parameter_groups(model, settings), settings=settings, precision=precision)


def _steps_in_time(run: LanguageModelRun, sampler: Sampler, precision: Precision, world: World) -> int:
    """Number of steps of a budget in seconds, from the median time of some steps of a separate model.

    `training.seconds` is the only setting whose result depends on time. The number is stored in the first checkpoint.
    """
    settings = run.training
    assert settings.seconds is not None
    model = initial_model(run).to(world.device)
    state = _fresh_state(model, settings, precision)
    times: list[float] = []
    clock = began = time.perf_counter()
    for report in train(
        state,
        sampler,
        settings=settings,
        total_steps=MEASURED_STEPS,
        seed=run.seed,
        world=world,
        compiled=is_compiled(model, sampler, settings=settings, steps=run.steps, device=world.device),
    ):
        if world.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        times.append(now - clock)
        clock = now
        if report.step == WARM_UP_STEPS:
            # Compilation may take longer than the whole measurement.
            began = now
        # Workers exchange gradients in every step, so all must take the same number of steps.
        if world.broadcast(len(times) > WARM_UP_STEPS and now - began > MEASURED_SHARE * settings.seconds):
            break
    return run.within_passes(max(1, round(settings.seconds / float(np.median(times[WARM_UP_STEPS:] or times)))))


class _Heldout:
    def __init__(self, run: LanguageModelRun, model: LanguageModel, tokenizer: Tokenizer, world: World) -> None:
        self.run, self.tokenizer, self.world = run, tokenizer, world
        self.store = TokenStore(run.tokens, "heldout")
        self.sampler = heldout_sampler(
            run.family,
            self.store,
            config=model.config,
            pieces=tokenizer.pieces,
            batch_size=run.training.batch_size,
            window=run.training.window,
            workers=world.size,
        )

    def measure(self, state: TrainingState, *, pieces: int, scored: bool = False) -> dict[str, float]:
        """Perplexity with the (averaged) weights, and with `scored` further scores; empty with too little text."""
        if self.sampler is None:
            return {}
        model = state.model
        options: dict[str, Any] = {"pieces": pieces, "precision": state.precision, "world": self.world}
        assert isinstance(model, LanguageModel)
        if state.average is not None:
            state.average.swap()
        measured = measure(model, self.sampler, self.store, family=self.run.family, **options).named("")
        if scored:
            with computing(state.precision, self.world.device):
                measured |= self.sampler.scores(model, self.tokenizer)
        if state.average is not None:
            state.average.swap()
        return measured


def _add_point(history: TrainingHistory, report: StepReport, measured: dict[str, float]) -> None:
    """Add a row to the curve: the mean training loss since the previous row, and the current held-out loss (nats)."""
    point = {"step": report.step, "tokens": history.tokens, "seconds": round(history.seconds, 3)}
    if history.losses:
        point["loss"] = float(np.mean(history.losses))
        # The last loss is kept for the progress line if the current one has not been read.
        history.losses = history.losses[-1:] if report.loss is None else []
    if measured:
        point["heldout"] = measured["loss"]
    history.curve.append({**point, "rate": report.rate, "gradient_norm": history.gradient_norm})


def _due(report: StepReport, overdue: bool, world: World) -> bool:
    """Whether a checkpoint is due, by the clock of rank 0; never after a step whose loss is not read."""
    if report.loss is None:
        return False
    if world.size == 1:
        return overdue
    return report.step % AGREE_EVERY == 0 and world.broadcast(overdue)


@dataclass(frozen=True)
class VectorsFile:
    """A file of word vectors in a job.

    Attributes:
        digest: its SHA-256.
        matched: see `Matched`.
        ready: output of `prepare_vectors`.
    """

    digest: str
    matched: Matched
    ready: Path


@contextmanager
def vectors_ready(run: LanguageModelRun, model: LanguageModel) -> Iterator[VectorsFile | None]:
    """The file of word vectors of a run, prepared for a model in a temporary directory; None without a file.

    Raises:
        DataError, ArtifactError, ConfigError: as `prepare_vectors`; or a new model of characters has a static channel,
            but there is no file.
    """
    if run.vectors_file is None:
        if model.static_words() is not None and run.parent is None:
            raise ConfigError(f"{run.name}: model.static needs a file of words; set vectors")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "vectors"
        matched = prepare_vectors(
            run.vectors_file,
            load_tokenizer(run.tokenizer),
            digest=run.vectors_digest,
            output=ready,
            model=model,
            text=TokenStore(run.tokens, "train"),
        )
        yield VectorsFile(read_manifest(ready).facts["source"], matched, ready)


def before_training(run: LanguageModelRun, model: LanguageModel) -> None:
    """Set the embeddings and the static channel of `initial_model` to word vectors of a file or of the run's text. A
    file fills the channel of a model that has one, else the embeddings. An increment keeps the channel of the whole
    text."""
    table, channel, trained = model.piece_embedding(), model.static_vectors(), None
    rows = next((len(each) for each in (table, channel) if each is not None), 0)
    vectors = TextVectors(run.text(), vocabulary=rows)
    if table is not None and run.vectors is not None and channel is None:
        # Static vectors are the model; other models expect the scale that their layers are initialised for.
        trained = start_from_vectors(table, run.vectors, keep_scale=isinstance(model, StaticVectors))
    if table is not None and run.training.vectors:
        if run.parent is not None:
            trained = overlap(load_encoder(run.parent).tokenizer.pieces, load_tokenizer(run.tokenizer).pieces) >= 0
        initialise_embeddings(table, vectors.of(table.shape[1]), trained=trained)
    if channel is None:
        return
    if run.vectors is not None:
        fill_channel(model, run.vectors)
    elif model.static_words() is None and run.increment is None:
        channel.copy_(vectors.of(channel.shape[1]))


def initial_model(run: LanguageModelRun) -> LanguageModel:
    """The model before the first step: random weights, or the parent's with embeddings of the vocabulary."""
    tokenizer = load_tokenizer(run.tokenizer)
    if run.parent is None:
        torch.manual_seed(counter_seed(run.seed, "weights"))
        model = build_model(
            run.family, vocabulary=tokenizer.vocab_size, preset=run.preset, settings=run.model, tokenizer=tokenizer.kind
        )
        new = True
    else:
        parent = load_encoder(run.parent)
        model, new = parent.model, parent.tokenizer.fingerprint() != tokenizer.fingerprint()
        if new:
            model.remap_vocabulary(torch.from_numpy(overlap(parent.tokenizer.pieces, tokenizer.pieces)))
    if new:
        model.bind(tokenizer)
        # A parent's output bias has the frequencies of its own corpus.
        model.set_output_bias(torch.from_numpy(tokenizer.log_frequencies()))
    model.set_dropout(run.training.dropout)
    return model
