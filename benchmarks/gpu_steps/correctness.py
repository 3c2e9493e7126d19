"""Steps that check results: training of every family, parity with the CPU, resumed runs, calls that wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from components.cluster.distributed import World
from components.data.segmenters import Segmentation
from components.learners.task_models.base import Encoded
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import Objective, TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.models import FAMILIES
from components.models.base import Batch, LanguageModel
from components.models.encoder import build_model
from components.models.layers.host import to_device
from components.settings.finetune import FinetuneSettings
from components.settings.training import LanguageModelTraining, Training
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES
from components.tokenization.word import OpenWordTokenizer
from components.training.loop import READ_EVERY, StepReport, TrainingState, be_deterministic, train
from components.training.optim import decayed
from components.training.precision import Precision
from components.training.pretraining.samplers import WindowSampler, sampler_for

PIECES = [*SPECIAL_PIECES, *(f"w{number}" for number in range(200))]
WINDOW = 16
ROWS = 8


class CountingStore:
    """`TokenStore` of `documents` documents of `length` pieces that count upwards through the vocabulary from a random
    piece, so that the next one is predictable. The translation of a document is its first 3 to 6 pieces."""

    def __init__(self, vocabulary: int, documents: int = 200, length: int = 60) -> None:
        rng = np.random.default_rng(0)
        kinds = vocabulary - FIRST_ORDINARY
        self.texts = [
            np.append(FIRST_ORDINARY + (rng.integers(kinds) + np.arange(length)) % kinds, END) for _ in range(documents)
        ]
        self.stream = np.concatenate(self.texts).astype(np.int64)
        self.offsets = np.arange(documents + 1) * (length + 1)
        self.documents, self.tokens = documents, len(self.stream)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return self.stream[np.arange(start, start + length) % self.tokens]

    def another(self, document: int, chance: float) -> int:
        return (document + 1 + int(chance * (self.documents - 1))) % self.documents

    def sentence_starts(self, document: int) -> NDArray[np.int64]:
        return np.arange(0, self.offsets[1] - 1, 5)

    def document(self, index: int) -> NDArray[np.int64]:
        return self.texts[index]

    def target(self, index: int) -> NDArray[np.int64]:
        return np.append(self.texts[index][: 3 + index % 4], END)

    def pair_lengths(self) -> NDArray[np.int64]:
        return np.array([[len(self.document(index)), len(self.target(index))] for index in range(self.documents)])


def model_of(family: str, *, dropout: float = 1.0) -> LanguageModel:
    """The family's test model, with the same weights in every call.

    Args:
        dropout: factor of the dropout rates.
    """
    torch.manual_seed(0)
    model = build_model(family, vocabulary=len(PIECES), settings=FAMILIES[family].tiny)
    tokenizer = OpenWordTokenizer(PIECES, segmentation=Segmentation("none"), lowercase=True, strip_accents=True)
    model.bind(tokenizer)
    model.set_dropout(dropout)
    return model


def sampler_of(family: str, model: LanguageModel) -> WindowSampler:
    """Batches of `CountingStore` for a family."""
    return sampler_for(
        family,
        CountingStore(len(PIECES)),
        config=model.config,
        pieces=PIECES,
        batch_size=ROWS,
        window=WINDOW,
        seed=0,
        jitter=0,
    )


def settings_of(steps: int) -> LanguageModelTraining:
    """Settings of a short run."""
    return LanguageModelTraining(
        rate=0.01, batch_size=ROWS, window=WINDOW, window_jitter=0, tokens=steps * ROWS * WINDOW
    )


def state_of(model: LanguageModel, settings: LanguageModelTraining, precision: Precision) -> TrainingState:
    """The state before the first step."""
    return TrainingState.fresh(model, decayed(model.parameters()), settings=settings, precision=precision)


#: Largest relative difference of losses and gradient norms in float32: sums in another order.
TOLERANCE = 2e-4
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")
#: Families of the resumed runs: attention without memory, with memory, and a recurrent state.
RESUMED = ("bert", "gpt", "xlnet", "ulmfit")


def smoke(device: torch.device) -> dict[str, Any]:
    """Every family in both precisions learns one batch by heart; `loss`: before and after training."""
    steps = 2 * READ_EVERY
    models: dict[str, Any] = {}
    for family in FAMILIES:
        for precision in PRECISIONS:
            settings = settings_of(steps)
            model = model_of(family).to(device)
            sampler, state = sampler_of(family, model), state_of(model, settings, precision)
            batch = sampler.batch(0)
            sampler.batch = lambda *place, first=batch: first  # type: ignore[method-assign]
            before = _loss(model, batch, device)
            for _ in train(state, sampler, settings=settings, total_steps=steps, seed=0, world=World(device=device)):
                pass
            after = _loss(model, batch, device)
            models[f"{family} {precision}"] = {"ok": after < before, "loss": [before, after]}
    return {"ok": all(each["ok"] for each in models.values()), "models": models}


@torch.no_grad()
def _loss(model: LanguageModel, batch: Batch, device: torch.device) -> float:
    torch.manual_seed(0)
    return float(model.train().losses(to_device(batch, device)).loss)


def parity(device: torch.device) -> dict[str, Any]:
    """Loss and gradient norm of a batch in float32 without dropout, relative to the CPU."""
    be_deterministic(device)
    models: dict[str, Any] = {}
    for family in FAMILIES:
        expected = _measured(family, torch.device("cpu"), compiled=False)
        ways = {"eager": False} | ({"compiled": True} if model_of(family).compiles and device.type == "cuda" else {})
        result = {
            way: max(
                abs(value - wanted) / abs(wanted)
                for value, wanted in zip(_measured(family, device, compiled=compiled), expected, strict=True)
            )
            for way, compiled in ways.items()
        }
        models[family] = {"ok": max(result.values()) <= TOLERANCE, **result}
    return {"ok": all(each["ok"] for each in models.values()), "models": models}


def _measured(family: str, device: torch.device, *, compiled: bool) -> tuple[float, float]:
    """Loss and gradient norm of the first batch."""
    model = model_of(family, dropout=0.0).to(device).train()
    losses_of = torch.compile(model.losses) if compiled else model.losses
    batch = to_device(sampler_of(family, model).batch(0), device)
    loss = losses_of(batch).loss
    loss.backward()
    gradients = [part.grad for part in model.parameters() if part.grad is not None]
    dense = [grad.coalesce().values() if grad.is_sparse else grad for grad in gradients]
    return float(loss), float(nn.utils.get_total_norm(dense))


def resume(device: torch.device) -> dict[str, Any]:
    """Whether runs of 8 steps have the same bits with and without a stored state after 4."""
    models = {}
    for family in RESUMED:
        whole, broken = _weights(family, device, stops=[8]), _weights(family, device, stops=[4, 8])
        models[family] = all(torch.equal(each, other) for each, other in zip(whole, broken, strict=True))
    return {"ok": all(models.values()), "same_bits": models}


def _weights(family: str, device: torch.device, *, stops: list[int]) -> list[torch.Tensor]:
    """The weights after the last of the stops; at each of the others, training goes on from a stored state."""
    settings, world = settings_of(stops[-1]), World(device=device)
    model = model_of(family).to(device)
    state = state_of(model, settings, "bf16")
    for stop in stops:
        if state.step:
            tensors, numbers = state.tensors(world), state.numbers()
            model = model_of(family).to(device)
            state = state_of(model, settings, "bf16")
            state.restore(tensors, numbers, world=world)
        for report in train(
            state, sampler_of(family, model), settings=settings, total_steps=stops[-1], seed=0, world=world
        ):
            if report.step == stop:
                break
    return [parameter.detach().cpu() for parameter in model.parameters()]


def waits(device: torch.device) -> dict[str, Any]:
    """Calls that wait for the GPU: in a logging interval of pretraining, and in a step of fine-tuning a tagger."""
    settings = settings_of(2 * READ_EVERY)
    model = model_of("bert").to(device)
    reports = train(
        state_of(model, settings, "bf16"),
        sampler_of("bert", model),
        settings=settings,
        total_steps=2 * READ_EVERY,
        seed=0,
        world=World(device=device),
    )
    pretraining = _waits(reports, device)
    interval = sum(pretraining[READ_EVERY:])
    tagging = {kind: max(_waits(_tagging(kind, device), device)[2:]) for kind in ("linear", "bilstm_crf")}
    return {
        "ok": interval <= 2 and max(tagging.values()) <= 2,
        "pretraining_per_interval": interval,
        "tagging_per_step": tagging,
    }


def _waits(reports: Iterator[StepReport], device: torch.device) -> list[int]:
    counts = []
    with _noted_waits(device) as count:
        before = 0
        for _ in reports:
            counts.append(count() - before)
            before = count()
    return counts


@contextmanager
def _noted_waits(device: torch.device) -> Iterator[Callable[[], int]]:
    """A block whose waiting calls torch counts, as warnings; on the CPU there are none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield lambda: sum("synchroniz" in str(warning.message) for warning in caught)
        finally:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")


