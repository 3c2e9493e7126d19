"""Networks between the states of an encoder and the head of a task that reads texts: biLSTM, and convolutions.

Over word vectors these are the task models that transfer by static vectors was measured with: random, frozen or tuned
vectors below an LSTM or a convolutional network (Kim 2014, Convolutional Neural Networks for Sentence Classification:
CNN-rand, CNN-static, CNN-non-static).

Shapes: S sequences, U pieces, F features of a piece, G features of a sequence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Combine
from components.task_models.biattentive import Biattention, Maxout
from components.task_models.heads import Head, ImitatingHead, TextHead
from components.task_models.inputs import compared, likened
from components.task_models.norms import FixedNorm
from components.task_models.pooling import lead_mean, mask, masked_max, masked_mean
from components.task_models.taggers import BiLSTM


class Reader(nn.Module):
    """(S, U, F) states and (S,) lengths -> (S, G).

    Attributes:
        width: G.
    """

    width: int

    @abstractmethod
    def forward(self, x_SUF: Tensor, lengths: Tensor) -> Tensor:
        """The vector of each sequence; its states are 0 at padding."""


class BiLSTMReader(Reader):
    """A biLSTM, pooled as `pooling` says; `summary` is [last forward output; first backward output].

    Args:
        inputs: F.
        hidden: width of each direction.
        pooling: of the outputs; `concat` is [summary, max, mean].
        dropout: rate at the inputs.
    """

    def __init__(self, inputs: int, hidden: int, *, pooling: str, dropout: float) -> None:
        super().__init__()
        self.lstm = BiLSTM(inputs, hidden)
        self.dropout = nn.Dropout(dropout)
        self.names = ("summary", "max", "mean") if pooling == "concat" else (pooling,)
        self.width = 2 * hidden * len(self.names)

    def forward(self, x_SUF: Tensor, lengths: Tensor) -> Tensor:
        out_SUH = self.lstm(self.dropout(x_SUF), lengths)
        pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "summary": _ends,
            "max": masked_max,
            "mean": masked_mean,
            "lead": lead_mean,
        }
        return torch.cat([pools[name](out_SUH, lengths).float() for name in self.names], dim=1)


def _ends(out_SUH: Tensor, lengths: Tensor) -> Tensor:
    """The states of both directions after they have read the whole sequence."""
    ahead, back = out_SUH.chunk(2, dim=-1)
    return torch.cat([ahead[torch.arange(len(ahead), device=ahead.device), lengths - 1], back[:, 0]], dim=-1)


class ConvolutionReader(Reader):
    """Convolutions of several widths, rectified, and their maximum over time (Kim 2014, section 2).

    Every window that touches the sequence counts: a sequence of U pieces has U + w - 1 windows of width w, with zeros
    around it, so that a sequence may be shorter than a window. Kim's limit of the norm of the last layer's weights is
    not applied.

    Args:
        inputs: F.
        filters: number of filters of each width (Kim: 100).
        widths: of the windows in pieces (Kim: 3, 4, 5).
    """

    def __init__(self, inputs: int, filters: int, *, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.filters = nn.ModuleList(nn.Linear(width * inputs, filters) for width in widths)
        self.width = filters * len(self.widths)

    def forward(self, x_SUF: Tensor, lengths: Tensor) -> Tensor:
        found = []
        for width, layer in zip(self.widths, self.filters, strict=True):
            around = nn.functional.pad(x_SUF, (0, 0, width - 1, width - 1))
            windows = around.unfold(1, width, 1).transpose(2, 3).flatten(2)
            out_SWG = layer(windows).relu()
            # Outputs are not negative, so 0 does not change the maximum.
            inside_SW = mask(lengths + width - 1, out_SWG.shape[1])
            found.append(out_SWG.masked_fill(~inside_SW[..., None], 0).amax(1).float())
        return torch.cat(found, dim=1)


def reader_of(settings: FinetuneSettings, inputs: int) -> Reader:
    """The biLSTM or convolutions of `finetune.<family>.reader`."""
    if settings.reader == "cnn":
        return ConvolutionReader(inputs, settings.reader_hidden, widths=settings.reader_widths)
    return BiLSTMReader(inputs, settings.reader_hidden, pooling=settings.pooling, dropout=settings.head_dropout)


class ReadingHead(Head):
    """A reader below the head of a task that reads texts.

    The inputs are normalised with the statistics of the pieces of the training rows. The head has no `fixed`
    normalisation of its own, because its inputs change in training.

    Args:
        reader: the network; a biattentive one may return one vector per pair.
        head: of the task, with the reader's outputs as features.
        inputs: F.
        combine: of the vectors of two texts of a row; None: the head reads each sequence.
        norm: whether the inputs are normalised.
    """

    def __init__(
        self, reader: Reader | Biattention, head: TextHead, *, inputs: int, combine: Combine | None, norm: bool
    ) -> None:
        super().__init__()
        self.norm: nn.Module = FixedNorm(inputs) if norm else nn.Identity()
        self.reader = reader
        self.head = head
        self._combine = combine

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        self.head.prepare(targets)

    def fit_norm(self, vectors: Tensor) -> None:
        if isinstance(self.norm, FixedNorm):
            self.norm.fit(vectors)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, U, F) and (S,) numbers of pieces -> (S, C), or (B, C) if the sequences of a row are combined."""
        assert lengths is not None, "a reader reads pieces"
        inside_SU = mask(lengths, features.shape[1])
        x_SUF = self.norm(features).masked_fill(~inside_SU[..., None], 0)
        vectors = self.reader(x_SUF, lengths)
        if self._combine is not None:
            vectors = self._combine(vectors, torch.arange(len(vectors), device=vectors.device) // 2)
        outputs: Tensor = self.head(vectors)
        return outputs

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.head.loss(outputs, batch)

    def taught(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """`ImitatingHead.taught`."""
        assert isinstance(self.head, ImitatingHead)
        return self.head.taught(outputs, batch)

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """`ImitatingHead.imitation`."""
        assert isinstance(self.head, ImitatingHead)
        return self.head.imitation(outputs, batch, temperature=temperature)

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        return self.head.answers(outputs, batch)


def reading_head(
    settings: FinetuneSettings,
    make: Callable[[FinetuneSettings, int, Sequence[str]], Head],
    labels: Sequence[str],
    *,
    inputs: int,
    combine: Combine | None,
) -> ReadingHead:
    """The head of a task with its reader.

    Args:
        settings: of fine-tuning.
        make: `Task.head`.
        labels: of the task.
        inputs: F.
        combine: as in `ReadingHead`.
    """
    reader: Reader | Biattention
    if settings.reader == "biattentive":
        reader = Biattention(
            inputs,
            settings.reader_hidden,
            dropout=settings.head_dropout,
            pairs=combine in (compared, likened),
            symmetric=combine is likened,
        )
        # The network itself combines the two texts of a task that is not symmetric.
        combine = None if combine is compared else combine
        changes: dict[str, Any] = {"head_norm": "none", "head_hidden": 0}
    else:
        reader = reader_of(settings, inputs)
        changes = {} if settings.head_norm == "batch" else {"head_norm": "none"}
    width = reader.width
    if combine is not None:
        width = combine(torch.zeros(2, width), torch.zeros(2, dtype=torch.int64)).shape[-1]
    head = make(settings.model_copy(update=changes), width, labels)
    assert isinstance(head, TextHead)  # of a kind that reads texts
    if isinstance(reader, Biattention):
        # The last maxout layer of the network is the output layer of the head.
        head.output = Maxout(width, head.output.out_features)
    return ReadingHead(reader, head, inputs=inputs, combine=combine, norm=settings.head_norm != "none")
