"""The labels of a task under review: probabilities of models that have not learned from a row, and what they show.

The models are regressions in cross-validation, on features of an encoder of the run, or of words.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.core.errors import DataError
from components.core.outputs import write_named
from components.data.formats.delimited import csv_for_people
from components.data.tasks.budgets import folds_of
from components.data.tasks.data import Examples, Fields, Split
from components.data.tasks.examples import strata_of
from components.data.tasks.kinds import find_kind
from components.labelling import models
from components.labelling.quality import Pair, SelfTest, Suspect, different_twins, plant, suspects
from components.labelling.queue import PROPOSED, WHY
from components.labelling.rows import Names, answer_columns, shown, source_of
from components.settings.params import Params
from components.settings.tasks import OF_ONE_TEXT, SPLITS, TaskSource

FOLDS: Final = 5
#: Inverse strength of the penalty: labels that may be wrong need a stronger one.
STRENGTH: Final = 1.0
#: The same of TF-IDF vectors, which have many features of little weight.
STRENGTH_WORDS: Final = 10.0
Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A row of a task: its split, id or position, texts and labels; None: it belongs to no class."""

    split: str
    id: str
    fields: Fields
    labels: Names | None


@dataclass(frozen=True)
class Review:
    """What the review has found. `suspects`: by the index of their row; `test`: None with several labels a row."""

    rows: list[Row]
    suspects: list[Suspect]
    pairs: list[Pair]
    sources: str
    test: SelfTest | None = None


def review(params: Params, *, task: str = "") -> Review:
    name, source = source_of(params, task)
    result = find_kind(source.kind).read(name, source)
    splits = {split: getattr(result, split) for split in SPLITS}
    rows = [row for split, part in splits.items() for row in _rows(split, part, result.labels)]
    exclusive = not source.several
    features, named, strength = _features(params, source, result)
    models_of = partial(_cross_validated, source, result, features, strength=strength)
    targets = [target for part in splits.values() for target in part.targets]
    return Review(
        rows,
        suspects(targets, models_of(result.train.targets), result.labels, exclusive=exclusive),
        different_twins([row.fields for row in rows], [row.labels for row in rows]),
        f"cross-validation of a regression on {named} for {len(rows):,} rows",
        _tested(models_of, targets, result) if exclusive and len(result.labels) > 1 else None,
    )


def _tested(
    models_of: Callable[[list[NDArray[np.float64]]], Probabilities],
    targets: Sequence[NDArray[np.float64]],
    examples: Examples,
) -> SelfTest:
    """The same review with labels of train that are changed on purpose."""
    count = len(examples.train)
    given, changed = plant(np.asarray([target[0] for target in targets[:count]], dtype=np.int64), len(examples.labels))
    planted = [np.asarray([label], dtype=np.float64) for label in given]
    result = suspects([*planted, *targets[count:]], models_of(planted), examples.labels, exclusive=True)
    return SelfTest(len(changed), len({suspect.row for suspect in result} & {*changed.tolist()}), len(result))


def _rows(split: str, part: Split, labels: Sequence[str]) -> Iterator[Row]:
    for fields, row_id, target in zip(part.fields, part.ids, part.targets, strict=True):
        has_class = all(number >= 0 for number in target)
        yield Row(split, row_id, fields, tuple(sorted(labels[int(number)] for number in target)) if has_class else None)


def _features(params: Params, source: TaskSource, examples: Examples) -> tuple[Any, str, float]:
    """(N, F) features of the rows of all splits, their name, and the inverse strength of the penalty: of an encoder of
    the run or, for rows of one text, TF-IDF of words, word pairs and parts of words."""
    texts = [fields for split in SPLITS for fields in getattr(examples, split).fields]
    features, name = models.frozen(params, texts, kind=source.kind, labels=examples.labels)
    if name != models.WORDS or source.kind not in OF_ONE_TEXT:
        return features, name, STRENGTH
    from components.learners.words.features import WordFeatures

    words = WordFeatures.fit(texts, terms=[("word", (1, 2)), ("char_wb", (2, 5))])
    return words.matrix(texts), name, STRENGTH_WORDS


def _cross_validated(
    source: TaskSource, examples: Examples, features: Any, targets: list[NDArray[np.float64]], *, strength: float
) -> Probabilities:
    """(N, C) by regressions that have not learned from the row, a copy of it or a row of its group; dev and test by one
    that has learned from train. `targets`: of train."""
    train, exclusive = examples.train, not source.several
    count, result = len(train), np.zeros((features.shape[0], len(examples.labels)))

    def predicted(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> Any:
        training = models.Training(
            [train.fields[row] for row in rows], [targets[row] for row in rows], examples.labels, exclusive
        )
        return models.fitted(features[rows], training, strength=strength).answers(features[wanted])

    # Strata of the labels as they are: with the same folds, planted labels change the models only by being learned.
    folds = folds_of(strata_of(train, source.kind), FOLDS, seed=0, units=train.units)
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        result[inside] = predicted(np.flatnonzero(folds != fold), inside)
    rest = np.arange(count, features.shape[0])
    if len(rest):
        result[rest] = predicted(np.arange(count), rest)
    return result


def write_review(path: Path, result: Review, source: TaskSource, *, overwrite: bool = False) -> int:
    """Write the rows that should be looked at as csv: texts, an empty label, the proposed and the given label, why, and
    where. `headstart label` reads it when labels are filled in. Returns the number of rows.
    """
    if path.suffix != ".csv":
        raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; use .csv")
    texts, label = answer_columns(source)
    lines: list[dict[str, str]] = []

    def add(row: Row, proposed: str, why: str) -> None:
        given = "" if row.labels is None else shown(row.labels, source)
        line = dict(zip(texts, row.fields, strict=True))
        lines.append(line | {label: "", PROPOSED: proposed, "given": given, WHY: why, "where": f"{row.split} {row.id}"})

    for suspect in result.suspects:
        add(result.rows[suspect.row], shown(suspect.proposed, source), f"looks wrong ({suspect.quality:+.2f})")
    for pair in result.pairs:
        for part, other in ((pair.first, pair.second), (pair.second, pair.first)):
            twin = result.rows[other]
            why = f"similarity {pair.similarity:.2f} to {twin.split} {twin.id}: {shown(twin.labels or (), source)}"
            add(result.rows[part], "", why)
    text = csv_for_people([*texts, label, PROPOSED, "given", WHY, "where"], lines)
    write_named(path, text, overwrite=overwrite)
    return len(lines)
