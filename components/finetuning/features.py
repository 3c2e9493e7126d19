"""Features of a frozen encoder: computed once, kept as one table, learned from by the head alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.finetuning.heads import Head
from components.finetuning.model import TaskModel, batches_by_length, run_over
from components.finetuning.sampler import pad, target_batch
from components.finetuning.tasks.base import Answer, Encoded, Target
from components.models.base import Batch

#: Vectors of a batch, padding included, when nothing is learned.
PREDICT_VECTORS = 16_384


@dataclass(frozen=True)
class FeatureTable:
    """What a head reads of N rows with S sequences.

    Attributes:
        vectors: (M, F) float32, one row's after the other's.
        lengths: (S,) units of each sequence; None where every sequence is one vector (S = M).
        sequences: (N,) sequences of each row.
        offsets: (M, 2) as in `tasks.base.Encoded`; (0, 2) where nobody asks.
    """

    vectors: Tensor
    lengths: NDArray[np.int64] | None
    sequences: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequences)

    def batch(self, rows: NDArray[np.int64], targets: Sequence[Target] | None = None) -> Batch:
        """Some rows as a batch of `components.finetuning.sampler` with `features` (S, F) or (S, U, F) for tokens.

        Args:
            rows: B row numbers.
            targets: B vectors.
        """
        count = self.sequences[rows]
        ends = np.cumsum(self.sequences)
        chosen = np.concatenate([np.arange(ends[row] - self.sequences[row], ends[row]) for row in rows])
        batch = target_batch(targets) | {"rows": torch.from_numpy(np.repeat(np.arange(len(rows)), count))}
        if self.lengths is None:
            return batch | {"features": self.vectors[torch.from_numpy(chosen)]}
        last = np.cumsum(self.lengths)
        spans = [slice(int(last[place] - self.lengths[place]), int(last[place])) for place in chosen]
        if len(self.offsets):
            batch["offsets"] = pad([self.offsets[span] for span in spans], value=-1)[0]
        return batch | {
            "features": torch.nn.utils.rnn.pad_sequence([self.vectors[span] for span in spans], batch_first=True),
            "unit_lengths": torch.from_numpy(self.lengths[chosen]),
        }

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Row numbers in batches for prediction, every row once."""
        if self.lengths is None:
            yield np.arange(len(self))
            return
        starts = np.cumsum(self.sequences) - self.sequences
        yield from batches_by_length(np.maximum.reduceat(self.lengths, starts), self.sequences, PREDICT_VECTORS)


def extract(model: TaskModel, encoded: Sequence[Encoded], *, precision: str = "float32") -> FeatureTable:
    """The features of N rows by the encoder as it is."""

    def of_batch(batch: Batch) -> list[Tensor]:
        vectors = model.vectors(batch).float().cpu()
        if model.of_units:
            # Padding goes: what is left of a sequence are its own units.
            kept = [sequence[:length] for sequence, length in zip(vectors, batch["unit_lengths"].tolist(), strict=True)]
            counts = torch.bincount(batch["rows"]).tolist()
            starts = np.cumsum([0, *counts])
            return [torch.cat(kept[start : start + count]) for start, count in zip(starts, counts, strict=False)]
        if len(vectors) == len(batch["rows"]):
            return list(vectors.split(torch.bincount(batch["rows"]).tolist()))
        return list(vectors.split(1))

    # A plain tensor again, that training may use.
    vectors = torch.cat(run_over(of_batch, model, encoded, precision=precision)).clone()
    if not model.of_units:
        combined = len(vectors) == len(encoded)
        counts = np.asarray([1 if combined else len(row.pieces) for row in encoded], dtype=np.int64)
        return FeatureTable(vectors, None, counts, np.zeros((0, 2), dtype=np.int64))
    return FeatureTable(
        vectors,
        np.asarray([len(units) for row in encoded for units in row.units], dtype=np.int64),
        np.asarray([len(row.units) for row in encoded], dtype=np.int64),
        np.concatenate([offsets for row in encoded for offsets in row.offsets]),
    )


def head_answers(head: Head, table: FeatureTable) -> list[Answer]:
    """What a head says of the rows of a table; on the device that the head is on."""
    device = next(head.parameters()).device
    training = head.training
    head.eval()
    results: dict[int, Answer] = {}
    with torch.inference_mode():
        for rows in table.batches():
            batch = {name: tensor.to(device) for name, tensor in table.batch(rows).items()}
            found = head.answers(head(batch["features"], batch.get("unit_lengths")), batch)
            results |= zip(rows.tolist(), found, strict=True)
    head.train(training)
    return [results[row] for row in range(len(table))]
