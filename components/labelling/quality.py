"""Labels that look wrong, and copies of a text with different labels.

Confident learning (Northcutt et al. 2021, "Confident learning: estimating uncertainty in dataset labels"), by the
library cleanlab: from probabilities of models that have not learned from a row, the threshold of each label is the mean
probability that rows with this label give it; rows that exceed the threshold of another label estimate how many rows of
a label belong to another one. So many rows, at most a tenth, are listed whose label has the lowest probability. A test
with labels that are changed on purpose shows whether the models can tell.
"""

import contextlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.data.tasks.data import Fields
from components.labelling.pool import search
from components.labelling.rows import Names

#: Rows that both rules find: most likely of another label, within a label, and over all pairs of labels (section 3.2).
FILTER: Final = "both"
#: Maximum share of the rows that are listed, and of labels that are changed for the test; and the share of these that
#: models must find that tell wrong labels.
MOST, PLANTED, DETECTED = 0.1, 0.07, 2 / 3
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Suspect:
    """A row whose label looks wrong. `quality`: probability of the given label less the largest of the others, between
    -1 and 1; lower is worse. In `multilabel`, the lowest probability of a decision."""

    row: int
    proposed: Names
    quality: float


@dataclass(frozen=True)
class SelfTest:
    """How well the models tell wrong labels here: of `planted` labels that were changed on purpose, `detected` were in
    a list of `listed` rows."""

    planted: int
    detected: int
    listed: int

    @property
    def tells(self) -> bool:
        return self.detected >= DETECTED * self.planted


def plant(given: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) labels of which a share `PLANTED` has another value, and the indices of these; -1, no class, stays."""
    rng = np.random.default_rng(0)
    usable = np.flatnonzero(given >= 0)
    changed = np.sort(rng.choice(usable, size=math.ceil(PLANTED * len(usable)), replace=False))
    result = given.copy()
    result[changed] = (given[changed] + rng.integers(1, count, size=len(changed))) % count
    return result, changed


def suspects(
    targets: Sequence[NDArray[np.float64]], probabilities: Floats, labels: Sequence[str], *, exclusive: bool
) -> list[Suspect]:
    """The rows whose label looks wrong, the worst first. `probabilities`: (N, C) of models that have not learned from
    the row."""
    if not len(targets):
        return []
    values = np.clip(np.asarray(probabilities, dtype=np.float64), 1e-7, 1 - 1e-7)
    results = _of_one_label(targets, values, labels) if exclusive else _of_several(targets, values, labels)
    return sorted(results, key=lambda suspect: (suspect.quality, suspect.row))


def _of_one_label(targets: Sequence[NDArray[np.float64]], values: Floats, labels: Sequence[str]) -> list[Suspect]:
    given = np.asarray([target[0] for target in targets], dtype=np.int64)
    # Rows without a class, and labels without rows, tell nothing about confusions.
    used = np.flatnonzero(given >= 0)
    kept = np.unique(given[used])
    if len(kept) < 2:
        return []
    shares = values[np.ix_(used, kept)]
    shares = shares / shares.sum(axis=1, keepdims=True)
    estimated = len(_marked(np.searchsorted(kept, given[used]), shares))
    # Where the models are weak, confident learning marks most of their own mistakes; the rows whose label they give the
    # least probability hold more wrong labels.
    order = used[np.argsort(values[used, given[used]], kind="stable")]
    marked = order[: min(estimated, math.ceil(MOST * len(used)))]
    results = [
        Suspect(
            int(row),
            (labels[int(values[row].argmax())],),
            float(values[row][given[row]] - np.delete(values[row], given[row]).max()),
        )
        for row in marked
    ]
    # A label that the models give too is not wrong.
    return [suspect for suspect in results if suspect.quality < 0]


def _of_several(targets: Sequence[NDArray[np.float64]], values: Floats, labels: Sequence[str]) -> list[Suspect]:
    several = [[int(number) for number in target] for target in targets]
    results = []
    for row in _marked(several, values, several=True):
        is_given = np.isin(np.arange(len(labels)), several[row])
        proposed = tuple(sorted(label for label, share in zip(labels, values[row], strict=True) if share >= 0.5))
        results.append(Suspect(int(row), proposed, float(np.where(is_given, values[row], 1 - values[row]).min())))
    return results


def _marked(labels: Any, probabilities: Floats, *, several: bool = False) -> NDArray[np.int64]:
    """Indices of the rows that cleanlab marks; what it prints is discarded."""
    # Within the function, because the import takes two seconds.
    if several:
        from cleanlab.multilabel_classification.filter import find_label_issues
    else:
        from cleanlab.filter import find_label_issues
    with contextlib.redirect_stdout(io.StringIO()):
        return np.flatnonzero(find_label_issues(labels, probabilities, filter_by=FILTER, n_jobs=1))


@dataclass(frozen=True)
class Pair:
    """Two rows with nearly the same text and different labels; `similarity` is 1 for copies."""

    first: int
    second: int
    similarity: float


def different_twins(fields: Sequence[Fields], labels: Sequence[Names | None]) -> list[Pair]:
    """Pairs of copies and near copies with different labels, the most similar first; rows without a label are left
    out."""
    texts = search(fields)
    results = [
        Pair(first, second, similarity)
        for first, second, similarity in texts.near(texts.sketches)
        if first < second and None not in (labels[first], labels[second]) and labels[first] != labels[second]
    ]
    return sorted(results, key=lambda pair: (-pair.similarity, pair.first, pair.second))
