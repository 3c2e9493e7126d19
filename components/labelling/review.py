"""The labels of a task under review: probabilities of models that have not learned from a row, and what they show.

The models are regressions in cross-validation, on features of an encoder of the run, or of words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.data.tasks.budgets import folds_of
from components.data.tasks.data import Fields, Split, Target, one_hot
from components.data.tasks.examples import strata_of
from components.data.tasks.kinds import find_kind
from components.labelling import models
from components.labelling.quality import Pair, SelfTest, Suspect, different_twins, plant, suspects
from components.labelling.queue import PROPOSED, WHY
from components.labelling.rows import Names, shown, source_of, write_to_label
from components.settings.params import Params
from components.settings.tasks import OF_ONE_TEXT, SPLITS, TaskSource

FOLDS: Final = 5
#: Inverse strength of the penalty: labels that may be wrong need a stronger one.
STRENGTH: Final = 1.0
#: The same of TF-IDF vectors, which have many features of little weight.
STRENGTH_WORDS: Final = 10.0


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
    rows = [
        Row(split, row_id, fields, _named(target, result.labels))
        for split, part in splits.items()
        for row_id, fields, target in zip(part.ids, part.fields, part.targets, strict=True)
    ]
    exclusive = not source.several
    features, named, strength = _features(params, source, [row.fields for row in rows], result.labels)
    train, targets = result.train, [target for part in splits.values() for target in part.targets]
    # Strata of the labels as they are: with the same folds, planted labels change the models only by being learned.
    folds = folds_of(strata_of(train, source.kind), FOLDS, seed=0, units=train.units)
    folds = np.concatenate([folds, np.full(len(rows) - len(folds), -1)])

    def suspected(learned: Sequence[Target]) -> list[Suspect]:
        """The suspects where train has the targets `learned`. The models have not learned from the row, a copy of it
        or a row of its group; for dev and test they have learned from train."""
        given = one_hot(learned, labels=len(result.labels))
        probabilities = np.zeros((len(rows), len(result.labels)))
        for fold in np.unique(folds):
            others = np.flatnonzero((folds != fold) & (folds >= 0))
            model = models.fitted(features[others], given[others], exclusive=exclusive, strength=strength)
            probabilities[folds == fold] = model.answers(features[np.flatnonzero(folds == fold)])
        return suspects([*learned, *targets[len(train) :]], probabilities, result.labels, exclusive=exclusive)

    return Review(
        rows,
        suspected(train.targets),
        different_twins([row.fields for row in rows], [row.labels for row in rows]),
        f"cross-validation of a regression on {named} for {len(rows):,} rows",
        _tested(suspected, train, len(result.labels)) if exclusive and len(result.labels) > 1 else None,
    )


def _tested(suspected: Callable[[Sequence[Target]], list[Suspect]], train: Split, labels: int) -> SelfTest:
    """The same review with labels of train that are changed on purpose."""
    given, changed = plant(train.labels, labels)
    result = suspected([np.asarray([label], dtype=np.float64) for label in given])
    return SelfTest(len(changed), len({suspect.row for suspect in result} & {*changed.tolist()}), len(result))


def _named(target: Target, labels: Sequence[str]) -> Names | None:
    return None if (target < 0).any() else tuple(sorted(labels[int(number)] for number in target))


def _features(params: Params, source: TaskSource, texts: list[Fields], labels: Sequence[str]) -> tuple[Any, str, float]:
    """(N, F) features, their name, and the inverse strength of the penalty: of an encoder of the run or, for rows of
    one text, TF-IDF of words, word pairs and parts of words."""
    features, name = models.frozen(params, texts, kind=source.kind, labels=labels)
    if name != models.WORDS or source.kind not in OF_ONE_TEXT:
        return features, name, STRENGTH
    from components.learners.words.features import WordFeatures

    words = WordFeatures.fit(texts, terms=[("word", (1, 2)), ("char_wb", (2, 5))])
    return words.matrix(texts), name, STRENGTH_WORDS


def write_review(path: Path, result: Review, source: TaskSource, *, overwrite: bool = False) -> int:
    """Write the rows that should be looked at: texts, an empty label, the proposed and the given label, why, and where.
    Returns the number of rows."""
    looked_at = [
        (each.row, shown(each.proposed, source), f"looks wrong ({each.quality:+.2f})") for each in result.suspects
    ]
    for pair in result.pairs:
        for part, other in ((pair.first, pair.second), (pair.second, pair.first)):
            twin = result.rows[other]
            why = f"similarity {pair.similarity:.2f} to {twin.split} {twin.id}: {shown(twin.labels or (), source)}"
            looked_at.append((part, "", why))
    lines = []
    for number, proposed, why in looked_at:
        row = result.rows[number]
        given = "" if row.labels is None else shown(row.labels, source)
        where = f"{row.split} {row.id}"
        lines.append((row.fields, {PROPOSED: proposed, "given": given, WHY: why, "where": where}))
    write_to_label(path, lines, source, (PROPOSED, "given", WHY, "where"), overwrite=overwrite)
    return len(lines)
