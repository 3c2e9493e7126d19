"""Fraction of padding in the batches of fine-tuning, of heads on frozen features and of prediction, for given texts.

    python benchmarks/padding.py trec/train.tsv imdb/train.jsonl.zst squad/train-sample.json snips/train/seq.in

A file is a table (csv, tsv: first column; jsonl: `text`), questions (json in SQuAD's format) or sentences for tagging
(any other suffix: one per line); all may be compressed (.gz, .zst). A WordPiece vocabulary is trained on all files.
Texts are truncated to `--max-length` tokens; questions have windows of `--window` tokens. The batches are those of the
stages, so the fractions are exact. A position is a token, or the vector of a unit where a head reads units on frozen
features. Heads that read one vector per text have no padding there (-).

`learn` is the fraction of padding in the batches (long texts are grouped by length). `packed` is the fraction in the
rows that a Transformer computes: if a batch has more than 5% padding, several texts are packed into one row
(components.models.layers.packing). `recurrent` is the fraction in the matrix products of an AWD-LSTM (embedding 320,
width 640) on this machine: large layers omit padding, small ones compute it because that is faster
(components.models.layers.lstm_kernels). `frozen` is the fraction in the batches of a head on frozen features. Questions
have about 10% there, because the windows of a row stay together; their head reads no padding.

`--timed` measures ratios of the time of one epoch's forward and backward passes on the smallest training sets, with one
thread. `packed`: BERT with 6 layers of width 384, with packing relative to without. `steps`: the AWD-LSTM without
padding in its large layers, relative to computing padding in all layers. `small`: both directions of a FLAIR of width
512 without padding, relative to computing it.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from components.finetuning.features import FeatureTable
from components.finetuning.probe import FeatureSampler
from components.formats.lines import Reading
from components.formats.squad import read_squad
from components.models.base import Batch, LanguageModel
from components.models.bert import BERT
from components.models.encoder import build_model
from components.models.layers import lstm_kernels
from components.models.layers.chunks import Texts
from components.models.layers.ragged import ragged
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.finetune import FinetuneSettings
from components.settings.tokenizer import WordPieceSettings
from components.settings.training import Training
from components.task_models.base import Encoded
from components.task_models.classifier import TextClassifier
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.task_models.sampler import ExampleSampler
from components.tasks.data import Fields
from components.tokenization import Tokenizer
from components.tokenization.segmenters import Segmentation
from components.tokenization.wordpiece import train_wordpiece
from components.training import threads
from components.training.precision import Precision, computing, has_bf16
from components.training.windows import Sampler

#: Number of texts of each file that the vocabulary is trained on.
LEARNED_FROM = 2000
EPOCHS = 3
#: Sizes of the models that `--timed` measures: those of MiniLM, of ULMFiT in params.yaml, and of FLAIR by default.
TIMED_BERT = {"width": 384, "heads": 12, "layers": 6}
TIMED_LSTM = {"embedding": 320, "hidden": 640, "layers": 2}
TIMED_SMALL = {"embedding": 100, "hidden": 512}
#: Number of measurements of each training set.
TURNS = 3


def main() -> None:
    """Print one line for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--train-rows", type=int, nargs="+", default=[100, 1000], help="sizes of the training sets")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a training batch")
    parser.add_argument("--max-length", type=int, default=256, help="maximum tokens of a text")
    parser.add_argument("--window", type=int, default=192, help="tokens of a window of questions")
    parser.add_argument(
        "--rows", type=int, default=5000, help="number of rows of each file, sampled at random, that are predicted"
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of sampled training sets of each size")
    parser.add_argument(
        "--timed", action="store_true", help="also measure the time that packing saves and padding costs"
    )
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    sets = {path: _read(path) for path in arguments.files}
    tokenizer = _vocabulary([rows for _, rows in sets.values()])
    kinds = ("learn", "packed", "recurrent", "frozen")
    header = [f"{kind} {count:,}" for kind in kinds for count in arguments.train_rows] + ["predict"]
    if arguments.timed:
        header += ["time packed", "time steps", "time small"]
    print(f"{'padding, %':<35}" + "".join(f"{name:>16}" for name in header))
    measured: dict[str, dict[str, float]] = {}
    for path, (kind, rows) in sets.items():
        order = np.random.default_rng(0).permutation(len(rows))[: arguments.rows]
        sampled = [rows[row] for row in order]
        found = [None if part is None else 100 * part for part in _measure(kind, sampled, tokenizer, arguments)]
        shown = "".join(f"{'-' if part is None else f'{part:.1f}':>16}" for part in found)
        if arguments.timed:
            times = [timed(kind, sampled, tokenizer, arguments) for timed in (_time_packed, _time_steps, _time_small)]
            shown += "".join(f"{ratio:>15.2f}x" for ratio in times)
            found += times
        name = f"{path.parent.name}/{path.name}"
        print(f"{name:<35}{shown}", flush=True)
        measured[name] = {column: value for column, value in zip(header, found, strict=True) if value is not None}
    record(
        arguments.record,
        title=f"Padding, batches of {arguments.batch_size}",
        row_title="data",
        columns=[Column(name=name, title=name, format=".2f" if name.startswith("time") else ".1f") for name in header],
        values=measured,
        seeds=range(arguments.seeds),
        notes="Fractions of padding in percent; times without padding relative to the times with it.",
    )


class Positions:
    """Numbers of positions: in the batches, computed by the encoder, and without padding."""

    def __init__(self) -> None:
        self.all = self.computed = self.real = 0

    def add(self, table: Tensor, lengths: Tensor) -> None:
        """Add a batch (S, T, ...) of sequences with lengths (S,)."""
        self.all += table.shape[0] * table.shape[1]
        self.real += int(lengths.sum())

    @property
    def waste(self) -> float:
        """Fraction of padding in the batches."""
        return 1 - self.real / self.all

    @property
    def packed(self) -> float:
        """Fraction of padding in what is computed."""
        return 1 - self.real / self.computed


def _measure(
    kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace
) -> list[float | None]:
    """Fractions of padding, in the order of the header: fine-tuning and the head alone for each size, prediction."""
    sizes = {"width": 8, "heads": 1, "layers": 1}
    model, settings = _model(kind, tokenizer, sizes, arguments)
    task, labels = find_task(kind), _labels(kind)
    encoded = task.encode(rows, tokenizer, model.encoder, settings)
    learned = [_learned(model, encoded, count, arguments) for count in arguments.train_rows]
    padded, packed = [positions.waste for positions in learned], [positions.packed for positions in learned]
    recurrent = [_recurrent(encoded, tokenizer, count, arguments) for count in arguments.train_rows]
    frozen = [_frozen(encoded, count, arguments) if model.of_units else None for count in arguments.train_rows]
    with _counting(model) as positions:
        TextClassifier(labels, model, tokenizer, task, settings).answer(rows)
    return [*padded, *packed, *recurrent, *frozen, positions.packed]


def _model(
    kind: str, tokenizer: Tokenizer, sizes: dict[str, int], arguments: argparse.Namespace
) -> tuple[TaskModel, FinetuneSettings]:
    settings = FinetuneSettings(
        layers="last", pooling="summary", training=Training(rate=1e-4, batch_size=arguments.batch_size),
        max_length=arguments.window if kind == "questions" else arguments.max_length,
    )  # fmt: skip
    sizes = sizes | {"positions": max(arguments.max_length, arguments.window)}
    encoder = build_model("bert", vocabulary=tokenizer.vocab_size, settings=sizes)
    return TaskModel(encoder, task=find_task(kind), settings=settings, labels=_labels(kind)).eval(), settings


def _labels(kind: str) -> list[str]:
    return ["O"] if kind == "tagging" else ["a", "b"]


def _time_packed(kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace) -> float:
    """Time of an epoch with packed batches relative to unpacked ones."""
    model, settings = _model(kind, tokenizer, TIMED_BERT, arguments)
    model.train()
    encoded = find_task(kind).encode(rows, tokenizer, model.encoder, settings)

    def whole(batches: Sequence[Batch]) -> float:
        with patch("components.models.layers.masked.packing", return_value=None):
            return _seconds(model, batches)

    return _ratio(encoded, lambda batches: _seconds(model, batches), whole, arguments)


def _time_steps(kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace) -> float:
    """Time of an epoch of the AWD-LSTM, relative to the library's kernel in all layers."""
    return _time_recurrent("ulmfit", TIMED_LSTM, kind, rows, tokenizer, arguments)


def _time_small(kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace) -> float:
    """Time of an epoch of FLAIR step by step, relative to the library's kernel, which small layers use by default."""
    with patch.object(lstm_kernels, "suits_steps", lambda *_: True):
        return _time_recurrent("flair", TIMED_SMALL, kind, rows, tokenizer, arguments)


def _time_recurrent(
    family: str,
    sizes: dict[str, int],
    kind: str,
    rows: Sequence[Fields],
    tokenizer: Tokenizer,
    arguments: argparse.Namespace,
) -> float:
    reader = _Reader(build_model(family, vocabulary=tokenizer.vocab_size, settings=sizes)).train()
    model, settings = _model(kind, tokenizer, {"width": 8, "heads": 1, "layers": 1}, arguments)
    encoded = find_task(kind).encode(rows, tokenizer, model.encoder, settings)

    def by_kernel(batches: Sequence[Batch]) -> float:
        with patch.object(lstm_kernels, "suits_steps", lambda *_: False):
            return _seconds(reader, batches)

    return _ratio(encoded, lambda batches: _seconds(reader, batches), by_kernel, arguments)


class _Reader(nn.Module):
    """An encoder without a head."""

    def __init__(self, encoder: LanguageModel) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, batch: Batch) -> Tensor:
        return self.encoder.hidden_states(batch["tokens"], batch["lengths"])[-1]


