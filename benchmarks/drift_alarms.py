"""False alarms and power of `headstart drift` on real texts.

    python benchmarks/drift_alarms.py DATA [--checks 400] [--years 20] [--record NAME]

DATA has the folders sst2 (train.tsv, dev.tsv, test.tsv: text TAB label), trec (TREC.train.all: label SPACE text), imdb
(train.jsonl.zst) and, for the change of language, thaigov (docs.jsonl.zst). For SST-2, TREC and IMDb a classifier is
trained on a third of the rows: mean of random word vectors and a logistic regression. It measures all rows, as `serve`
does. Its reference has rows of that third and of a second one, which takes the part of dev.

No drift: windows are samples of the last third; every check has new samples of both. `year`: one fixed reference, 365
windows of seven days, each sharing six with the one before. Drift: the windows are changed as named. Alarms are counted
by the rule as shipped, at an error of 0.05 / 365 per check; without drift also those of the tests alone, without the
smallest effect, at larger errors, where false alarms are frequent enough to be counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from components.drift.comparison import compare
from components.drift.measurements import Measured, Reference
from components.drift.measuring import measure
from components.drift.reference import TRAIN_ROWS, UNSEEN_ROWS
from components.models.encoder import build_model
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.drift import DriftSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tokenizer import WordSettings
from components.settings.training import Training
from components.task_models.classifier import TextClassifier
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel, run_over
from components.tokenization.segmenters import Segmentation
from components.tokenization.word import train_word

Ints = NDArray[np.int64]
WINDOWS = (200, 500, 1500)
VOCABULARY = 2500
#: Rows per day of the simulated years.
DAILY = 60
SHIPPED = DriftSettings(least_rows=100)
#: Errors of one check at which the tests alone are counted.
ERRORS = (0.1, 0.01)


@dataclass(frozen=True)
class Texts:
    """N texts with the indices of their classes."""

    texts: list[str]
    labels: Ints

    def take(self, rows: Ints) -> Texts:
        """The rows with these indices."""
        return Texts([self.texts[row] for row in rows], self.labels[rows])


def read(data: Path, name: str) -> Texts:
    """The rows of a data set; documents without a class have class 0."""
    return Texts(*_with_indices(list(_READERS[name](data / name))))


def _with_indices(rows: Sequence[tuple[str, str]]) -> tuple[list[str], Ints]:
    names = sorted({label for _, label in rows})
    return [text for text, _ in rows], np.array([names.index(label) for _, label in rows], dtype=np.int64)


def _sst2(folder: Path) -> Iterator[tuple[str, str]]:
    for split in ("train", "dev", "test"):
        for line in (folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines():
            text, _, label = line.rpartition("\t")
            yield text, label


def _trec(folder: Path) -> Iterator[tuple[str, str]]:
    for line in (folder / "TREC.train.all").read_text(encoding="latin-1").splitlines():
        label, _, text = line.partition(" ")
        yield text, label


def _json(file: Path, label: str | None, *, most: int) -> Iterator[tuple[str, str]]:
    with pa.input_stream(str(file), compression="zstd") as stream:
        lines = stream.read().decode("utf-8").rstrip("\n").split("\n")
    # The files are ordered by label.
    for line in lines[:: max(1, len(lines) // most)]:
        row = json.loads(line)
        yield row["text"].replace("<br />", " "), str(row[label]) if label else ""


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "sst2": _sst2,
    "trec": _trec,
    "imdb": lambda folder: _json(folder / "train.jsonl.zst", "label", most=9000),
    "thaigov": lambda folder: _json(folder / "docs.jsonl.zst", None, most=2000),
}


def train(rows: Texts, *, seed: int = 0) -> TextClassifier:
    """A classifier whose word vectors are random and whose head is a logistic regression on their mean."""
    words = WordSettings(vocabulary=VOCABULARY, min_frequency=1)
    tokenizer = train_word(rows.texts, settings=words, segmentation=Segmentation("none"))
    settings = FinetuneSettings(
        layers="last", pooling="mean", head_dropout=0.0, max_length=256, training=Training(rate=0.1, batch_size=4)
    )
    labels = [str(label) for label in range(int(rows.labels.max()) + 1)]
    torch.manual_seed(seed)
    encoder = build_model("word2vec", vocabulary=tokenizer.vocab_size, settings={"width": 200})
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_()
    task = find_task("classification")
    model = TaskModel(encoder, task=task, settings=settings, labels=labels).eval()
    classifier = TextClassifier(labels, model, tokenizer, task, settings)
    encoded = classifier.encode([(text,) for text in rows.texts])
    vectors = torch.stack(run_over(lambda batch: list(model.vectors(batch)), model, encoded))
    model.head.fit_norm(vectors)
    fitted = LogisticRegression(max_iter=200).fit(model.head.norm(vectors).numpy(), rows.labels)
    weights = torch.from_numpy(fitted.coef_).float()
    bias = torch.from_numpy(fitted.intercept_).float()
    if len(labels) == 2:
        weights, bias = torch.cat([-weights / 2, weights / 2]), torch.cat([-bias / 2, bias / 2])
    with torch.no_grad():
        model.head.output.weight.copy_(weights)
        model.head.output.bias.copy_(bias)
    return classifier


class World:
    """A data set, its classifier, and the measurements of all rows."""

    def __init__(self, name: str, rows: Texts, *, seed: int) -> None:
        self.name, self.rng = name, np.random.default_rng(seed)
        order = self.rng.permutation(len(rows.texts))
        self.learned, self.dev, self.free = (np.sort(part) for part in np.array_split(order, 3))
        self.rows, self.classifier = rows, train(rows.take(self.learned))
        self.measured = self.of(rows.texts)
        right = self.measured.rows["label"][self.free] == rows.labels[self.free]
        print(f"{name}: {len(rows.texts)} rows, accuracy {right.mean():.3f}", flush=True)

    def of(self, texts: Sequence[str]) -> Measured:
        """The measurements of texts."""
        return measure(self.classifier, [(text,) for text in texts])[1]

    def sample(self, rows: Ints, count: int, weights: NDArray[np.float64] | None = None) -> Ints:
        """Distinct rows; with replacement if there are too few."""
        return self.rng.choice(rows, count, replace=count > len(rows), p=weights)

    def mixed(self) -> tuple[Reference, Ints]:
        """A reference, and the rows for windows: dev and free rows are divided anew."""
        both = self.rng.permutation(np.concatenate([self.dev, self.free]))
        dev, free = both[: len(self.dev)], both[len(self.dev) :]
        return self.reference(dev), free

    def reference(self, dev: Ints) -> Reference:
        """The reference with rows of `dev`."""
        parts = [
            self.sample(part, min({"train": TRAIN_ROWS, "dev": UNSEEN_ROWS}[split], len(part)))
            for split, part in (("train", self.learned), ("dev", dev))
        ]
        rows = np.concatenate(parts)
        unseen = np.repeat([False, True], list(map(len, parts)))
        return Reference(self.measured.take(rows), unseen, self.rows.labels[rows])


def alarm(reference: Reference, new: Measured, settings: DriftSettings = SHIPPED) -> bool:
    """Whether a check raises an alarm."""
    return compare(reference, new, settings=settings, what="", source="").drift


def false_alarms(worlds: Sequence[World], checks: int) -> dict[str, dict[str, float]]:
    """Shares of checks without drift that raise an alarm: world and error -> window -> share."""
    found: dict[str, dict[str, float]] = {}
    for world in worlds:
        for error in ERRORS:
            only_tests = DriftSettings(least_rows=100, false_alarms=error, checks_per_year=1, least_effect=0.0)
            shares = {}
            for window in WINDOWS:
                alarms = 0
                for _ in range(checks):
                    reference, free = world.mixed()
                    alarms += alarm(reference, world.measured.take(world.sample(free, window)), only_tests)
                shares[str(window)] = alarms / checks
            found[f"no drift, {world.name}, tests alone at {error:g}"] = shares
            print(f"{world.name} {error}", shares, flush=True)
    return found


def years(worlds: Sequence[World], count: int) -> tuple[int, int, int]:
    """Simulated years with an alarm, years, and checks."""
    with_alarm = checks = total = 0
    for world in worlds:
        for _ in range(count):
            reference, free = world.mixed()
            # Every row is drawn before any is drawn again, so that rows of a window are distinct.
            drawn = [world.rng.permutation(free) for _ in range(1 + 371 * DAILY // len(free))]
            days = np.concatenate(drawn)[: 371 * DAILY].reshape(371, DAILY)
            alarms = 0
            for night in range(365):
                alarms += alarm(reference, world.measured.take(days[night : night + 7].reshape(-1)))
            with_alarm, checks, total = with_alarm + (alarms > 0), checks + 365, total + 1
        print(f"years, {world.name}: {with_alarm} of {total} with an alarm", flush=True)
    return with_alarm, total, checks


def power(worlds: dict[str, World], thai: Texts, checks: int) -> dict[str, dict[str, float]]:
    """Shares of checks with drift that raise an alarm."""
    reviews, questions, films = worlds["SST-2"], worlds["TREC"], worlds["IMDb"]
    joined = [f"{one} {other}" for one, other in zip(reviews.rows.texts, reviews.rows.texts[1:], strict=False)]
    positive = np.where(reviews.rows.labels == 1, 1.0, 0.0)

    def foreign(world: World, texts: Sequence[str], share: float) -> Callable[[int], Measured]:
        other = world.of(texts)

        def window(size: int) -> Measured:
            strange = round(share * size)
            usual = world.measured.take(world.sample(world.free, size - strange))
            new = other.take(world.rng.choice(len(other), strange))
            return Measured(usual.kind, usual.labels, np.concatenate([usual.rows, new.rows]))

        return window

    def shifted(share: float) -> Callable[[int], Measured]:
        inside = positive[reviews.free]
        weights = np.where(inside == 1, share / inside.sum(), (1 - share) / (1 - inside).sum())
        return lambda size: reviews.measured.take(reviews.sample(reviews.free, size, weights))

    drifts = {
        "SST-2: Thai instead of English": (reviews, foreign(reviews, thai.texts, 1.0)),
        "SST-2: 5% Thai": (reviews, foreign(reviews, thai.texts, 0.05)),
        "SST-2: questions of TREC": (reviews, foreign(reviews, questions.rows.texts, 1.0)),
        "SST-2: 20% questions of TREC": (reviews, foreign(reviews, questions.rows.texts, 0.2)),
        "SST-2: whole reviews of IMDb": (reviews, foreign(reviews, films.rows.texts[:2000], 1.0)),
        "SST-2: two sentences instead of one": (reviews, foreign(reviews, joined, 1.0)),
        "SST-2: 80% positive instead of 52%": (reviews, shifted(0.8)),
        "SST-2: 65% positive instead of 52%": (reviews, shifted(0.65)),
        "IMDb: sentences of SST-2": (films, foreign(films, reviews.rows.texts, 1.0)),
    }
    found = {}
    for name, (world, window) in drifts.items():
        reference = world.reference(world.dev)
        found[name] = {
            str(size): float(np.mean([alarm(reference, window(size)) for _ in range(checks)])) for size in WINDOWS
        }
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Simulate, print the shares, record them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--checks", type=int, default=400, help="checks per world, error and window without drift")
    parser.add_argument("--drifts", type=int, default=20, help="checks per drift and window")
    parser.add_argument("--years", type=int, default=20, help="simulated years of each world")
    parser.add_argument("--seed", type=int, default=0)
    add_record_option(parser)
    arguments = parser.parse_args()
    began = time.perf_counter()
    sets = {"SST-2": "sst2", "TREC": "trec", "IMDb": "imdb"}
    worlds = {title: World(title, read(arguments.data, name), seed=arguments.seed) for title, name in sets.items()}
    rows = false_alarms(list(worlds.values()), arguments.checks)
    rows |= power(worlds, read(arguments.data, "thaigov"), arguments.drifts)
    with_alarm, total, checks = years(list(worlds.values()), arguments.years)
    record(
        arguments.record,
        title="Shares of drift checks that raise an alarm",
        row_title="rows",
        columns=[Column(name=str(size), title=f"{size:,} rows", format=".1%") for size in WINDOWS],
        values=rows,
        seeds=[arguments.seed],
        notes=f"{arguments.checks} checks per cell without drift, {arguments.drifts} with drift. Rows with drift: the "
        f"rule as shipped, at an error of 0.05 / 365 per check. Simulated years of {checks // total} nightly checks "
        f"without drift, {DAILY} rows a day: {with_alarm} of {total} with a false alarm (nominal: at most 5%).",
    )
    print(f"{with_alarm} of {total} years with a false alarm; {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
