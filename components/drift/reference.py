"""The reference of a version: rows of train and dev (test, if there is no dev), measured. It is stored with the
version's run, next to the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.drift.measurements import REFERENCE, Measured, Reference, spaced
from components.drift.measuring import measure
from components.errors import ArtifactError
from components.inference.prediction import Classifier
from components.tasks.data import Split
from components.tasks.examples import read_facts, read_split
from components.tracking import Registry, Version

#: Maximum number of rows of train, and of rows that the model has not learned from, evenly spaced. Only lengths are
#: compared with rows of train.
TRAIN_ROWS, UNSEEN_ROWS = 1000, 2000


def measure_reference(classifier: Classifier, *, examples: Path) -> Reference:
    """Measure rows of train and of dev, or of test if there is no dev.

    Args:
        classifier: the model.
        examples: output directory of the stage `examples`.

    Raises:
        ArtifactError: the directory is incomplete.
    """
    labels = read_facts(examples).labels
    parts: list[Measured] = []
    targets: list[int] = []
    unseen = read_split(examples, "dev")
    unseen = unseen if len(unseen) else read_split(examples, "test")
    for split, most in ((read_split(examples, "train"), TRAIN_ROWS), (unseen, UNSEEN_ROWS)):
        split = split.take(spaced(len(split), most))
        parts.append(measure(classifier, split.fields)[1])
        targets += _targets(split, labels, parts[-1])
    first = parts[0]
    is_unseen = np.repeat([False, True], [len(part) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    return Reference(Measured(first.kind, first.labels, rows), is_unseen, np.array(targets, dtype=np.int64))


def _targets(split: Split, labels: list[str], measured: Measured) -> list[int]:
    """Index of each row's true class in the classifier's order; -1 if it has none."""
    if measured.kind not in ("classification", "pair"):
        return [-1] * len(split)
    position = {label: index for index, label in enumerate(measured.labels)}
    return [position.get(labels[index], -1) if index >= 0 else -1 for index in split.labels.tolist()]


def record_reference(registry: Registry, version: Version, classifier: Classifier, *, examples: Path) -> Reference:
    """Measure the reference of a version and store it with the version's run.

    Raises:
        ArtifactError: the examples are incomplete.
        RegistryError: the registry rejects the file.
    """
    reference = measure_reference(classifier, examples=examples)
    registry.attach(version, REFERENCE, reference.to_bytes())
    return reference


def find_reference(registry: Registry, version: Version) -> Reference | None:
    """The recorded reference of a version; None if there is none or an unreadable one, which is measured again."""
    content = registry.attached(version, REFERENCE)
    if content is None:
        return None
    try:
        return Reference.from_bytes(content, what=version.label)
    except ArtifactError:
        return None
