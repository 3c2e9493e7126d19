"""An encoder with a task's head: the model of fine-tuning and serving.

Shapes: B rows of a batch, S sequences, F features, X labels of a row (padding included).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, refuse_settings
from components.learners.task_models.heads import FixedNorm
from components.learners.task_models.inputs import WindowPooling
from components.learners.task_models.pooling import Features
from components.learners.task_models.sampler import collate
from components.models.base import Batch, Carry, LanguageModel, Losses
from components.models.layers.host import move, on_host, to_device
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

#: Maximum number of pieces of a batch in prediction, padding included.
PREDICT_PIECES = 4096
#: Maximum number of pieces of a group of sequences in training (`TaskModel.states`); they fit the cache of a core.
GROUP_PIECES = 3072
#: Windows of a row in a training step of kinds that read windows apart: one with the answer, the others sampled.
WINDOWS_LEARNED = 8
#: Maximum share of padding in a batch.
PADDING = 0.04

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
        batch = to_device(collate([Encoded.of_texts([encoder.special_tokens([UNK])] * 2)]), self.device)
        with torch.no_grad():
            hidden = encoder.hidden_states(batch["tokens"], batch["lengths"])
            self.features = Features(encoder, settings, widths=[layer.shape[-1] for layer in hidden])
            if isinstance(self.combine, WindowPooling):
                self.combine.width = hidden[-1].shape[-1]
            kept = self._kept(hidden, batch)
            width = self.above(kept, batch["rows"]).shape[-1]
        self.head = task.head(settings, width, labels)
        if isinstance(norm := self.head.norm, FixedNorm):
            blocks = self.features.block_widths(hidden, units=self.of_units)
            # The parts of a pair have the blocks of a text each.
            norm.blocks = blocks * (width // sum(blocks))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def encode(self, rows: Sequence[Fields], tokenizer: Tokenizer) -> list[Encoded]:
        """N rows as piece ids."""
        return self.task.encode(rows, tokenizer, self.encoder, self.settings)

    def above(self, kept: Tensor, rows: Tensor) -> Tensor:
        """Inputs of the head from the features of a frozen encoder, (S, F), (S, U, F) or (B, F), and the `rows` of the
        sequences: layers are mixed and a row's sequences combined."""
        if self.features.mix is None:
            return kept
        vectors = self.features.mixed(kept)
        return vectors if self.combine is None else self.combine(vectors, rows, None)

    def vectors(self, batch: Batch, hidden: list[Tensor] | None = None) -> Tensor:
        """Inputs of the head for a batch: (S, F), (B, F) if a row's sequences are combined, or (S, U, F). `hidden`: its
        `states`, if they are known."""
        kept = batch.get("features")
        if kept is None:
            kept = self._kept(hidden or self.states(batch), batch)
        return self.above(kept, batch["rows"])

    def states(self, batch: Batch) -> list[Tensor]:
        """`hidden_states` of a batch, by Transformers on a CPU in groups of similar length that fit the cache. Of
        windows of long texts, only the last `chunks_learned` of each row receive gradients."""
        tokens, segments, rows = batch["tokens"], batch.get("segments"), on_host(batch["rows"])
        lengths, learns = on_host(batch["lengths"]).numpy(), np.ones(len(rows), dtype=bool)
        if isinstance(self.combine, WindowPooling) and torch.is_grad_enabled():
            learns = (rows.bincount().cumsum(0)[rows] - torch.arange(len(rows)) <= self.combine.learned).numpy()
        parts = [part for part in (np.flatnonzero(~learns), np.flatnonzero(learns)) if len(part)]
        if not tokens.is_cuda and self.encoder.attention != "none":
            sizes = np.ones_like(lengths)
            parts = [part[of] for part in parts for of in batches_by_length(lengths[part], sizes[part], GROUP_PIECES)]
        elif len(parts) == 1:
            return self.encoder.hidden_states(tokens, batch["lengths"], segments)
        result = []
        for part in parts:
            index, end = move(torch.from_numpy(part), tokens.device), int(lengths[part].max())
            given = None if segments is None else segments[index, :end]
            with torch.set_grad_enabled(torch.is_grad_enabled() and bool(learns[part[0]])):
                of = move(torch.from_numpy(lengths[part]), tokens.device)
                states = self.encoder.hidden_states(tokens[index, :end], of, given)
            result.append([nn.functional.pad(layer, (0, 0, 0, tokens.shape[1] - end)) for layer in states])
        order = move(torch.from_numpy(np.concatenate(parts)).argsort(), tokens.device)
        return [torch.cat(layers)[order] for layers in zip(*result, strict=True)]

    def _kept(self, hidden: list[Tensor], batch: Batch) -> Tensor:
        if self.of_units:
            return self.features.of_units(hidden, batch["units"])
        pooled = self.features.pooled(hidden, batch["lengths"])
        if self.combine is None or self.features.mix is not None:
            return pooled
        return self.combine(pooled, batch["rows"], batch["lengths"])

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.vectors(batch), batch)

    def loss(self, batch: Batch, *, loss_of: VectorLoss | None = None) -> Tensor:
        """Loss on labelled rows (of the head, or `loss_of` its inputs), plus lm_weight * mean negative log-likelihood
        per piece, plus activation_penalty * the encoder's activation regularisation."""
        hidden = [] if "features" in batch else self.states(batch)
        vectors = self.vectors(batch, hidden)
        if loss_of is None:
            loss = self.head.loss(self.head(vectors, batch), batch)
        else:
            loss = loss_of(vectors, batch["targets"])
        if self.lm_weight and hidden:
            total, pieces = self.encoder.text_loss(batch, hidden)
            loss = loss + self.lm_weight * total / pieces.clamp(min=1)
        if self.settings.activation_penalty and hidden:
            loss = loss + self.settings.activation_penalty * self.encoder.activation_penalty(hidden, batch["lengths"])
        return loss

    def own_parameters(self, *, head: bool = True) -> list[nn.Parameter]:
        """Trained parameters of the mixture of layers, the head, and the language model's output."""
        ours = [*self.features.parameters(), *(self.head.parameters() if head else ())]
        if self.lm_weight:
            inside = {id(parameter) for group in self.encoder.layer_groups() for parameter in group}
            ours += [parameter for parameter in self.encoder.parameters() if id(parameter) not in inside]
        return ours


class Objective(nn.Module):
    """Modules with a loss of a batch."""

    def __init__(self, modules: Iterable[nn.Module], loss: Callable[[Batch], Tensor]) -> None:
        super().__init__()
        self.parts, self._loss = nn.ModuleList(modules), loss
        # The training loop checks the mode of the top module only.
        self.eval()

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The loss of a batch."""
        return Losses(self._loss(batch), {})


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
