"""Frozen-encoder features of a task's splits, computed once for all runs with the same encoder weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.artifacts import read_manifest
from components.cluster import map_parallel
from components.finetuning.features import FeatureTable, cached, extract, extract_fixed
from components.finetuning.label_names import label_fields, names_of
from components.finetuning.memory import gpu_bytes
from components.finetuning.self_training import rounds_of
from components.finetuning.specs import RunSpec, all_training_rows, build, encode
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.tasks.data import Fields
from components.tasks.examples import read_facts, read_split
from components.training import threads
from components.training.checkpoint import fingerprint
from components.unlabelled.texts import KIND as UNLABELLED
from components.unlabelled.texts import read_unlabelled

#: Up to this number of pieces, encoding in this process takes less time than starting worker processes.
FEW_PIECES = 250_000
#: The texts that a run labels, as a split.
LABELS = "labels"
#: The names of the labels, as a split.
NAMES = "names"
#: Settings of training; frozen-encoder features depend on all other settings.
LEARNING = {
    "method",
    "auto",
    "words",
    "label_names",
    "contrastive",
    "frozen",
    "head_hidden",
    "head_norm",
    "head_dropout",
    "head_steps",
    "head_penalties",
    "head_rate",
    "head_scale",
    "tagger",
    "tagger_hidden",
    "discriminative",
    "unfreezing",
    "unfreeze_epochs",
    "epochs",
    "min_steps",
    "evaluations",
    "patience",
    "lm_weight",
    "windows_learned",
    "dropout",
    "training",
    "scratch",
    "task_tokens",
    "unlabelled",
}


def reading(settings: FinetuneSettings) -> dict[str, object]:
    """The settings that frozen-encoder features depend on."""
    return settings.model_dump(mode="json", exclude=LEARNING)


def features(spec: RunSpec, split: str) -> FeatureTable:
    """The features of a split by the encoder before training; of train only the rows of `all_training_rows`, of
    `unlabelled` the texts of that stage, and of `names` one row for each label.

    Raises:
        ArtifactError: encoder or examples are incomplete, or the features cannot be written.
    """
    facts = read_facts(spec.examples)
    rows = all_training_rows(spec, read_split(spec.examples, "train"), facts) if split == "train" else None
    if split == NAMES:
        content = fingerprint(names=texts_of(spec, split))
    elif split in TEXTS:
        content = fingerprint(unlabelled=read_manifest(TEXTS[split](spec), kind=UNLABELLED).digest)
    else:
        content = fingerprint(split=facts.digests[split], rows=None if rows is None else _digest(rows))

    def extracted(file: Path) -> FeatureTable:
        model, tokenizer = build(spec)
        fields = texts_of(spec, split)
        if fields is None:
            fields = read_split(spec.examples, split, rows=rows).fields
        encoded = encode(spec, model, tokenizer, fields)
        if split == "test":
            # As in prediction, where the features of a row do not depend on the other rows.
            return extract_fixed(model, encoded, precision=spec.precision, file=file)
        return extract(model, encoded, precision=spec.precision, file=file)

    return cached(spec.tables, f"{spec.features}-{content}", extracted)


def needed(specs: Iterable[RunSpec]) -> Iterator[tuple[RunSpec, str]]:
    """A run and a split for each distinct table that the runs read."""
    known = set()
    for spec in specs:
        settings, alone = spec.settings, spec.settings.method == "features"
        on_dev = read_facts(spec.examples).selection == "dev"
        # Only the way to learn that cross-validation chooses predicts test.
        predicts = on_dev or spec.chosen is not None
        reads = {
            "dev": on_dev,
            "train": settings.head_steps > 0 or alone or not on_dev,
            "test": predicts and (settings.frozen or alone) and spec.labels is None,
            UNLABELLED: rounds_of(spec) > 0,
            NAMES: any(names_of(spec)),
            LABELS: spec.labels is not None and (alone or (spec.chosen is not None and not spec.chosen.stop)),
        }
        for split in (split for split, wanted in reads.items() if wanted):
            if (spec.features, split) not in known:
                known.add((spec.features, split))
                yield spec, split


def compute_all(specs: Iterable[RunSpec], *, cluster: ClusterSettings) -> None:
    """Compute the missing tables that the runs read, with one thread each."""
    tables = list(needed(specs))
    if sum(_most_pieces(*table) for table in tables) > FEW_PIECES:
        for _ in map_parallel(_compute, tables, settings=cluster, gpu_bytes=gpu_bytes(spec for spec, _ in tables)):
            pass
    else:
        with threads.limited(1):
            for table in tables:
                _compute(table)


def _compute(table: tuple[RunSpec, str]) -> None:
    features(*table)


def _most_pieces(spec: RunSpec, split: str) -> int:
    if (texts := texts_of(spec, split)) is not None:
        return len(texts) * spec.settings.max_length
    whole = read_split(spec.examples, split)
    rows = len(all_training_rows(spec, whole, read_facts(spec.examples))) if split == "train" else len(whole)
    return rows * spec.settings.max_length


def texts_of(spec: RunSpec, split: str) -> list[Fields] | None:
    """The rows of a split that is no split of the examples: names of labels, or texts without labels; None for train,
    dev and test."""
    if split == NAMES:
        return label_fields(read_facts(spec.examples))
    return read_unlabelled(TEXTS[split](spec)) if split in TEXTS else None


def _texts(spec: RunSpec) -> Path:
    """Directory of the texts without labels."""
    assert spec.unlabelled is not None, "the job has no texts without labels"
    return spec.unlabelled


def _labels(spec: RunSpec) -> Path:
    """Directory of the texts that the run labels."""
    assert spec.labels is not None, "the job labels no texts"
    return spec.labels


#: Splits that are texts without labels, and where they are.
TEXTS = {UNLABELLED: _texts, LABELS: _labels}


def _digest(rows: NDArray[np.int64]) -> str:
    return hashlib.sha256(rows.tobytes()).hexdigest()
