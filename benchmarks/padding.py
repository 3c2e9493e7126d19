"""The share of padding in the batches of fine-tuning, of heads on frozen features and of prediction, on given texts.

    python benchmarks/padding.py trec/train.tsv imdb/train.jsonl.zst squad/train-sample.json snips/train/seq.in

A file is a table (csv, tsv: its first column; jsonl: `text`), questions (json, as SQuAD's) or sentences whose words are
tagged (any other name: one a line); .gz or .zst may stand behind. Texts are cut by a WordPiece vocabulary that is
learned from all files, and read up to `--max-length` pieces, questions in windows of `--window`. The batches are those
that the stages make: nothing is estimated. A place is a piece, or a unit's vector where a head reads units on frozen
features; heads that read one vector a text know no padding there (-).

`learn` is what the batches hold (long texts in groups of like length), `packed` what a Transformer computes of them:
where padding is more than 5%, it puts several texts into a row (components.models.layers.packing). `recurrent` is the
share of padding in the products of an AWD-LSTM of 320 and 640 on this machine: large layers leave padding out, small
ones read it, since that is quicker (components.models.layers.lstm). Questions on frozen features keep some 10%: the
windows of a row stay together, and their head reads only what is no padding.

`--timed` measures ratios of the time of an epoch's gradients on the smallest training sets, with one thread. `packed`:
BERT with 6 layers of 384, with packing over without. `steps`: that AWD-LSTM over the same with padding read in all of
its layers. `small`: both directions of FLAIR with 512, without padding over with it: what keeps small layers to it.
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
from components.models.layers import lstm
from components.models.layers.chunks import Texts
from components.models.layers.lstm import LSTM
from components.models.layers.ragged import ragged
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

#: Texts of each file that the vocabulary is learned from.
LEARNED_FROM = 2000
EPOCHS = 3
#: Of the models whose steps are timed: MiniLM's, ULMFiT's of params.yaml, and FLAIR's defaults.
TIMED_BERT = {"width": 384, "heads": 12, "layers": 6}
TIMED_LSTM = {"embedding": 320, "hidden": 640, "layers": 2}
TIMED_SMALL = {"embedding": 100, "hidden": 512}
#: Times that each training set is timed.
TURNS = 3


def main() -> None:
    """Read the arguments, print one line a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--train-rows", type=int, nargs="+", default=[100, 1000], help="of the training sets")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a batch that is learned from")
    parser.add_argument("--max-length", type=int, default=256, help="pieces of a text")
    parser.add_argument("--window", type=int, default=192, help="pieces of a window of questions")
    parser.add_argument("--rows", type=int, default=5000, help="predicted of each file, drawn at random")
    parser.add_argument("--seeds", type=int, default=5, help="training sets drawn of each size")
    parser.add_argument("--timed", action="store_true", help="what packing and padding cost, on the smallest sets")
    arguments = parser.parse_args()
    threads.own(1)
    sets = {path: _read(path) for path in arguments.files}
    tokenizer = _vocabulary([rows for _, rows in sets.values()])
    kinds = ("learn", "packed", "recurrent", "frozen")
    header = [f"{kind} {count:,}" for kind in kinds for count in arguments.train_rows] + ["predict"]
    if arguments.timed:
        header += ["time packed", "time steps", "time small"]
    print(f"share of padding, %{'':<17}" + "".join(f"{name:>16}" for name in header))
    for path, (kind, rows) in sets.items():
        drawn = np.random.default_rng(0).permutation(len(rows))[: arguments.rows]
        found = _measure(kind, [rows[row] for row in drawn], tokenizer, arguments)
        shown = "".join(f"{'-' if share is None else f'{100 * share:.1f}':>16}" for share in found)
        if arguments.timed:
            for timed in (_time_packed, _time_steps, _time_small):
                shown += f"{timed(kind, [rows[row] for row in drawn], tokenizer, arguments):>15.2f}x"
        print(f"{path.parent.name + '/' + path.name:<35}{shown}", flush=True)


