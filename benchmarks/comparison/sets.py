"""The data sets and measured cells of `benchmarks/few_labels.py`: rows of train and test, the same for all systems.

A set is prepared once into a folder: train.jsonl, dev.jsonl and test.jsonl, from which Headstart reads; peers.json,
from which the other systems read the same rows, without the labels of test; and unlabelled.jsonl, the texts of train
(IMDb: its unlabelled reviews). Rows of train that are also in dev or test are dropped. The labels of dev are shuffled:
a system that chose by them would lose. Test is a fixed sample of at most `test_rows` rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from components.core.artifacts import write_atomic
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Fields
from components.data.tasks.kinds import find_kind, scoring_for
from components.settings.tasks import TaskSource

#: Rows of train that take the place of test.
DEV_ROWS = 500


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Attributes:
        title: name in tables.
        source: keys of `data.tasks.<name>`; `path` is relative to the folder of the data.
        budgets: label budgets per class; with `shares`, rows in all.
        shares: of the classes in train and test, in the order of their names; `natural`: as they come; None: train has
            the same number of rows of each class.
        general: folder and text column of general text in the same language, for pretraining.
        unlabelled: file of unlabelled texts of the domain, and the most rows of it; None: the texts of train.
        max_length: pieces per text that Headstart reads.
    """

    title: str
    source: dict[str, Any]
    budgets: tuple[int, ...] = (8, 16, 64)
    general: str = "enwiki2015-slice"
    unlabelled: tuple[str, int] | None = None
    max_length: int = 64
    shares: tuple[float, ...] | Literal["natural"] | None = None


_SST: dict[str, Any] = {"path": "sst2", "train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv", "text": 0}
_SST |= {"label": 1, "header": False, "test_rows": 2000}
_TREC: dict[str, Any] = {"path": "trec", "format": "label-first", "encoding": "latin-1", "train": "TREC.train.all"}
_TREC |= {"dev": None, "test": "TREC.test.all", "test_rows": 2000}
_TRUEVOICE: dict[str, Any] = {
    "path": "truevoice-intent",
    "train": "mari_train.csv",
    "dev": None,
    "test": "mari_test.csv",
    "text": "texts",
    "language": "th",
    "test_rows": 1000,
}
SETS: dict[str, DataSet] = {
    "sst2": DataSet("SST-2", _SST),
    "sst2-skewed": DataSet("SST-2, 4:1", _SST, budgets=(60, 150), shares=(0.8, 0.2)),
    "trec": DataSet("TREC", _TREC),
    "trec-natural": DataSet("TREC, natural", _TREC, budgets=(60, 150), shares="natural"),
    "clinc150": DataSet(
        "CLINC150",
        {"path": "clinc150", "format": "json", "train": "data_full.json#train", "dev": "data_full.json#val"}
        | {"test": "data_full.json#test", "text": 0, "label": 1, "test_rows": 2000},
        budgets=(8, 16),
    ),
    "imdb": DataSet(
        "IMDb",
        {"path": "imdb", "train": "train.jsonl.zst", "dev": None, "test": "test.jsonl.zst", "test_rows": 1000},
        budgets=(10, 50, 250),
        unlabelled=("imdb-unsup/unsup.jsonl.zst", 25_000),
        max_length=256,
    ),
    "truevoice-action": DataSet("TrueVoice, action", _TRUEVOICE | {"label": "action"}, general="thaigov"),
    "truevoice-object": DataSet("TrueVoice, object", _TRUEVOICE | {"label": "object"}, general="thaigov"),
    "truevoice-destination": DataSet(
        "TrueVoice, destination", _TRUEVOICE | {"label": "destination"}, general="thaigov"
    ),
    "sick": DataSet(
        "SICK, entailment",
        {"path": "sick", "kind": "pair", "format": "tsv", "train": "SICK_train.txt", "dev": "SICK_trial.txt"}
        | {"test": "SICK_test_annotated.txt", "first": "sentence_A", "second": "sentence_B"}
        | {"label": "entailment_judgment", "test_rows": 2000},
    ),
}


