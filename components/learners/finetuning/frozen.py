"""Frozen-encoder features of a task's splits, computed once for all runs with the same encoder weights."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from components.cluster.launcher import map_parallel
from components.core import threads
from components.data.tasks.data import Fields
from components.data.tasks.examples import read_facts, read_split
from components.data.unlabelled_texts import read_unlabelled
from components.learners.finetuning.specs import (
    RunSpec,
    all_training_rows,
    build,
    encode,
    gpu_bytes,
    label_fields,
    names_of,
)
from components.learners.task_models.features import FeatureTable, cached, extract
from components.learners.ways import way_of
from components.settings.cluster import ClusterSettings
from components.training.checkpoint import fingerprint

#: Up to this number of pieces, encoding in this process takes less time than starting worker processes.
FEW_PIECES = 250_000
#: The texts that a run labels, and the names of the labels, as splits.
LABELS, NAMES = "labels", "names"


def fields_of(spec: RunSpec, split: str) -> list[Fields]:
    """The rows of a split whose features runs read: `all_training_rows` of train; one for each text of the labels of
    `names`."""
    facts = read_facts(spec.examples)
    if split == NAMES:
        return [fields for texts in label_fields(facts) for fields in texts]
    if split == LABELS:
        assert spec.labels is not None, "the run labels no texts"
        return read_unlabelled(spec.labels)
    whole = read_split(spec.examples, split)
    return (whole.take(all_training_rows(spec, whole, facts)) if split == "train" else whole).fields


def features(spec: RunSpec, split: str) -> FeatureTable:
    """The features of `fields_of` by the encoder before training.

    Raises:
        ArtifactError: encoder or examples are incomplete, or the features cannot be written.
    """
    fields = fields_of(spec, split)

    def extracted(file: Path) -> FeatureTable:
        model, tokenizer = build(spec)
        encoded = encode(spec, model, tokenizer, fields)
        return extract(model, encoded, precision=spec.precision, file=file)

    return cached(spec.tables, f"{spec.features}-{fingerprint(fields=fields)}", extracted)


def needed(specs: Iterable[RunSpec]) -> Iterator[tuple[RunSpec, str]]:
    """A run and a split for each distinct table that the runs read."""
    seen = set()
    for spec in specs:
        settings, alone = spec.settings, not way_of(spec.settings).trains_encoder
        on_dev = read_facts(spec.examples).selection == "dev"
        # Only the way to learn that cross-validation chooses predicts test.
        predicts = on_dev or spec.chosen is not None
        reads = {
            "dev": on_dev,
            "train": settings.head_steps > 0 or alone or not on_dev,
            "test": predicts and alone and spec.labels is None,
            NAMES: any(names_of(spec)),
            LABELS: spec.labels is not None and (alone or (spec.chosen is not None and not spec.chosen.stop)),
        }
        for split in (split for split, is_read in reads.items() if is_read):
            if (spec.features, split) not in seen:
                seen.add((spec.features, split))
                yield spec, split


def compute_all(specs: Iterable[RunSpec], *, cluster: ClusterSettings) -> None:
    """Compute the missing tables that the runs read, with one thread each."""
    tables = list(needed(specs))
    if sum(len(fields_of(*table)) * table[0].settings.max_length for table in tables) > FEW_PIECES:
        for _ in map_parallel(_compute, tables, settings=cluster, gpu_bytes=gpu_bytes(spec for spec, _ in tables)):
            pass
    else:
        with threads.limited(1):
            for table in tables:
                _compute(table)


def _compute(table: tuple[RunSpec, str]) -> None:
    features(*table)
