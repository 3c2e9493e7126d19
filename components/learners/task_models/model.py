"""An encoder with a task's head: the model of fine-tuning and serving.

Shapes: B rows of a batch, F features, X labels of a row (padding included).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.data.tasks.data import Answer
from components.learners.task_models.base import Encoded, Task, refuse_settings
from components.learners.task_models.heads import TextHead
from components.learners.task_models.inputs import WindowPooling, states_of_pieces, states_of_windows
from components.learners.task_models.pooling import Features
from components.learners.task_models.sampler import collate, longest, sequences
from components.models.base import Batch, Carry, LanguageModel, Losses, count_tensor
from components.models.layers.host import both, on_host, to_device
from components.settings.finetune import FinetuneSettings
from components.tokenization.special import UNK

#: Maximum number of pieces of a batch in prediction, padding included; the activations fit the cache of a core.
PREDICT_PIECES = 4096
#: Maximum number of pieces of a group of sequences in training (`states_by_length`).
GROUP_PIECES = 3072
#: Windows of a row in a training step of kinds that read windows apart: one with the answer, the others sampled.
WINDOWS_LEARNED = 8
#: Maximum share of padding in a batch.
PADDING = 0.04

Result = TypeVar("Result")
#: (B, F) inputs of the head and (B, X) targets of the rows -> loss.
VectorLoss = Callable[[Tensor, Tensor], Tensor]


class TaskModel(nn.Module):
    """Encoder, features and head.

    Raises:
        ConfigError: the settings do not suit the kind or the encoder.
    """

    def __init__(
        self, encoder: LanguageModel, *, task: Task, settings: FinetuneSettings, labels: Sequence[str]
    ) -> None:
        super().__init__()
        if (problem := refuse_settings(task, settings)) is not None:
            raise ConfigError(problem)
        self.encoder, self.task, self.settings, self.labels = encoder, task, settings, list(labels)
        self.of_units = task.reads == "units"
        #: Combines the vectors of a row's sequences before the head; None: the head reads each sequence.
        self.combine = task.combine(settings, encoder)
        if isinstance(self.combine, WindowPooling) and settings.layers == "mix":
            raise ConfigError("layers: mix reads a text as one sequence; remove chunk, or choose other layers")
        self.lm_weight = settings.lm_weight
        #: Maximum number of windows of a row in a training step; None: all.
        self.windows_learned = WINDOWS_LEARNED if task.windows_apart else None
        if settings.chunk is not None and encoder.carries_state:
            encoder.set_chunks(settings.chunk, learned=settings.chunks_learned)
        if settings.own_task_tokens:
            encoder.add_task_tokens()
        hidden, length = states_of_pieces([UNK], encoder)
        table = encoder.static_vectors()
        with torch.no_grad():
            self.features = Features(
                layers=settings.layers,
                pooling=settings.pooling,
                unit_length=settings.unit_length,
                widths=[layer.shape[-1] for layer in hidden],
                summary=encoder.summary,
                unit_states=encoder.unit_states,
                trained=encoder.vectors_of,
                static=0 if table is None else table.shape[1],
            )
            if self.of_units:
                kept = self.features.of_units(hidden, length.new_zeros(1, 1, 2))
            else:
                kept = self.features.pooled(hidden, length)
            vectors = self.features.mixed(kept)
            if self.combine is not None:
                vectors = self.combine(vectors.expand(2, -1), length.new_zeros(2))
        width = vectors.shape[-1]
        self.head = task.head(settings, width, labels)
        if isinstance(self.head, TextHead):
            blocks = self.features.block_widths(hidden, units=self.of_units)
            # The parts of a pair have the blocks of a text each.
            self.head.set_blocks(blocks * (width // sum(blocks)))
        #: Width of the vectors of `kept`.
        self.width = (kept if self.features.mix is not None else vectors).shape[-1]

    @property
    def keeps_rows(self) -> bool:
        """Whether `kept` returns one vector per row instead of per sequence."""
        return self.combine is not None and self.features.mix is None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def kept(self, batch: Batch) -> Tensor:
        """Frozen-encoder features of a batch, independent of trained parameters above the encoder: (S, F) or (S, U, F);
        (B, F) if the sequences of a row are combined without parameters."""
        count, size = len(batch["tokens"]), max(1, PREDICT_PIECES // batch["tokens"].shape[1])
        if not self.of_units or torch.is_grad_enabled() or count <= size:
            return self._kept(self._states(batch), batch)
        # The windows of one row may exceed the size of a batch.
        names: list[str] = [name for name in ("tokens", "lengths", "segments", "units", "rows") if name in batch]
        result = []
        for start in range(0, count, size):
            part = {name: both(itemgetter(slice(start, start + size)), batch[name]) for name in names}
            result.append(self._kept(self._states(part), part))
        return torch.cat(result)

    def above(self, kept: Tensor, rows: Tensor) -> Tensor:
        """Inputs of the head from `kept` of a batch and its `rows`: layers are mixed and a row's sequences combined."""
        if self.features.mix is None:
            return kept
        vectors = self.features.mixed(kept)
        return vectors if self.combine is None else self.combine(vectors, rows)

    def vectors(self, batch: Batch) -> Tensor:
        """Inputs of the head for a batch: (S, F), (B, F) if a row's sequences are combined, or (S, U, F)."""
        return self.above(self.kept(batch), batch["rows"])

    def _states(self, batch: Batch) -> list[Tensor]:
        if isinstance(self.combine, WindowPooling):
            return states_of_windows(self.encoder, batch, learned=self.combine.learned)
        return states_by_length(self.encoder, batch)

    def _kept(self, hidden: list[Tensor], batch: Batch) -> Tensor:
        if self.of_units:
            return self.features.of_units(hidden, batch["units"])
        pooled = self.features.pooled(hidden, batch["lengths"])
        return self.of_rows(pooled, batch["rows"], batch["lengths"]) if self.keeps_rows else pooled

    def of_rows(self, vectors: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
        """(S, F) vectors of sequences, (S,) their rows and lengths -> (B, F); only if the sequences are combined."""
        assert self.combine is not None
        if isinstance(self.combine, WindowPooling):
            return self.combine(vectors, rows, lengths)
        return self.combine(vectors, rows)

    def forward(self, batch: Batch) -> Tensor:
        return self.outputs(self.vectors(batch), batch)

    def outputs(self, vectors: Tensor, batch: Batch) -> Tensor:
        return self.head.of_batch(vectors, batch) if self.of_units else self.head(vectors)

    def losses(self, batch: Batch, carry: Carry = (), *, loss_of: VectorLoss | None = None) -> Losses:
        """Loss on labelled rows (of the head, or `loss_of` its inputs), plus lm_weight * mean negative log-likelihood
        per piece, plus activation_penalty * the encoder's activation regularisation."""
        hidden = self._states(batch)
        vectors = self.above(self._kept(hidden, batch), batch["rows"])
        if loss_of is None:
            loss = self.head.loss(self.outputs(vectors, batch), batch)
        else:
            loss = loss_of(vectors, batch["targets"])
        count = count_tensor(len(batch["targets"]), loss)
        sums = {"rows": (loss.detach() * count, count)}
        if self.lm_weight:
            total, pieces = self.encoder.text_loss(batch, hidden)
            loss = loss + self.lm_weight * total / pieces.clamp(min=1)
            sums["tokens"] = (total.detach(), pieces)
        if self.settings.activation_penalty:
            loss = loss + self.settings.activation_penalty * self.encoder.activation_penalty(hidden, batch["lengths"])
        return Losses(loss, sums)

    def own_parameters(self, *, head: bool = True) -> list[nn.Parameter]:
        """Trained parameters of the mixture of layers, the head, and the language model's output."""
        ours = [*self.features.parameters(), *(self.head.parameters() if head else ())]
        if self.lm_weight:
            inside = {id(parameter) for group in self.encoder.layer_groups() for parameter in group}
            ours += [parameter for parameter in self.encoder.parameters() if id(parameter) not in inside]
        return ours


def batches_by_length(
    lengths: NDArray[np.int64], counts: NDArray[np.int64], budget: int = PREDICT_PIECES
) -> Iterator[NDArray[np.int64]]:
    """Row indices in batches of similar length, the shortest first; every row once.

    A batch has at most `budget` pieces, padding included. Above a quarter of the budget, it ends before a row that
    would raise the share of padding above `PADDING`."""
    order = np.argsort(lengths, kind="stable")
    start = held = real = 0
    for end, (length, count) in enumerate(zip(lengths[order].tolist(), counts[order].tolist(), strict=True)):
        size = (held + count) * length
        padded = held * length > budget / 4 and real + count * length < (1 - PADDING) * size
        if end > start and (size > budget or padded):
            yield order[start:end]
            start, held, real = end, 0, 0
        held, real = held + count, real + count * length
    if start < len(order):
        yield order[start:]


def states_by_length(encoder: LanguageModel, batch: Batch) -> list[Tensor]:
    """`hidden_states` of a batch, by Transformers on a CPU in groups of similar length that fit the cache."""
    tokens, lengths, segments = batch["tokens"], batch["lengths"], batch.get("segments")
    # In prediction, batches with one sequence per row already have similar lengths.
    grouped = not torch.is_grad_enabled() and bool((on_host(batch["rows"]).diff() > 0).all())
    if grouped or tokens.is_cuda or encoder.attention == "none":
        return encoder.hidden_states(tokens, lengths, segments)
    numbers = lengths.numpy()
    groups = [torch.from_numpy(group) for group in batches_by_length(numbers, np.ones_like(numbers), GROUP_PIECES)]
    result = []
    for group in groups:
        end = int(lengths[group].max())
        states = encoder.hidden_states(
            tokens[group, :end], lengths[group], None if segments is None else segments[group, :end]
        )
        result.append([nn.functional.pad(layer, (0, 0, 0, tokens.shape[1] - end)) for layer in states])
    order = torch.cat(groups).argsort()
    return [torch.cat(parts)[order] for parts in zip(*result, strict=True)]


def run_over(
    function: Callable[[Batch], Sequence[Result]],
    model: nn.Module,
    encoded: Sequence[Encoded],
    *,
    precision: str = "float32",
) -> list[Result]:
    """Apply a function to all rows in evaluation mode, batch by batch; returns N results in the order of the rows."""
    device = next(model.parameters()).device
    results: dict[int, Result] = {}
    with predicting(model, precision=precision):
        for rows in batches_by_length(longest(encoded), sequences(encoded)):
            batch = collate([encoded[row] for row in rows])
            result = function(to_device(batch, device))
            results |= zip(rows.tolist(), result, strict=True)
    return [results[row] for row in range(len(encoded))]


@contextmanager
def predicting(model: nn.Module, *, precision: str = "float32") -> Iterator[None]:
    """Evaluation mode without gradients, in `float32` or `bf16`; the mode of each module is restored afterwards."""
    with evaluating(model), computing(precision, next(model.parameters()).device):
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    # `eval()` visits every module, which for one text takes as long as a layer.
    """Evaluation mode; the mode of each module is restored afterwards."""
    learning = [part for part in model.modules() if part.training]
    for part in learning:
        part.training = False
    try:
        yield
    finally:
        for part in learning:
            part.training = True


@contextmanager
def computing(precision: str, device: torch.device) -> Iterator[None]:
    """A block that computes without gradients, in `float32` or `bf16`, in this thread."""
    with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield


def answers(
    model: TaskModel,
    encoded: Sequence[Encoded],
    *,
    answer: Callable[[Tensor, Batch], list[Answer]] | None = None,
    precision: str = "float32",
) -> list[Answer]:
    """The model's answers to N rows; `answer` computes them from the head's outputs, None: `Head.answers`."""
    of_outputs = answer or model.head.answers
    return run_over(lambda batch: of_outputs(model(batch), batch), model, encoded, precision=precision)


def cloned_state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