class Places:
    """Counts places of batches, those that are computed, and those that are no padding."""

    def __init__(self) -> None:
        self.all = self.computed = self.real = 0

    def add(self, table: Tensor, lengths: Tensor) -> None:
        """A batch (S, T, ...) of sequences of these lengths (S,)."""
        self.all += table.shape[0] * table.shape[1]
        self.real += int(lengths.sum())

    @property
    def waste(self) -> float:
        """Share of padding in the batches."""
        return 1 - self.real / self.all

    @property
    def packed(self) -> float:
        """Share of padding in what is computed."""
        return 1 - self.real / self.computed


def _measure(
    kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace
) -> list[float | None]:
    """Of fine-tuning and of the head alone, for each size of training set; of prediction."""
    sizes = {"width": 8, "heads": 1, "layers": 1}
    model, settings = _model(kind, tokenizer, sizes, arguments)
    task, labels = find_task(kind), _labels(kind)
    encoded = task.encode(rows, tokenizer, model.encoder, settings)
    learned = [_learned(model, encoded, count, arguments) for count in arguments.train_rows]
    padded, packed = [places.waste for places in learned], [places.packed for places in learned]
    recurrent = [_recurrent(encoded, tokenizer, count, arguments) for count in arguments.train_rows]
    frozen = [_frozen(encoded, count, arguments) if model.of_units else None for count in arguments.train_rows]
    with _counting(model) as places:
        TextClassifier(labels, model, tokenizer, task, settings).answer(rows)
    return [*padded, *packed, *recurrent, *frozen, places.packed]


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
    """Median over training sets and turns: an epoch's gradients with batches packed, over the same as they are."""
    model, settings = _model(kind, tokenizer, TIMED_BERT, arguments)
    model.train()
    encoded = find_task(kind).encode(rows, tokenizer, model.encoder, settings)

    def whole(batches: Sequence[Batch]) -> float:
        with patch("components.models.layers.masked.packing", return_value=None):
            return _seconds(model, batches)

    return _ratio(encoded, lambda batches: _seconds(model, batches), whole, arguments)


def _time_steps(kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace) -> float:
    """Median over training sets and turns: an epoch's gradients of the AWD-LSTM over the same by the kernel alone."""
    return _time_recurrent("ulmfit", TIMED_LSTM, kind, rows, tokenizer, arguments)


def _time_small(kind: str, rows: Sequence[Fields], tokenizer: Tokenizer, arguments: argparse.Namespace) -> float:
    """The same of layers that are too small for steps, if they went by them: what leaving out padding would cost."""
    with patch.object(LSTM, "_suits_steps", lambda *_: True):
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
        with patch.object(LSTM, "_suits_steps", lambda *_: False):
            return _seconds(reader, batches)

    return _ratio(encoded, lambda batches: _seconds(reader, batches), by_kernel, arguments)


class _Reader(nn.Module):
    """A model without a head."""

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
    """Median over the smallest training sets and turns, both on the batches of an epoch."""
    ratios = []
    for seed, drawn in _draws(encoded, min(arguments.train_rows), arguments):
        sampler = ExampleSampler(drawn, [np.zeros(1)] * len(drawn), batch_size=arguments.batch_size, seed=seed)
        batches = [sampler.batch(step) for step in range(sampler.epoch_steps)]
        for turn in range(1 + TURNS):
            ratio = numerator(batches) / denominator(batches)
            if turn:  # the first touches memory
                ratios.append(ratio)
    return statistics.median(ratios)