@dataclass(frozen=True)
class Prepared:
    """A set on disk.

    Attributes:
        folder: with the files of the module's docstring.
        names: the labels.
        labels: (N,) label indices of train.
        truth: (M,) label indices of test.
        digest: SHA-256 of the prepared rows.
        shares: as of `DataSet`.
    """

    folder: Path
    names: list[str]
    labels: np.ndarray
    truth: np.ndarray
    digest: str
    shares: tuple[float, ...] | Literal["natural"] | None = None

    def rows(self, budget: int, draw: int) -> np.ndarray:
        """Indices of the training rows of a budget and draw: those that Headstart samples with this seed; with shares,
        those of a random order until each class has its number."""
        if self.shares is None:
            return sample_rows(self.labels, budget, seed=draw)[0]
        order = np.random.default_rng([draw, len(self.labels)]).permutation(len(self.labels))
        if self.shares == "natural":
            return np.sort(order[:budget])
        return np.sort(_in_shares(self.labels, self.shares, order, most=budget))

    def write_rows(self, budget: int, draw: int, folder: Path) -> None:
        """Write train.jsonl with the rows of a budget and draw alone, beside dev and test."""
        folder.mkdir(parents=True, exist_ok=True)
        for split in ("dev", "test"):
            write_atomic(folder / f"{split}.jsonl", (self.folder / f"{split}.jsonl").read_text(encoding="utf-8"))
        lines = (self.folder / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomic(folder / "train.jsonl", "".join(lines[row] for row in self.rows(budget, draw)))


def _in_shares(labels: np.ndarray, shares: Sequence[float], order: np.ndarray, *, most: int) -> np.ndarray:
    """Indices of at most `most` rows in which the classes have these shares, the first ones of an order."""
    counts = [int((labels == label).sum()) for label in range(len(shares))]
    size = min(most, *(count / share for count, share in zip(counts, shares, strict=True)))
    parts = [order[labels[order] == label][: round(size * share)] for label, share in enumerate(shares)]
    return np.concatenate(parts)


def prepare(name: str, *, data: Path, folder: Path, judged: Literal["test", "dev"] = "test") -> Prepared:
    """Prepare a set, or read what was prepared before.

    Args:
        name: key of SETS.
        data: folder of the raw data sets.
        folder: to write below.
        judged: `dev`, for a choice between settings: a random part of train takes the place of test.
    """
    target = folder / (name if judged == "test" else f"{name}-{judged}")
    facts = target / "set.json"
    if not facts.is_file():
        _write(name, data, target, judged)
    content = json.loads(facts.read_text(encoding="utf-8"))
    return Prepared(
        folder=target,
        names=content["names"],
        labels=np.array(content["labels"]),
        truth=np.array(content["truth"]),
        digest=content["digest"],
        shares=SETS[name].shares,
    )


def _write(name: str, data: Path, target: Path, judged: str) -> None:
    chosen = SETS[name]
    source = TaskSource.model_validate(chosen.source | {"path": str(data / chosen.source["path"]), "dev_rows": 500})
    result = find_kind(source.kind).read(name, source)
    if judged == "dev":
        order = np.random.default_rng(0).permutation(len(result.train))
        held, rest = (np.sort(part) for part in (order[:DEV_ROWS], order[DEV_ROWS:]))
        result = replace(result, train=result.train.take(rest), test=result.train.take(held))
    if isinstance(chosen.shares, tuple):
        order = np.random.default_rng(0).permutation(len(result.test))
        kept = np.sort(_in_shares(result.test.labels, chosen.shares, order, most=len(order)))
        result = replace(result, test=result.test.take(kept))
    target.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", result.train), ("dev", result.dev), ("test", result.test)):
        given = np.random.default_rng(0).permutation(rows.labels) if split == "dev" else rows.labels
        pairs = zip(rows.fields, given, strict=True)
        lines = (json.dumps(_row(fields, result.labels[label]), ensure_ascii=False) + "\n" for fields, label in pairs)
        write_atomic(target / f"{split}.jsonl", "".join(lines))
    train, test = ([[_clean(text) for text in row] for row in split.fields] for split in (result.train, result.test))
    labels = result.train.labels.tolist()
    peers = json.dumps({"train": train, "labels": labels, "test": test}, ensure_ascii=False)
    write_atomic(target / "peers.json", peers)
    texts = [text for row in train for text in row]
    if chosen.unlabelled is not None:
        path, most = chosen.unlabelled
        with pa.input_stream(str(data / path), compression="zstd") as stream:
            lines = stream.read().decode("utf-8").rstrip("\n").split("\n")
        texts = [_clean(json.loads(line)["text"]) for line in lines[:: max(1, len(lines) // most)][:most]]
    unlabelled = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    write_atomic(target / "unlabelled.jsonl", "".join(unlabelled))
    truth = result.test.labels.tolist()
    content = {
        "names": result.labels,
        "labels": labels,
        "truth": truth,
        "digest": hashlib.sha256((peers + json.dumps(truth)).encode()).hexdigest(),
    }
    # Written last: a folder with this file is complete.
    write_atomic(target / "set.json", json.dumps(content, ensure_ascii=False))


def _row(fields: Fields, label: str) -> dict[str, str]:
    keys = ("text",) if len(fields) == 1 else ("first", "second")
    return dict(zip(keys, map(_clean, fields), strict=True)) | {"label": label}


def _clean(text: str) -> str:
    return text.replace("<br />", " ")


@dataclass(frozen=True, order=True)
class Key:
    """A cell: data set, label budget per class, draw (seed of the rows and of learning), and system."""

    set: str
    budget: int
    draw: int
    system: str

    def __str__(self) -> str:
        return f"{self.set} {self.budget} draw {self.draw} {self.system}"


class Cells:
    """The file of the cells. Lines are only appended; of two lines with the same key the later one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[Key, dict[str, Any]] = {}
        self._size = -1

    def __iter__(self) -> Iterator[tuple[Key, dict[str, Any]]]:
        return iter(self._read().items())

    def _read(self) -> dict[Key, dict[str, Any]]:
        # Another process may have added cells.
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size == self._size:
            return self._found
        result: dict[Key, dict[str, Any]] = {}
        if size:
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the line that a killed run was writing
                key = Key(**{name: entry.pop(name) for name in ("set", "budget", "draw", "system")})
                result[key] = entry
        self._found, self._size = result, size
        return result

    def has(self, key: Key, digest: str) -> bool:
        """Whether a cell was measured on the set with this digest."""
        return self._read().get(key, {}).get("data") == digest

    def add(self, key: Key, entry: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.is_file() or self.path.read_bytes()[-1:] in (b"\n", b"")
        line = json.dumps(asdict(key) | entry, ensure_ascii=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            # After a line that a killed run did not finish, a new one begins.
            file.write(line if whole else f"\n{line}")
            file.flush()
            os.fsync(file.fileno())


def score(predicted: Sequence[int], truth: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Macro F1 and accuracy of predicted labels, by the metrics that Headstart's evaluation uses."""
    answers = list(np.eye(len(names), dtype=np.float32)[np.asarray(predicted)])
    targets = [np.array([label], dtype=np.float64) for label in truth]
    scores = scoring_for("classification", list(names)).score([("",)] * len(targets), targets, answers)
    return {name: float(scores[name]) for name in ("macro_f1", "accuracy")}