def _tagging(tagger: Literal["linear", "bilstm_crf"], device: torch.device) -> Iterator[StepReport]:
    """Fine-tuning steps of a tagger on random texts of different lengths."""
    labels = ["O", "B-a", "I-a"]
    training = Training(rate=0.01, batch_size=8, precision="bf16")
    settings = FinetuneSettings(training=training, tagger=tagger, layers="last")
    torch.manual_seed(0)
    encoder = build_model("bert", vocabulary=len(PIECES), settings=FAMILIES["bert"].tiny)
    model = TaskModel(encoder, task=find_task("tagging"), settings=settings, labels=labels).to(device).eval()
    rng = np.random.default_rng(0)
    encoded, targets = [], []
    for length in rng.integers(4, 20, 64):
        pieces = encoder.special_tokens((FIRST_ORDINARY + rng.integers(0, 100, length)).tolist())
        places = np.arange(1, 1 + length, dtype=np.int64)
        units, none = np.stack([places, places], 1), np.zeros((0, 2), dtype=np.int64)
        sequence = np.asarray(pieces, dtype=np.int64)
        encoded.append(Encoded([sequence], [np.zeros_like(sequence)], [units], [none]))
        targets.append(rng.integers(0, 2, length).astype(np.float64))
    sampler = ExampleSampler(encoded, targets, batch_size=8, seed=0)
    task = Objective([model], model.loss)
    state = TrainingState.fresh(task, decayed(task.parameters()), settings=training, precision="bf16")
    return train(state, sampler, settings=training, total_steps=12, seed=0, world=World(device=device))