def _seconds(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Of computing the gradients of a loss on all batches."""
    began = time.perf_counter()
    for batch in batches:
        with computing(_precision(), torch.device("cpu")):
            loss = model(batch).float().square().mean()
        loss.backward()
        model.zero_grad()
    return time.perf_counter() - began


def _precision() -> Precision:
    return "bf16" if has_bf16(torch.device("cpu")) else "float32"


def _draws(
    encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace
) -> Iterator[tuple[int, list[Encoded]]]:
    for seed in range(arguments.seeds):
        yield seed, [encoded[row] for row in np.random.default_rng(seed).permutation(len(encoded))[:count]]


def _batches(encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> Iterator[Batch]:
    """What training sets of this size are learned from."""
    for seed, rows in _draws(encoded, count, arguments):
        sampler = ExampleSampler(rows, [np.zeros(1)] * len(rows), batch_size=arguments.batch_size, seed=seed)
        yield from _epochs(sampler, sampler.epoch_steps)


def _learned(model: TaskModel, encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> Places:
    with _counting(model) as places:  # with gradients, which groups long texts by length
        for batch in _batches(encoded, count, arguments):
            model(batch)
    return places


def _recurrent(encoded: Sequence[Encoded], tokenizer: Tokenizer, count: int, arguments: argparse.Namespace) -> float:
    """Of the products of the AWD-LSTM's layers; nothing is computed."""
    encoder = build_model("ulmfit", vocabulary=tokenizer.vocab_size, settings=TIMED_LSTM)
    computed = real = 0

    def noting(places: Callable[[Tensor, Texts], int]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        def run(
            x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor, weights: Sequence[Tensor], texts: Texts
        ) -> tuple[Tensor, Tensor, Tensor]:
            nonlocal computed, real
            size = weights[0].numel() + weights[1].numel()
            computed += size * places(x_TBI, texts)
            real += size * int(texts.lengths.sum())
            return x_TBI.new_zeros(*x_TBI.shape[:2], h_BH.shape[1]), h_BH, c_BH

        return run

    with (
        patch.object(lstm, "_by_kernel", noting(lambda x_TBI, _: x_TBI.shape[0] * x_TBI.shape[1])),
        patch.object(lstm, "_by_steps", noting(lambda x_TBI, texts: len(ragged(x_TBI, texts).places))),
        computing(_precision(), torch.device("cpu")),
    ):
        for batch in _batches(encoded, count, arguments):
            encoder.hidden_states(batch["tokens"], batch["lengths"])
    return 1 - real / computed


def _frozen(encoded: Sequence[Encoded], count: int, arguments: argparse.Namespace) -> float:
    places = Places()
    for seed, rows in _draws(encoded, count, arguments):
        lengths = np.asarray([len(units) for row in rows for units in row.units])
        counts = np.asarray([len(row.units) for row in rows])
        none = np.zeros((0, 2), dtype=np.int64)
        table = FeatureTable(torch.zeros(lengths.sum(), 1), np.cumsum(lengths) - lengths, lengths, counts, none)
        sampler = FeatureSampler(table, [np.zeros(1)] * len(rows), batch_size=arguments.batch_size, seed=seed)
        for batch in _epochs(sampler, sampler.epoch_steps):
            places.add(batch["features"], batch["unit_lengths"])
    return places.waste


def _epochs(sampler: Sampler, steps: int) -> Iterator[dict[str, Tensor]]:
    return (sampler.batch(step) for step in range(EPOCHS * steps))


@contextmanager
def _counting(model: TaskModel) -> Iterator[Places]:
    """The places of what the encoder is given, and computes, in the meantime."""
    places, encoder = Places(), model.encoder
    assert isinstance(encoder, BERT)
    read, run = encoder.hidden_states, encoder.run

    def counted(tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        places.add(tokens, lengths)
        return read(tokens, lengths, segments)

    def computed(tokens: Tensor, *others: Tensor | None) -> list[Tensor]:
        places.computed += tokens.numel()
        return run(tokens, *others)

    encoder.hidden_states, encoder.run = counted, computed  # type: ignore[method-assign]
    yield places
    encoder.hidden_states, encoder.run = read, run  # type: ignore[method-assign]


def _vocabulary(sets: Sequence[Sequence[Fields]]) -> Tokenizer:
    texts = [" ".join(fields) for rows in sets for fields in rows[:LEARNED_FROM]]
    settings = WordPieceSettings(vocabulary=8000, min_frequency=1)
    return train_wordpiece(texts, settings=settings, segmentation=Segmentation("none"))


def _read(path: Path) -> tuple[str, list[Fields]]:
    """The kind of task and the inputs of a file."""
    name = Path(path.name.removesuffix(".gz").removesuffix(".zst"))
    if name.suffix == ".json":
        return "questions", [(entry.question, entry.context) for entry in read_squad(path, Reading())]
    with pa.input_stream(str(path), compression="detect") as stream:
        # Of bytes, where only line breaks end a line.
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
