"""Prediction that does not depend on the batch: every row is computed in shapes that follow from the row alone.

Libraries choose kernels, which differ in the last bits, by the sizes of a matrix product and by the number of threads.
Therefore a sequence is padded to the next of a fixed set of lengths (`padded_length`), a batch of one length always has
the same number of rows (the last is filled with copies), one thread computes a batch, and static word vectors are
pooled without padding. The head is computed in a second step, whose shapes follow from the sequences and units of the
row.

One text by itself, as in a request, is computed as one row by a recurrent model of one direction in float32 on a
processor, which takes half the time of a full batch: the label is the same, and probabilities differ by less than 1e-6.

Shapes: S sequences of a row, T padded length, U units, F features."""

from __future__ import annotations

import copy
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial, reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from components.core.clock import check_time
from components.data.tasks.data import Answer
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import FeatureTable, Vectors
from components.learners.task_models.heads import Head
from components.learners.task_models.inference_weights import converted
from components.learners.task_models.model import TaskModel, computing, evaluating
from components.learners.task_models.pooling import Pooling
from components.learners.task_models.sampler import pad
from components.models.base import Batch
from components.models.bidirectional import BidirectionalModel
from components.models.layers.host import fixed_shapes, move, to_device
from components.models.static import StaticVectors
from components.training.precision import Precision, has_bf16


def pool_bags(encoder: StaticVectors, sequences: Sequence[NDArray[np.integer[Any]]], *, pooling: Pooling) -> Tensor:
    """(S, F) float32: the features of `pooling.Features.pooled` up to rounding."""
    lengths_S = torch.from_numpy(np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences)))
    begins_S = lengths_S.cumsum(0) - lengths_S
    ids_N = torch.from_numpy(np.concatenate(sequences).astype(np.int64, copy=False))
    # Each distinct piece is embedded once: fastText composes its vectors.
    distinct_W, which_N = ids_N.unique(return_inverse=True)
    table_WD = encoder.embed(distinct_W).float()
    bag = partial(F.embedding_bag, which_N, table_WD, begins_S)
    if pooling == "lead":
        places_N = torch.arange(len(ids_N)) - begins_S.repeat_interleave(lengths_S)
        weights_N = 1 / (3 + places_N).float()
        sums_S = torch.zeros(len(lengths_S)).index_add(
            0, torch.arange(len(lengths_S)).repeat_interleave(lengths_S), weights_N
        )
        return bag(mode="sum", per_sample_weights=weights_N) / sums_S[:, None]
    if pooling == "max":
        return bag(mode="max")
    mean_SD = bag(mode="sum") / lengths_S[:, None]
    return torch.cat([mean_SD, bag(mode="max"), mean_SD], dim=1) if pooling == "concat" else mean_SD


#: (up to this length, padded to a multiple of this).
STEPS = ((32, 4), (64, 8), (128, 16), (256, 32), (512, 64))
LONGEST_STEP = 128
#: Pieces of a batch on a processor, padding included. More are hardly faster, and one text costs as much as a batch.
PIECES = 128
#: Rows of a batch of a recurrent model on a processor, which reads its weights once per position of a batch.
RECURRENT_ROWS = 16
#: Pieces of a batch on a GPU, and maximum for recurrent models.
CUDA_PIECES = 2048
#: Rows of a batch of the head, and units of a batch of a head that reads units.
HEAD_ROWS, HEAD_UNITS = 64, 256
#: Maximum number of pieces whose features are in memory at a time.
PORTION_PIECES = 65_536
#: Number of elements that vectorised functions compute at a time: two vectors of 512 bits in bfloat16.
VECTOR = 64

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Pieces, segments and units of a sequence (`task_models.base.Encoded`).
Parts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
#: (outputs of the head, batch of B rows) -> B answers.
OfOutputs = Callable[[Tensor, Batch], list[Answer]]
#: (inputs of the head, batch of B rows) -> B values.
OfBatch = Callable[[Tensor, Batch], Sequence[Any]]