def _ratio(
    encoded: Sequence[Encoded],
    numerator: Callable[[Sequence[Batch]], float],
    denominator: Callable[[Sequence[Batch]], float],
    arguments: argparse.Namespace,
) -> float:
    """Median ratio over the smallest training sets and turns, on the batches of one epoch."""
    ratios = []
    for seed, rows in _samples(encoded, min(arguments.train_rows), arguments):
        sampler = ExampleSampler(rows, [np.zeros(1)] * len(rows), batch_size=arguments.batch_size, seed=seed)
        batches = [sampler.batch(step) for step in range(sampler.epoch_steps)]
        for turn in range(1 + TURNS):
            ratio = numerator(batches) / denominator(batches)
            if turn:  # the first turn is a warm-up
                ratios.append(ratio)
    return statistics.median(ratios)


def _seconds(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Seconds of the forward and backward passes of all batches."""
    began = time.perf_counter()
    for batch in batches:
        with computing(_precision(), torch.device("cpu")):
            loss = model(batch).float().square().mean()
        loss.backward()
        model.zero_grad()
    return time.perf_counter() - began


def _precision() -> Precision:
    return "bf16" if has_bf16(torch.device("cpu")) else "float32"


def _samples(
    encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace
) -> Iterator[tuple[int, list[Encoded]]]:
    for seed in range(arguments.seeds):
        yield seed, [encoded[row] for row in np.random.default_rng(seed).permutation(len(encoded))[:count]]


def _batches(encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> Iterator[Batch]:
    """The batches of all epochs of training sets of `count` rows."""
    for seed, rows in _samples(encoded, count, arguments):
        sampler = ExampleSampler(rows, [np.zeros(1)] * len(rows), batch_size=arguments.batch_size, seed=seed)
        yield from _epochs(sampler, sampler.epoch_steps)


def _learned(model: TaskModel, encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> Positions:
    with _counting(model) as positions:  # with gradients, so that long texts are grouped by length
        for batch in _batches(encoded, count, arguments):
            model(batch)
    return positions


def _recurrent(encoded: Sequence[Encoded], tokenizer: Tokenizer, count: int, arguments: argparse.Namespace) -> float:
    """Fraction of padding in the matrix products of the AWD-LSTM; the products are counted, not computed."""
    encoder = build_model("ulmfit", vocabulary=tokenizer.vocab_size, settings=TIMED_LSTM)
    computed = real = 0

    def noting(positions: Callable[[Tensor, Texts], int]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        def run(
            x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Sequence[Tensor], texts: Texts
        ) -> tuple[Tensor, Tensor, Tensor]:
            nonlocal computed, real
            size = weights[0].numel() + weights[1].numel()
            computed += size * positions(x_TBI, texts)
            real += size * int(texts.lengths.sum())
            return x_TBI.new_zeros(*x_TBI.shape[:2], h_BH.shape[1]), h_BH, c_BH

        return run

    with (
        patch.object(lstm_kernels, "by_library", noting(lambda x_TBI, _: x_TBI.shape[0] * x_TBI.shape[1])),
        patch.object(lstm_kernels, "by_steps", noting(lambda x_TBI, texts: len(ragged(x_TBI, texts).values))),
        computing(_precision(), torch.device("cpu")),
    ):
        for batch in _batches(encoded, count, arguments):
            encoder.hidden_states(batch["tokens"], batch["lengths"])
    return 1 - real / computed


def _frozen(encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> float:
    positions = Positions()
    for seed, rows in _samples(encoded, count, arguments):
        lengths = np.asarray([len(units) for row in rows for units in row.units])
        counts = np.asarray([len(row.units) for row in rows])
        none = np.zeros((0, 2), dtype=np.int64)
        table = FeatureTable(torch.zeros(lengths.sum(), 1), np.cumsum(lengths) - lengths, lengths, counts, none)
        sampler = FeatureSampler(table, [np.zeros(1)] * len(rows), batch_size=arguments.batch_size, seed=seed)
        for batch in _epochs(sampler, sampler.epoch_steps):
            positions.add(batch["features"], batch["unit_lengths"])
    return positions.waste


def _epochs(sampler: Sampler, steps: int) -> Iterator[dict[str, Tensor]]:
    return (sampler.batch(step) for step in range(EPOCHS * steps))


@contextmanager
def _counting(model: TaskModel) -> Iterator[Positions]:
    """Counts the input positions of the encoder and the positions that it computes, within the block."""
    positions, encoder = Positions(), model.encoder
    assert isinstance(encoder, BERT)
    read, run = encoder.hidden_states, encoder.run

    def counted(tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        positions.add(tokens, lengths)
        return read(tokens, lengths, segments)

    def computed(tokens: Tensor, *others: Tensor | None) -> list[Tensor]:
        positions.computed += tokens.numel()
        return run(tokens, *others)

    encoder.hidden_states, encoder.run = counted, computed  # type: ignore[method-assign]
    yield positions
    encoder.hidden_states, encoder.run = read, run  # type: ignore[method-assign]


def _vocabulary(sets: Sequence[Sequence[Fields]]) -> Tokenizer:
    texts = [" ".join(fields) for rows in sets for fields in rows[:LEARNED_FROM]]
    settings = WordPieceSettings(vocabulary=8000, min_frequency=1)
    return train_wordpiece(texts, settings=settings, segmentation=Segmentation("none"))


def _read(path: Path) -> tuple[str, list[Fields]]:
    """Kind of task and inputs of the rows of a file."""
    name = Path(path.name.removesuffix(".gz").removesuffix(".zst"))
    if name.suffix == ".json":
        return "questions", [(entry.question, entry.context) for entry in read_squad(path, Reading())]
    with pa.input_stream(str(path), compression="detect") as stream:
        # Lines are split as bytes, because `str.splitlines` also splits at other characters than line breaks.
        found = stream.read().splitlines()
    try:
        lines = [line.decode() for line in found]
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path}: not UTF-8 ({error})") from error
    match name.suffix:
        case ".jsonl":
            return "classification", [(json.loads(line)["text"],) for line in lines]
        case ".csv":
            return "classification", [(row[0],) for row in csv.reader(lines) if row and row[0]]
        case ".tsv":
            return "classification", [(line.partition("\t")[0],) for line in lines if line]
        case _:
            return "tagging", [tuple(line.split()) for line in lines if line.strip()]


if __name__ == "__main__":
    main()
