"""The average of task models of one recipe, which differ in their seeds.

Probabilities and numbers are averaged. Answers that are decoded (tag sequences, spans) cannot be: the outputs of the
heads are averaged, and decoded by a head whose parameters of decoding (transitions, threshold) are averaged as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import Batch, LanguageModel
from components.task_models.base import Encoded
from components.task_models.fixed_batches import Observe, RowFeatures, count_rows, nothing_observed
from components.task_models.heads import FixedNorm, Head
from components.task_models.model import TaskModel
from components.task_models.pooling import mask
from components.tasks.data import Answer, Fields, mean_answers
from components.tokenization.special import UNK

if TYPE_CHECKING:
    from components.task_models.classifier import TextClassifier


#: Number of features F -> (F, S) random numbers.
Projection = Callable[[int], NDArray[np.float32]]


def sketches(model: TaskModel, vectors: Tensor, batch: Batch, projection: Projection) -> list[NDArray[np.float32]]:
    """The sketches (S,) of the B rows of a batch.

    Args:
        vectors: inputs of its head: (S, F), (B, F) or (S, U, F).
    """
    norm = getattr(model.head, "norm", None)
    if model.of_units:
        lengths = batch["unit_lengths"]
        inside = mask(lengths, vectors.shape[1])[..., None]
        vectors = vectors.float().masked_fill(~inside, 0.0).sum(1) / lengths.clamp(min=1)[:, None]
    if isinstance(norm, FixedNorm):
        vectors = norm(vectors)
    table = torch.from_numpy(projection(vectors.shape[-1])).to(vectors.device)
    with torch.autocast(vectors.device.type, enabled=False):
        result = vectors.float() @ table
    rows = batch["rows"]
    count = int(rows[-1]) + 1
    if len(result) != count:
        total = result.new_zeros(count, table.shape[1]).index_add(0, rows, result)
        result = total / torch.bincount(rows, minlength=count)[:, None]
    return list(result.cpu().numpy())


def measured(
    encoded: Sequence[Encoded], result: Sequence[NDArray[np.float32]]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(N, 2) pieces and unknown pieces of N rows, and (N, S) their sketches."""
    counts = [(sum(map(len, row.pieces)), sum(int((pieces == UNK).sum()) for pieces in row.pieces)) for row in encoded]
    none = np.zeros((0, 1), dtype=np.float32)
    return np.array(counts, dtype=np.int64).reshape(-1, 2), np.stack(result) if len(result) else none


#: Number of rows that are tokenized and sorted by length together.
ROWS = 4096
#: Number of rows whose features are in memory at a time.
PORTION = 512


@dataclass(frozen=True)
class AveragedClassifier:
    """The average of several task models, with the interface of one."""

    members: Sequence[TextClassifier]

    @property
    def kind(self) -> str:
        """Name of the task's kind."""
        return self.members[0].kind

    @property
    def labels(self) -> Sequence[str]:
        """C names."""
        return self.members[0].labels

    @property
    def encoder(self) -> LanguageModel:
        """The encoder of the first member."""
        return self.members[0].encoder

    @property
    def is_shared(self) -> bool:
        """Whether the members are heads on the same features, which are computed once."""
        first = self.members[0]
        return all(
            (member.encoder is first.encoder, member.settings, member.precision)
            == (True, first.settings, first.precision)
            for member in self.members
        )

    def on(self, device: torch.device) -> AveragedClassifier:
        """This classifier after its models have been moved to a device. To be called before the first answer."""
        for member in self.members:
            member.on(device)
        return self

    def quantised(self) -> AveragedClassifier:
        """This classifier with the encoders' matrices in 8-bit integers; see `TextClassifier.quantised`."""
        return replace(self, members=[member.quantised() for member in self.members])

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """The answers to N rows. The answer to a row does not depend on the other rows."""
        if not self._decodes and not self.is_shared:
            return mean_answers([member.answer(rows, batch_size) for member in self.members])
        return self._answers(rows)[0]

    def answer_measured(
        self, rows: Sequence[Fields], projection: Projection
    ) -> tuple[list[Answer], NDArray[np.int64], NDArray[np.float32]]:
        """The same answers, with what `components.drift` measures on the first member; see `TextClassifier`."""
        answers, result = self._answers(rows, partial(sketches, projection=projection))
        return answers, *measured(self.members[0].encode(rows), result)

    @property
    def _decodes(self) -> bool:
        return self.members[0].model.of_units

    @cached_property
    def _decoder(self) -> Head:
        states = [member.model.head.state_dict() for member in self.members]
        decoder = copy.deepcopy(self.members[0].model.head)
        mean = {
            name: torch.stack([state[name] for state in states]).mean(0) if value.is_floating_point() else value
            for name, value in states[0].items()
        }
        decoder.load_state_dict(mean)
        return decoder

    def _answers(self, rows: Sequence[Fields], observe: Observe = nothing_observed) -> tuple[list[Answer], list[Any]]:
        answers: list[Answer] = []
        observed: list[Any] = []
        for start in range(0, len(rows), PORTION):
            part = rows[start : start + PORTION]
            features = [self._features(member, part) for member in self.members[: 1 if self.is_shared else None]]
            features *= len(self.members) // len(features)

            def both(*inputs: Any) -> list[Any]:
                return list(zip(_outputs(*inputs), observe(*inputs), strict=True))

            of_members = [
                member.batches.observe(of_member, both if member is self.members[0] else _outputs)
                for member, of_member in zip(self.members, features, strict=True)
            ]
            observed += [value for _, (_, value) in of_members[0]]
            if self._decodes:
                outputs = [[output for _, (output, _) in of_members[0]]]
                outputs += [[output for _, output in result] for result in of_members[1:]]
                means = [torch.stack(of_row).mean(0) for of_row in zip(*outputs, strict=True)]
                answers += self.members[0].batches.decoded(features[0], means, self._decoder)
            else:
                answers += mean_answers(
                    [
                        member.with_words(part, [answer for answer, _ in result])
                        for member, result in zip(self.members, of_members, strict=True)
                    ]
                )
        return answers, observed

    def _features(self, member: TextClassifier, rows: Sequence[Fields]) -> list[RowFeatures]:
        result = dict(member.batches.features(member.encode(rows)))
        return [result[row] for row in range(len(rows))]


def _outputs(model: TaskModel, vectors: Tensor, batch: Batch) -> list[Tensor]:
    return list(model.outputs(vectors, batch).float().cpu().unflatten(0, (count_rows(batch), -1)))
