"""Prediction that does not depend on the batch: every row is computed in shapes that follow from the row alone.

Libraries choose kernels by the sizes of a matrix product and by the number of threads, and kernels differ in the last
bits. Therefore

- a sequence is padded to the next of a fixed set of lengths (`padded_length`), whatever the others are;
- a batch is computed by one thread; further threads compute other batches;
- static word vectors are pooled without padding, each text on its own (`components.task_models.bags`);
- the number of rows of a batch is one of a few sizes whose results are the same to the last bit, for rows at all
  positions. Which sizes these are depends on processor and library: it is found out with rows of random content before
  a length is used (`components.task_models.batch_sizes`). The rest of a batch is filled with copies of a row.

The head is computed in a second step, because the sequences of a row may have different lengths. Its shapes follow from
the number of sequences and units of the row.

Shapes: S sequences of a row, T padded length, U units, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import Batch, LanguageModel
from components.models.layers.fixed_shapes import fixed_shapes
from components.models.layers.host import move, to_device
from components.models.static import StaticVectors
from components.task_models import bags
from components.task_models.base import Encoded
from components.task_models.batch_sizes import Known, Sizes, Workers, split, whole_vectors
from components.task_models.heads import Head
from components.task_models.inference_weights import converted
from components.task_models.model import TaskModel, computing, evaluating
from components.task_models.sampler import pad
from components.tasks.data import Answer
from components.tokenization.special import FIRST_ORDINARY
from components.training.precision import Precision, has_bf16, product_size

#: (up to this length, padded to a multiple of this).
STEPS = ((32, 4), (64, 8), (128, 16), (256, 32), (512, 64))
LONGEST_STEP = 128
#: Maximum number of pieces of a batch, padding included; larger batches are at most a tenth faster. Recurrent models
#: read their weights once per position of a batch, so they need more rows; a large Transformer has work with few.
PIECES_OF_RECURRENT, PIECES, PIECES_OF_LARGE = 2048, 1024, 256
#: Number of parameters in matrices (`product_size`) of a large model.
LARGE = 20_000_000
#: Maximum number of rows of a batch of the head.
HEAD_ROWS = 64
#: Maximum number of pieces whose features are in memory at a time.
PORTION_PIECES = 32_768

#: Known sizes of encoder and head, by the shapes of a model: a process may hold several models of the same shapes.
_KNOWN: dict[str, tuple[Known, Known]] = {}

Result = TypeVar("Result")


def padded_length(length: int, most: int | None = None) -> int:
    """The length to which a sequence is padded, at most `most`: it depends on nothing else."""
    step = next((step for limit, step in STEPS if length <= limit), LONGEST_STEP)
    padded = -(-length // step) * step
    return padded if most is None else min(padded, most)


@dataclass(frozen=True)
class OneSequence:
    """One sequence of a row."""

    pieces: NDArray[np.int64]
    segments: NDArray[np.int64]
    units: NDArray[np.int64]


@dataclass(frozen=True)
class RowFeatures:
    """The inputs of the head for one row.

    Attributes:
        vectors: (F,) or (U, F) of each of the S sequences; one vector if they are combined without parameters.
        offsets: (U, 2) of each sequence; see `task_models.base.Encoded`.
    """

    vectors: list[Tensor]
    offsets: list[NDArray[np.int64]]


class FixedBatches:
    """Answers of a model in batches of fixed shapes.

    Args:
        model: encoder and head; in evaluation mode.
        precision: of the encoder.
        head_precision: of the head; None: that of the encoder.
        int8: whether the encoder's matrices are quantised (`inference_weights.converted`).
    """

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
        recurrent, large = model.encoder.attention == "none", product_size(model.encoder) >= LARGE
        self._pieces = PIECES_OF_RECURRENT if recurrent else PIECES_OF_LARGE if large else PIECES
        # A divisor of the widths of all layers.
        widths = [size for layer in model.encoder.layer_groups()[1:] for part in layer for size in part.shape]
        self._width = math.gcd(model.width, *widths)
        bf16 = self.precision == "bf16"
        self.model = converted(model, bf16=bf16, int8=int8) if bf16 or int8 else model
        encoder, head = _KNOWN.setdefault(self._shapes(), ({}, {}))
        self._encoder_sizes: Sizes[OneSequence, Any] = Sizes(
            lambda key, items: [vector.numpy() for vector in self._encode(int(str(key)), items)],
            samples=self._sample_sequences,
            limits=self._rows,
            known=encoder,
        )
        self._head_sizes: Sizes[RowFeatures, Any] = Sizes(
            self._compare_heads, samples=self._sample_features, limits=self._head_rows, known=head
        )

    def _shapes(self) -> str:
        model = self.model
        parts = [f"{name} {tuple(part.shape)} {part.dtype}" for name, part in model.state_dict(keep_vars=True).items()]
        settings = (model.features.layers, model.features.pooling, self.precision, self.head_precision, model.device)
        return "\n".join([*parts, *map(str, settings), repr(model), model.encoder.config.model_dump_json()])

    # -- the two steps -----------------------------------------------------------------------------------------------

    def answers(self, encoded: Sequence[Encoded]) -> list[Answer]:
        """The answers to N rows."""
        return self._answers(encoded, self._head_answers)

    def _answers(
        self, encoded: Sequence[Encoded], head: Callable[[Hashable, Sequence[RowFeatures]], Sequence[Result]]
    ) -> list[Result]:
        results: dict[int, Result] = {}
        with self._workers() as workers:
            for rows in _portions(encoded):
                features = self._read([encoded[row] for row in rows], workers)
                results |= zip(rows, self._decide(features, head, workers), strict=True)
        return [results[row] for row in range(len(encoded))]

    @property
    def reads_bags(self) -> bool:
        """Whether the features are pooled word vectors, so that `answers_of_sequences` may be used."""
        return bags.suits(self.model)

    def answers_of_sequences(self, sequences: Sequence[NDArray[Any]]) -> list[Answer]:
        """The same answers as those of `answers` to N rows of one sequence each, for pooled word vectors."""
        key = (1, 0)
        with self._workers() as workers:
            sizes = workers.run(self._head_sizes.of, key)
            kept = workers.run(self._pooled, sequences)

            def decide(job: tuple[list[int], int]) -> list[Answer]:
                part, size = job
                filled = kept[part[0] : part[-1] + 1]
                if len(part) < size:
                    filled = torch.cat([filled, filled[:1].expand(size - len(part), -1)])
                return self._decided(filled, {"rows": torch.arange(size)})[: len(part)]

            jobs = split(range(len(sequences)), sizes, threads=workers.threads)
            parts = map(decide, jobs) if workers.pool is None else workers.pool.map(decide, jobs)
            return [answer for part in parts for answer in part]

    def observed_answers(
        self, encoded: Sequence[Encoded], observe: Callable[[TaskModel, Tensor, Batch], Sequence[Result]]
    ) -> list[tuple[Answer, Result]]:
        """The answers to N rows, each with what `observe` returns for the row.

        Args:
            encoded: N rows.
            observe: (model, inputs of its head, batch of B rows) -> B values, which may depend on the batch.
        """

        return self._answers(encoded, self._observed(observe))

    def observe(
        self, features: Sequence[RowFeatures], observe: Callable[[TaskModel, Tensor, Batch], Sequence[Result]]
    ) -> list[tuple[Answer, Result]]:
        """`observed_answers` of N rows whose features are known."""
        with self._workers() as workers:
            return self._decide(features, self._observed(observe), workers)

    def decoded(self, features: Sequence[RowFeatures], outputs: Sequence[Tensor], head: Head) -> list[Answer]:
        """The answers of another head to the (S, U, C) outputs of N rows, each row on its own."""
        found: list[Answer] = []
        with self._computing(self.head_precision):
            for row, of_row in zip(features, outputs, strict=True):
                _, batch = self._head_inputs([row], self._head_key(row))
                found += head.answers(of_row.to(self.model.device), batch)
        return found

    def _observed(
        self, observe: Callable[[TaskModel, Tensor, Batch], Sequence[Result]]
    ) -> Callable[[Hashable, Sequence[RowFeatures]], list[tuple[Answer, Result]]]:
        def head(key: Hashable, rows: Sequence[RowFeatures]) -> list[tuple[Answer, Result]]:
            inputs, batch = self._head_inputs(rows, key)
            with self._computing(self.head_precision):
                vectors = self._head_vectors(inputs, batch)
                found = self.model.head.answers(self.model.outputs(vectors, batch), batch)
                return list(zip(found, observe(self.model, vectors, batch), strict=True))

        return head

    def features(self, encoded: Sequence[Encoded]) -> Iterator[tuple[int, RowFeatures]]:
        """The inputs of the head for N rows, with the rows' indices, portion by portion."""
        with self._workers() as workers:
            for rows in _portions(encoded):
                yield from zip(rows, self._read([encoded[row] for row in rows], workers), strict=True)

    def decide(self, features: Sequence[RowFeatures]) -> list[Answer]:
        """The answers of the head to N rows."""
        with self._workers() as workers:
            return self._decide(features, self._head_answers, workers)

    def prepare(self, longest: int) -> None:
        """Find the sizes of batches for all lengths up to `longest`, so that no later row waits for it."""
        if self.reads_bags:
            return
        with self._workers() as workers:
            for length in sorted({self._padded(length) for length in range(1, longest + 1)}):
                workers.run(self._encoder_sizes.of, length)

    def _read(self, encoded: Sequence[Encoded], workers: Workers) -> list[RowFeatures]:
        sequences = [
            OneSequence(*parts) for row in encoded for parts in zip(row.pieces, row.segments, row.units, strict=True)
        ]
        if self.reads_bags:
            found = list(workers.run(self._pooled, [one.pieces for one in sequences]))
        else:
            found = workers.compute(
                sequences, [self._padded(len(one.pieces)) for one in sequences], self._encoder_sizes, self._encode
            )
        features, start = [], 0
        for row in encoded:
            vectors = found[start : start + len(row.pieces)]
            start += len(row.pieces)
            if self.model.keeps_rows:
                vectors = [workers.run(self._combined, vectors, [len(pieces) for pieces in row.pieces])]
            features.append(RowFeatures(vectors, row.offsets))
        return features

    def _decide(
        self,
        features: Sequence[RowFeatures],
        head: Callable[[Hashable, Sequence[RowFeatures]], Sequence[Result]],
        workers: Workers,
    ) -> list[Result]:
        return workers.compute(list(features), [self._head_key(row) for row in features], self._head_sizes, head)

    def _encode(self, length: int, sequences: Sequence[OneSequence]) -> list[Tensor]:
        """The features of sequences, padded to one length: (F,) or (U, F) float32 each."""
        model, device = self.model, self.model.device
        tokens, segments = np.zeros((2, len(sequences), length), dtype=np.int64)
        for row, one in enumerate(sequences):
            tokens[row, : len(one.pieces)] = one.pieces
            segments[row, : len(one.segments)] = one.segments
        lengths = move(torch.tensor([len(one.pieces) for one in sequences]), device)
        with self._computing(self.precision):
            hidden = model.encoder.hidden_states(
                move(torch.from_numpy(tokens), device),
                lengths,
                move(torch.from_numpy(segments), device) if segments.any() else None,
            )
            if model.of_units:
                units, counts = pad([one.units for one in sequences], value=-1)
                found = model.features.of_units(hidden, move(units, device)).float().cpu()
                return [row[:count] for row, count in zip(found, counts.tolist(), strict=True)]
            return list(model.features.pooled(hidden, lengths).float().cpu())

    def _pooled(self, sequences: Sequence[NDArray[Any]]) -> Tensor:
        """The features of sequences of word vectors: (S, F) float32."""
        encoder = self.model.encoder
        assert isinstance(encoder, StaticVectors)  # as `bags.suits` has found
        with self._computing(self.precision):
            features = self.model.features
            found = bags.pooled(encoder, sequences, pooling=features.pooling)
            return features.joined(found.chunk(3 if features.pooling == "concat" else 1, dim=1))

    def _combined(self, vectors: list[Tensor], lengths: list[int]) -> Tensor:
        device = self.model.device
        rows = torch.zeros(len(vectors), dtype=torch.int64, device=device)
        with self._computing(self.precision):
            found = self.model.of_rows(torch.stack(vectors).to(device), rows, torch.tensor(lengths, device=device))
            return found[0].float().cpu()

    def _head_inputs(self, rows: Sequence[RowFeatures], key: Hashable) -> tuple[Tensor, Batch]:
        """The features of rows with the same number of sequences, and of units after padding; and the batch."""
        model, device = self.model, self.model.device
        sequences, units = key if isinstance(key, tuple) else (1, 0)
        batch: Batch = {"rows": torch.arange(len(rows)).repeat_interleave(sequences)}
        vectors = [vector for row in rows for vector in row.vectors]
        if model.of_units:
            kept = torch.zeros(len(vectors), units, vectors[0].shape[1])
            for target, vector in zip(kept, vectors, strict=True):
                target[: len(vector)] = vector
            batch["unit_lengths"] = torch.tensor([len(vector) for vector in vectors])
            offsets = [part for row in rows for part in row.offsets]
            if any(len(part) for part in offsets):
                padded = np.full((len(vectors), units, 2), -1, dtype=np.int64)
                for place, part in zip(padded, offsets, strict=True):
                    place[: len(part)] = part
                batch["offsets"] = torch.from_numpy(padded)
        else:
            kept = torch.stack(vectors)
        return move(kept, device), to_device(batch, device)

    def _head_vectors(self, kept: Tensor, batch: Batch) -> Tensor:
        return kept if self.model.keeps_rows else self.model.above(kept, batch["rows"])

    def _head_answers(self, key: Hashable, rows: Sequence[RowFeatures]) -> list[Answer]:
        return self._decided(*self._head_inputs(rows, key))

    def _decided(self, kept: Tensor, batch: Batch) -> list[Answer]:
        with self._computing(self.head_precision):
            return self.model.head.answers(self.model.outputs(self._head_vectors(kept, batch), batch), batch)

    # -- sizes of batches --------------------------------------------------------------------------------------------

    def _padded(self, length: int) -> int:
        return padded_length(length, self.model.encoder.max_tokens)

    def _rows(self, length: int) -> tuple[int, int]:
        least = whole_vectors(length * self._width)
        return least, max(least, 1 << max(0, (self._pieces // length).bit_length() - 1))

    def _head_rows(self, key: tuple[int, int]) -> tuple[int, int]:
        _, units = key
        return whole_vectors(units) if units else HEAD_ROWS, HEAD_ROWS

    def _head_key(self, row: RowFeatures) -> tuple[int, int]:
        return len(row.vectors), padded_length(max(map(len, row.vectors))) if self.model.of_units else 0

    def _sample_sequences(self, length: int) -> tuple[OneSequence, OneSequence]:
        first, second = (
            sample_sequence(self.model.encoder, count, seed=length) for count in (length, max(1, length - 2))
        )
        return first, second

    def _sample_features(self, key: tuple[int, int]) -> tuple[RowFeatures, RowFeatures]:
        sequences, units = key
        generator = torch.Generator().manual_seed(units)

        def sample(count: int) -> RowFeatures:
            shape = (count, self.model.width) if self.model.of_units else (self.model.width,)
            vectors = [torch.randn(shape, generator=generator) for _ in range(sequences)]
            places = np.arange(count, dtype=np.int64)
            return RowFeatures(vectors, [np.stack([2 * places, 2 * places + 1], axis=1)] * sequences)

        return sample(units), sample(max(1, units - 1))

    def _compare_heads(self, key: Hashable, rows: Sequence[RowFeatures]) -> list[list[Any]]:
        """Answers and outputs: an answer such as a tag does not show all differences."""
        kept, batch = self._head_inputs(rows, key)
        with self._computing(self.head_precision):
            outputs = self.model.outputs(self._head_vectors(kept, batch), batch)
            answers = self.model.head.answers(outputs, batch)
        per_row = outputs.float().cpu().unflatten(0, (len(rows), -1))
        return [[answer, row.numpy()] for answer, row in zip(answers, per_row, strict=True)]

    @contextmanager
    def _computing(self, precision: Precision) -> Iterator[None]:
        with computing(precision, self.model.device), fixed_shapes():
            yield

    # -- threads -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _workers(self) -> Iterator[Workers]:
        threads = 1 if self.model.device.type == "cuda" else torch.get_num_threads()
        with evaluating(self.model):
            if threads == 1:
                yield Workers(1, None)
                return
            with ThreadPoolExecutor(threads, "predict", initializer=torch.set_num_threads, initargs=(1,)) as pool:
                try:
                    yield Workers(threads, pool)
                finally:
                    # Threads that other parts of the process start later are not limited.
                    torch.set_num_threads(threads)


def sample_sequence(encoder: LanguageModel, length: int, *, seed: int) -> OneSequence:
    """A sequence of random pieces with the family's special pieces; every piece is a unit."""
    rng = np.random.default_rng([seed, length])
    count = max(1, length - len(encoder.special_tokens([FIRST_ORDINARY])) + 1)
    ids = rng.integers(min(FIRST_ORDINARY, encoder.config.vocabulary - 1), encoder.config.vocabulary, count)
    pieces = np.asarray(encoder.special_tokens(ids.tolist()), dtype=np.int64)
    places = np.arange(len(pieces), dtype=np.int64)
    return OneSequence(pieces, np.zeros_like(pieces), np.stack([places, places], axis=1))


def _portions(encoded: Sequence[Encoded]) -> Iterator[list[int]]:
    """Row indices, the longest rows first, so that rows of similar length are in one portion."""
    pieces = [sum(map(len, row.pieces)) for row in encoded]
    order = sorted(range(len(encoded)), key=lambda row: (-max(map(len, encoded[row].pieces)), row))
    portion: list[int] = []
    held = 0
    for row in order:
        if portion and held + pieces[row] > PORTION_PIECES:
            yield portion
            portion, held = [], 0
        portion.append(row)
        held += pieces[row]
    if portion:
        yield portion