def padded_length(length: int, most: int | None = None) -> int:
    """The length to which a sequence is padded, at most `most`: it depends on nothing else."""
    step = next((step for limit, step in STEPS if length <= limit), LONGEST_STEP)
    padded = -(-length // step) * step
    return padded if most is None else min(padded, most)


def power_of_two(number: int) -> int:
    """The largest power of two that is not larger, at least 1."""
    return 1 << max(0, number.bit_length() - 1)


def whole_vectors(elements: int) -> int:
    """The smallest number of rows, a power of two, for which the elements of all rows fill whole vectors: elements that
    are left over are computed by scalar instructions, which differ in the last bit."""
    return VECTOR // math.gcd(VECTOR, elements)


class FixedBatches:
    """Answers of a model in batches of fixed shapes; `head_precision`: None: as the encoder."""

    def __init__(
        self,
        model: TaskModel,
        *,
        precision: Precision = "float32",
        head_precision: Precision | None = None,
        int8: bool = False,
    ) -> None:
        self.precision: Precision = precision if has_bf16(model.device) else "float32"
        self.head_precision: Precision = self.precision if head_precision is None else head_precision
        bf16 = self.precision == "bf16"
        self._converted = bf16 or int8
        self.model = converted(model, bf16=bf16, int8=int8) if self._converted else model
        self._recurrent = model.encoder.attention == "none"
        #: Whether a batch is filled up with copies.
        self._filled = True
        # A divisor of the widths of all layers.
        widths = [size for layer in model.encoder.layer_groups()[1:] for part in layer for size in part.shape]
        self._width = math.gcd(model.width, *widths)

    def of(self, rows: int) -> FixedBatches:
        """The batches for a request of so many rows: those of one row are not filled up, where this changes no label
        and probabilities by less than 1e-6."""
        # In bfloat16 another kernel changes the third digit of a probability, and in float32, with attention or two
        # directions, the sixth one. Scores of units are no probabilities.
        exact = self._recurrent and not isinstance(self.model.encoder, BidirectionalModel) and not self._converted
        if rows > 1 or not exact or self.model.of_units or self.model.device.type != "cpu":
            return self
        alone = copy.copy(self)
        alone._filled = False
        return alone

    def answers(self, encoded: Sequence[Encoded], *, answer: OfOutputs | None = None) -> list[Answer]:
        """The answers to N rows; `answer`: as of `decide`."""
        return [each for table in self.tables(encoded) for each in self.decide(table, answer=answer)]

    def tables(self, encoded: Sequence[Encoded]) -> Iterator[FeatureTable]:
        """The inputs of the head for consecutive parts of the rows.
        Raises OutOfTimeError: the limit of time has passed (`components.core.clock`)."""
        for part in _portions(encoded):
            check_time()
            rows = self._read(part)
            yield FeatureTable(rows, [row.offsets for row in part]) if self.model.of_units else FeatureTable.of(rows)

    def table(self, encoded: Sequence[Encoded]) -> FeatureTable:
        """The inputs of the head for N rows, as of `tables`."""
        return reduce(FeatureTable.joined, self.tables(encoded), FeatureTable([], []))

    def decide(self, table: FeatureTable, *, answer: OfOutputs | None = None) -> list[Answer]:
        """The answers to N rows whose features are known, by `Head.answers` or another function of the head's
        outputs."""
        of_outputs = answer or self.model.head.answers
        return self._of_head(table, lambda vectors, batch: of_outputs(self.model.outputs(vectors, batch), batch))

    def outputs(self, table: FeatureTable) -> list[Tensor]:
        """The outputs of the head for the sequences of each of N rows."""

        def of_batch(vectors: Tensor, batch: Batch) -> Sequence[Tensor]:
            rows = int(batch["rows"][-1]) + 1
            return list(self.model.outputs(vectors, batch).float().cpu().unflatten(0, (rows, -1)))

        return self._of_head(table, of_batch)

    def _of_head(self, table: FeatureTable, function: OfBatch) -> list[Any]:
        def compute(key: tuple[int, int], rows: Sequence[int]) -> Sequence[Any]:
            kept, batch = self._head_inputs(table, rows, units=key[1])
            with self._computing(self.head_precision):
                return function(kept if self.model.keeps_rows else self.model.above(kept, batch["rows"]), batch)

        return self._compute(range(len(table)), self._head_keys(table), self._head_rows, compute)

    @property
    def reads_bags(self) -> bool:
        """Whether the features are word vectors, pooled on the processor: `answers_of_sequences` may be used."""
        model = self.model
        return isinstance(model.encoder, StaticVectors) and not model.of_units and model.device.type == "cpu"

    def answers_of_sequences(self, sequences: Sequence[NDArray[Any]]) -> list[Answer]:
        """The same answers as of `answers` to N rows of one sequence each, for pooled word vectors."""
        (vectors,) = self._each(self._pooled, [sequences])
        return self.decide(FeatureTable.of([vector] for vector in vectors.numpy()))

    def decoded(self, table: FeatureTable, outputs: Sequence[Tensor], head: Head) -> list[Answer]:
        """The answers of another head to the (S, U, C) outputs of N rows, each row on its own."""
        answers: list[Answer] = []
        with self._computing(self.head_precision):
            for row, (of_row, (_, units)) in enumerate(zip(outputs, self._head_keys(table), strict=True)):
                _, batch = self._head_inputs(table, [row], units=units)
                answers += head.answers(of_row.to(self.model.device), batch)
        return answers

    # -- the two steps -----------------------------------------------------------------------------------------------

    def _read(self, encoded: Sequence[Encoded]) -> list[list[Vectors]]:
        """The vectors of each sequence of N rows; one vector if they are combined without parameters."""
        sequences = [part for row in encoded for part in zip(row.pieces, row.segments, row.units, strict=True)]
        if self.reads_bags:
            (pooled,) = self._each(self._pooled, [[pieces for pieces, _, _ in sequences]])
            vectors = list(pooled)
        else:
            most = self.model.encoder.max_tokens
            lengths = [padded_length(len(pieces), most) for pieces, _, _ in sequences]
            vectors = self._compute(sequences, lengths, self._rows, self._encode)
        ends = np.cumsum([0, *(len(row.pieces) for row in encoded)])
        of_rows = [vectors[start:end] for start, end in pairwise(ends)]
        if self.model.keeps_rows:
            jobs = [(part, list(map(len, row.pieces))) for part, row in zip(of_rows, encoded, strict=True)]
            of_rows = [[vector] for vector in self._each(self._combined, jobs)]
        return [[vectors.numpy() for vectors in of_row] for of_row in of_rows]

    def _encode(self, length: int, sequences: Sequence[Parts]) -> list[Tensor]:
        model, device = self.model, self.model.device
        tokens, segments = np.zeros((2, len(sequences), length), dtype=np.int64)
        for row, (pieces, segment, _) in enumerate(sequences):
            tokens[row, : len(pieces)] = pieces
            segments[row, : len(segment)] = segment
        lengths = move(torch.tensor([len(pieces) for pieces, _, _ in sequences]), device)
        with self._computing(self.precision):
            hidden = model.encoder.hidden_states(
                move(torch.from_numpy(tokens), device),
                lengths,
                move(torch.from_numpy(segments), device) if segments.any() else None,
            )
            if model.of_units:
                units, counts = pad([units for _, _, units in sequences], value=-1)
                result = model.features.of_units(hidden, move(units, device)).float().cpu()
                return [row[:count] for row, count in zip(result, counts.tolist(), strict=True)]
            return list(model.features.pooled(hidden, lengths).float().cpu())

    def _pooled(self, sequences: Sequence[NDArray[Any]]) -> Tensor:
        encoder, features = self.model.encoder, self.model.features
        assert isinstance(encoder, StaticVectors)  # as `reads_bags` has checked
        with self._computing(self.precision):
            pooled = pool_bags(encoder, sequences, pooling=features.pooling)
            return features.joined(pooled.chunk(3 if features.pooling == "concat" else 1, dim=1))

    def _combined(self, job: tuple[list[Tensor], list[int]]) -> Tensor:
        vectors, lengths = torch.stack(job[0]).to(self.model.device), torch.tensor(job[1], device=self.model.device)
        with self._computing(self.precision):
            return self.model.of_rows(vectors, torch.zeros_like(lengths), lengths)[0].float().cpu()

    def _head_inputs(self, table: FeatureTable, rows: Sequence[int], *, units: int) -> tuple[Tensor, Batch]:
        batch = to_device(table.batch(rows, units=units), self.model.device)
        return batch.pop("features"), batch

    # -- shapes and threads ------------------------------------------------------------------------------------------

    def _rows(self, length: int) -> int:
        if self.model.device.type == "cuda":
            wanted = CUDA_PIECES // length
        else:
            wanted = min(RECURRENT_ROWS, CUDA_PIECES // length) if self._recurrent else PIECES // length
        return max(whole_vectors(length * self._width), power_of_two(wanted))

    def _head_keys(self, table: FeatureTable) -> list[tuple[int, int]]:
        """Number of sequences of each row, and units of the longest one, padded; 0 if the head reads no units."""
        longest = table.longest()
        units = [0] * len(table) if longest is None else map(padded_length, longest.tolist())
        return list(zip(table.counts, units, strict=True))

    def _head_rows(self, key: tuple[int, int]) -> int:
        sequences, units = key
        return max(whole_vectors(units), power_of_two(HEAD_UNITS // (sequences * units))) if units else HEAD_ROWS

    def _compute(
        self,
        items: Sequence[Item],
        keys: Sequence[Any],
        rows_of: Callable[[Any], int],
        function: Callable[[Any, Sequence[Item]], Sequence[Result]],
    ) -> list[Result]:
        """Apply a function to batches of items with the same key, `rows_of(key)` each, or if they are not filled up at
        most so many; results in order."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for index, key in enumerate(keys):
            groups[key].append(index)
        jobs = [
            (key, indices[start : start + rows_of(key)])
            for key, indices in sorted(groups.items(), reverse=True)
            for start in range(0, len(indices), rows_of(key))
        ]

        def batch(job: tuple[Any, list[int]]) -> Sequence[Result]:
            key, part = job
            copies = [items[part[0]]] * (rows_of(key) - len(part) if self._filled else 0)
            return function(key, [*(items[index] for index in part), *copies])[: len(part)]

        results: dict[int, Result] = {}
        for (_, part), of_part in zip(jobs, self._each(batch, jobs), strict=True):
            results |= zip(part, of_part, strict=True)
        return [results[index] for index in range(len(items))]

    def _each(self, function: Callable[[Item], Result], jobs: Sequence[Item]) -> list[Result]:
        threads = 1 if self.model.device.type == "cuda" else torch.get_num_threads()
        # A converted copy is never trained, and to look at every module takes as long as a layer.
        with nullcontext() if self._converted else evaluating(self.model):
            if threads == 1:
                return list(map(function, jobs))
            try:
                return list(_pool(threads, os.getpid()).map(partial(_on_one_thread, function), jobs))
            finally:
                # Threads that other parts of the process start later are not limited.
                torch.set_num_threads(threads)

    @contextmanager
    def _computing(self, precision: Precision) -> Iterator[None]:
        with computing(precision, self.model.device), fixed_shapes():
            yield


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # A forked process, which has another number, has pools of its own.
    return ThreadPoolExecutor(threads, "predict")


def _on_one_thread(function: Callable[[Item], Result], job: Item) -> Result:
    # A pool thread may first read the process-wide number after it was reset, so an initializer does not suffice.
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return function(job)


def extract(model: TaskModel, encoded: Sequence[Encoded], *, precision: Precision = "float32") -> FeatureTable:
    """The features of N rows by the current encoder, as in prediction (`FixedBatches.table`)."""
    return FixedBatches(model, precision=precision).table(encoded)


def _portions(encoded: Sequence[Encoded]) -> Iterator[Sequence[Encoded]]:
    ends = np.cumsum([sum(map(len, row.pieces)) for row in encoded]) // PORTION_PIECES
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(encoded)]
    return (encoded[start:end] for start, end in pairwise(cuts) if end > start)
