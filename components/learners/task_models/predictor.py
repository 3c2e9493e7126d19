"""Prediction in two steps: the encoder reads the sequences of the rows, and the head answers from their vectors.

Libraries choose kernels, which differ in the last bits, by the sizes of a matrix product and by the number of threads;
in bfloat16, and with attention, this changes the third or the sixth digit of a probability. Therefore a served model
reads in shapes that follow from the sequence alone (`fixed`): a sequence is padded to the next of a set of lengths
(`padded_length`), a batch of one length always has the same number of rows (the last is filled with copies), and one
thread computes a batch. Word vectors need no copies, because no product mixes their rows; nor does one text by itself,
as in a request, of a recurrent model of one direction in float32, which takes half the time of a full batch. Where
models are only scored, batches are larger and have the length of their longest row. The head computes in float64, whose
rounding does not reach the answers, in any batch.

Shapes: S sequences, T padded length, U units, F features."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.core.clock import check_time
from components.data.tasks.data import Answer
from components.learners.task_models.base import Encoded, Vectors
from components.learners.task_models.features import grouped
from components.learners.task_models.inference_weights import converted
from components.learners.task_models.model import TaskModel, batches_by_length
from components.learners.task_models.sampler import collate, longest, pad
from components.models.base import Batch, LanguageModel
from components.models.bidirectional import BidirectionalModel
from components.models.layers.host import fixed_shapes, move, to_device
from components.models.static import StaticVectors
from components.training.precision import Precision, has_bf16

#: (up to this length, padded to a multiple of this).
STEPS = ((32, 4), (64, 8), (128, 16), (256, 32), (512, 64), (math.inf, 128))
#: Pieces of a batch on a processor, padding included. More are hardly faster, and one text costs as much as a batch.
PIECES = 128
#: Pieces of a batch of word vectors. A word of several rows is composed of its n-grams once; larger batches exceed the
#: cache.
STATIC_PIECES = 16_384
#: Rows of a batch of a recurrent model on a processor, which reads its weights once per position of a batch.
RECURRENT_ROWS = 16
#: Pieces of a batch on a GPU, and maximum for recurrent models.
CUDA_PIECES = 2048
#: Maximum number of pieces whose features are in memory at a time.
PORTION_PIECES = 65_536

Job = TypeVar("Job")
Result = TypeVar("Result")
#: Pieces, segments and units of a sequence (`task_models.base.Encoded`).
Parts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
#: (outputs of the head, batch of B rows) -> B answers.
OfOutputs = Callable[[Tensor, Batch], list[Answer]]


def padded_length(length: int, most: int | None = None) -> int:
    """The length to which a sequence is padded, at most `most`: it depends on nothing else."""
    step = next(step for limit, step in STEPS if length <= limit)
    return min(-(-length // step) * step, most or length + step)


def portions(encoded: Sequence[Encoded]) -> Iterator[slice]:
    """Consecutive parts of the rows, whose features are in memory at a time."""
    ends = np.cumsum([sum(map(len, row.pieces)) for row in encoded]) // PORTION_PIECES
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(encoded)]
    return (slice(start, end) for start, end in pairwise(cuts) if end > start)


class Predictor:
    """A model's answers. The head is that of now; it is not trained with the model's.

    Args:
        precision: of the encoder; float32 if the device has no instructions for bfloat16.
        int8: whether the encoder's matrices are quantised.
        fixed: whether the vectors of a sequence are independent of its batch.
    """

    def __init__(
        self, model: TaskModel, *, precision: Precision = "float32", int8: bool = False, fixed: bool = True
    ) -> None:
        self.precision: Precision = precision if has_bf16(model.device) else "float32"
        bf16, self.fixed = self.precision == "bf16", fixed
        self.head = copy.deepcopy(model.head).double().eval()
        self.model = converted(model, bf16=bf16, int8=int8) if fixed and (bf16 or int8) else model
        encoder = model.encoder
        self._static = isinstance(encoder, StaticVectors)
        self._recurrent = encoder.attention == "none" and not self._static
        one_way = self._recurrent and not isinstance(encoder, BidirectionalModel) and self.model is model
        self._alone = one_way and not model.of_units and model.device.type == "cpu"

    def answers(self, encoded: Sequence[Encoded], *, answer: OfOutputs | None = None) -> list[Answer]:
        """The answers to N rows; `answer`: as of `decide`."""
        return [each for rows in self.tables(encoded) for each in self.decide(rows, answer=answer)]

    def tables(self, encoded: Sequence[Encoded]) -> Iterator[list[Encoded]]:
        """The inputs of the head for consecutive parts of the rows.
        Raises OutOfTimeError: the limit of time has passed (`components.core.clock`)."""
        for cut in portions(encoded):
            check_time()
            yield self.read(encoded[cut])

    def decide(self, rows: Sequence[Encoded], *, answer: OfOutputs | None = None) -> list[Answer]:
        """The answers to N inputs of the head, by `Head.answers` or another function of the head's outputs."""
        return decided([(self, rows)], answer or self.head.answers)

    def outputs(self, rows: Sequence[Encoded]) -> tuple[Tensor, Batch]:
        """The outputs of the head for its inputs, and their batch without targets."""
        batch = to_device(collate(rows), self.model.device)
        with torch.inference_mode():
            vectors = self.model.above(batch.pop("features"), batch["rows"])
            return self.head(vectors.double(), batch), batch

    # -- the encoder -------------------------------------------------------------------------------------------------

    def read(self, encoded: Sequence[Encoded]) -> list[Encoded]:
        """N rows with the vectors of each sequence; with one vector if they are combined without parameters."""
        parts = [part for row in encoded for part in zip(row.pieces, row.segments, row.units, strict=True)]
        counts, vectors, model = [len(row.pieces) for row in encoded], self._vectors(parts), self.model
        if model.of_units:
            offsets = [row.offsets for row in encoded]
            return list(map(Encoded.of_vectors, grouped(vectors, counts), offsets))
        if model.combine is None or model.features.mix is not None:
            return list(map(Encoded.of_vectors, grouped(vectors, counts)))
        lengths = torch.tensor([len(pieces) for pieces, _, _ in parts])
        rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        combined = model.combine(torch.from_numpy(np.stack(vectors)), rows, lengths).numpy()
        return list(map(Encoded.of_vectors, combined[:, None]))

    def _vectors(self, parts: Sequence[Parts]) -> list[Vectors]:
        lengths = np.asarray([len(pieces) for pieces, _, _ in parts])
        jobs = [(rows, int(lengths[rows].max())) for rows in batches_by_length(lengths, np.ones_like(lengths))]
        if self.fixed:
            padded = np.asarray([padded_length(int(length), self.model.encoder.max_tokens) for length in lengths])
            jobs = [
                (rows[start : start + size], length)
                for length in np.unique(padded)[::-1].tolist()
                for rows, size in [(np.flatnonzero(padded == length), self.rows_of(length))]
                for start in range(0, len(rows), size)
            ]
        filled = self.fixed and not self._static and not (self._alone and len(parts) == 1)

        def encode(job: tuple[NDArray[np.int64], int]) -> list[Vectors]:
            rows, length = job
            chosen = [parts[row] for row in rows]
            copies = [chosen[0]] * (self.rows_of(length) - len(rows) if filled else 0)
            return self._encoded([*chosen, *copies], length)[: len(rows)]

        results: dict[int, Vectors] = {}
        for (rows, _), vectors in zip(jobs, self._each(encode, jobs), strict=True):
            results |= zip(rows.tolist(), vectors, strict=True)
        return [results[row] for row in range(len(parts))]

    def _encoded(self, parts: Sequence[Parts], length: int) -> list[Vectors]:
        model, device = self.model, self.model.device
        pieces, segments, units = zip(*parts, strict=True)
        tokens, lengths = (move(each, device) for each in pad(pieces, size=length))
        given = move(pad(segments, size=length)[0], device) if any(each.any() for each in segments) else None
        with computing(self.precision, device), fixed_shapes() if self.fixed else nullcontext():
            hidden = model.encoder.hidden_states(tokens, lengths, given)
            if not model.of_units:
                return list(model.features.pooled(hidden, lengths).float().cpu().numpy())
            columns, counts = pad(units, value=-1)
            result = model.features.of_units(hidden, move(columns, device)).float().cpu().numpy()
            return [row[:count] for row, count in zip(result, counts.tolist(), strict=True)]

    def rows_of(self, length: int) -> int:
        """Number of rows of a batch of this length: a power of two."""
        cpu = self.model.device.type == "cpu"
        pieces = STATIC_PIECES if self._static else PIECES if cpu and not self._recurrent else CUDA_PIECES
        rows = 1 << max(0, (pieces // length).bit_length() - 1)
        return min(rows, RECURRENT_ROWS) if self._recurrent and cpu else rows

    def _each(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        threads = torch.get_num_threads() if self.fixed and self.model.device.type == "cpu" else 1
        with evaluating(self.model):
            if threads == 1:
                return list(map(function, jobs))

            def on_one_thread(job: Job) -> Result:
                # Another request may have reset the process-wide number since the thread was started.
                if torch.get_num_threads() != 1:
                    torch.set_num_threads(1)
                return function(job)

            try:
                with ThreadPoolExecutor(min(threads, len(jobs)), "predict") as pool:
                    return list(pool.map(on_one_thread, jobs))
            finally:
                # Threads that other parts of the process start later are not limited.
                torch.set_num_threads(threads)


def decided(parts: Sequence[tuple[Predictor, Sequence[Encoded]]], answer: OfOutputs) -> list[Answer]:
    """The answers to N rows from the mean outputs of several heads, each with its inputs."""
    first, results = parts[0][1], dict[int, Answer]()
    for rows in batches_by_length(longest(first), np.asarray([len(row.vectors) for row in first])):
        outputs, batches = zip(*(head.outputs([inputs[row] for row in rows]) for head, inputs in parts), strict=True)
        mean = torch.stack(outputs).mean(0) if len(outputs) > 1 else outputs[0]
        results |= zip(rows.tolist(), answer(mean, batches[0]), strict=True)
    return [results[row] for row in range(len(first))]


def sentence_vectors(encoder: LanguageModel, encoded: Sequence[Encoded]) -> list[Vectors]:
    """(F,) of each of N rows: the mean over its sequences of the vectors that the encoder was trained to give
    (`LanguageModel.vectors_of`)."""
    device, results = next(encoder.parameters()).device, dict[int, Vectors]()
    counts = np.asarray([len(row.pieces) for row in encoded], dtype=np.int64)
    with evaluating(encoder), torch.inference_mode():
        for rows in batches_by_length(longest(encoded), counts):
            batch = to_device(collate([encoded[row] for row in rows]), device)
            hidden = encoder.hidden_states(batch["tokens"], batch["lengths"], batch.get("segments"))[-1]
            vectors = encoder.vectors_of(hidden, batch["lengths"]).cpu().split(counts[rows].tolist())
            results |= zip(rows.tolist(), (each.mean(0).numpy() for each in vectors), strict=True)
    return [results[row] for row in range(len(encoded))]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; the mode of each module is restored afterwards."""
    # `eval()` visits every module, which for one text takes as long as a layer.
    learning = [part for part in model.modules() if part.training]
    for part in learning:
        part.training = False
    try:
        yield
    finally:
        for part in learning:
            part.training = True


@contextmanager
def computing(precision: Precision, device: torch.device) -> Iterator[None]:
    """A block that computes without gradients, in `float32` or `bf16`, in this thread."""
    with torch.inference_mode(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield
