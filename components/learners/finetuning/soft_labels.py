"""Predictions of a teacher for texts without labels, for every label budget, seed and fold.

`labels.safetensors` holds (`pack`) the predictions of all texts: under `BUDGET.SEED.FOLD` by the run that has
learned from the rows outside a fold, and under `BUDGET.SEED.all` by the run that has learned from all rows. So a
student never learns the labels of the rows on which it is scored: neither itself nor through its teacher."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError
from components.data.tasks.data import Fields, Target
from components.data.unlabelled_texts import digest_of
from components.learners.finetuning.fit import Fit, unpack

KIND: Final = "soft-labels"
FILE: Final = "labels.safetensors"


def name_of(fit: Fit) -> str:
    """Name of the predictions of a run, and of those that a run learns from."""
    return f"{fit.budget}.{fit.seed}.{fit.part}"


def read_soft_labels(files: Sequence[Path], name: str) -> list[Target]:
    """The mean of the teachers' predictions for every text.

    Args:
        files: of the teachers.
        name: of the run (`name_of`).

    Raises:
        ArtifactError: an output is incomplete, or has no predictions of this run.
    """
    result = []
    for file in files:
        read_manifest(file.parent, kind=KIND)
        try:
            with safe_open(file, framework="pt") as stored:
                result.append(unpack(name, {key: stored.get_tensor(key) for key in (name, f"{name}.lengths")}))
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"{file}: has no predictions of the run {name}; run the stage teach again") from (error)
    return [np.mean(answers, axis=0, dtype=np.float64) for answers in zip(*result, strict=True)]


def soft_labels_of(
    fit: Fit, texts: Sequence[Fields], scored: Collection[bytes]
) -> tuple[NDArray[np.int64], list[Target]]:
    """What a training learns from the teachers of its fold: indices of the texts, and the predictions.

    Texts of the rows that it is scored on, and what belongs to them (`scored`), are left out, although they have no
    labels here: a served model has not learned from the texts of its requests, and the score has to predict that
    case."""
    if not texts:
        return np.zeros(0, dtype=np.int64), []
    answers = read_soft_labels(fit.teachers, name_of(fit))
    rows = np.asarray([row for row, fields in enumerate(texts) if digest_of(fields) not in scored], dtype=np.int64)
    return rows, [answers[row] for row in rows]
