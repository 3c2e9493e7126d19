"""Labels that look wrong, copies of a text with different labels, and the agreement of annotators.

Confident learning (Northcutt et al. 2021, "Confident learning: estimating uncertainty in dataset labels"), by the
library cleanlab: from probabilities of models that have not learned from a row, the threshold of each label is the mean
probability that rows with this label give it; rows that exceed the threshold of another label estimate how many rows of
a label belong to another one, and so many rows with the largest margin between the labels are found.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.ingestion.dedup import Shingles
from components.ingestion.matching import TextSearch
from components.labelling.pool import BAND, NGRAM, PERMUTATIONS, SIMILAR, joined
from components.labelling.rows import Names
from components.tasks.data import Fields

#: Rows that both rules find: most likely of another label, within a label, and over all pairs of labels (section 3.2).
FILTER: Final = "both"
#: Resamples of the interval of an agreement.
RESAMPLES: Final = 1000
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Suspect:
    """A row whose label looks wrong.

    Attributes:
        row: its index.
        proposed: labels that the models give.
        quality: probability of the given label less the largest of the others, between -1 and 1; lower is worse. In
            `multilabel`, the lowest probability of a decision.
    """

    row: int
    proposed: Names
    quality: float


def suspects(
    targets: Sequence[NDArray[np.float64]], probabilities: Floats, labels: Sequence[str], *, exclusive: bool
) -> list[Suspect]:
    """The rows whose label looks wrong, the worst first.

    Args:
        targets: N vectors of label indices.
        probabilities: (N, C) of models that have not learned from the row.
        labels: C names.
        exclusive: whether a row has one label.
    """
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
    marked = used[_marked(np.searchsorted(kept, given[used]), shares)]
    results = [
        Suspect(int(row), (labels[int(values[row].argmax())],), _margin(values[row], given[row])) for row in marked
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


def _margin(probabilities: Floats, given: np.int64) -> float:
    return float(probabilities[given] - np.delete(probabilities, given).max())


@dataclass(frozen=True)
class Pair:
    """Two rows with nearly the same text and different labels; `similarity` is 1 for copies."""

    first: int
    second: int
    similarity: float


def different_twins(fields: Sequence[Fields], labels: Sequence[Names | None]) -> list[Pair]:
    """Pairs of copies and near copies with different labels, the most similar first; rows without a label are left
    out."""
    texts = [joined(parts) for parts in fields]
    shingles = Shingles(ngram=NGRAM, permutations=PERMUTATIONS)
    wanted = TextSearch(texts, shingles=shingles, rows=BAND, threshold=SIMILAR)
    results = [
        Pair(first, second, similarity)
        for first, second, similarity in wanted.near(shingles.sketches(texts))
        if first < second and None not in (labels[first], labels[second]) and labels[first] != labels[second]
    ]
    return sorted(results, key=lambda pair: (-pair.similarity, pair.first, pair.second))


@dataclass(frozen=True)
class Agreement:
    """How far annotators agree.

    Attributes:
        texts: number of texts with labels of two or more annotators.
        alpha, low, high: Krippendorff's alpha with the bounds of its interval; None: undefined.
        disputed: keys of the texts with different labels, those with the fewest equal labels first.
    """

    texts: int
    alpha: float | None
    low: float | None
    high: float | None
    disputed: list[bytes]


def agreement(given: Mapping[bytes, Mapping[str, Names]], *, confidence: float = 0.95) -> Agreement:
    """Agreement of annotators on nominal labels; in `multilabel` two sets of labels are equal or different.

    Args:
        given: text -> annotator -> labels.
        confidence: level of the interval, a bootstrap over the texts.
    """
    units = {key: labels for key, labels in given.items() if len(labels) > 1}
    rows = [Counter(labels.values()) for labels in units.values()]
    alpha = krippendorff(rows)
    rng, resampled = np.random.default_rng(0), []
    if alpha is not None and len(rows) > 1:
        for _ in range(RESAMPLES):
            sample = krippendorff([rows[index] for index in rng.integers(len(rows), size=len(rows))])
            resampled += [] if sample is None else [sample]
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]) if resampled else (None, None)
    disputed = [key for key, counts in zip(units, rows, strict=True) if len(counts) > 1]
    disputed.sort(key=lambda key: max(Counter(units[key].values()).values()) / len(units[key]))
    return Agreement(
        len(units),
        alpha,
        None if low is None else float(low),
        None if high is None else float(high),
        disputed,
    )


def krippendorff(units: Iterable[Counter[Names]]) -> float | None:
    """Krippendorff's alpha for nominal values, with missing ones: 1 - D_o / D_e (Krippendorff 2011, "Computing
    Krippendorff's alpha-reliability"). None: there is only one value, or no unit has two.

    Args:
        units: of each text the number of annotators by label.
    """
    totals: Counter[Names] = Counter()
    observed = 0.0
    for counts in units:
        size = counts.total()
        if size < 2:
            continue
        totals.update(counts)
        # Pairs of different values within the unit, each weighted by 1 / (m_u - 1).
        observed += (size * size - sum(count * count for count in counts.values())) / (size - 1)
    number = totals.total()
    expected = number * number - sum(count * count for count in totals.values())
    return 1 - (number - 1) * observed / expected if expected else None


def by_annotator(triples: Iterable[tuple[bytes, str, Names]]) -> dict[bytes, dict[str, Names]]:
    """Text -> annotator -> the last label."""
    results: dict[bytes, dict[str, Names]] = defaultdict(dict)
    for key, annotator, labels in triples:
        results[key][annotator] = labels
    return results
