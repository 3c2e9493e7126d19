"""The texts that should be labelled next (`headstart suggest`), and the file in which a person labels them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.data.formats.textkey import digest_of
from components.data.tasks.data import Fields
from components.labelling import models
from components.labelling.models import Beliefs
from components.labelling.pool import Pool, read_pool
from components.labelling.rows import known_labels, read_rows, shown, source_of, write_to_label
from components.labelling.selection import typical, uncertain
from components.settings.params import Params
from components.settings.tasks import TaskSource

#: Columns that are added to the texts.
PROPOSED, CONFIDENCE, WHY = "proposed", "confidence", "why"


@dataclass(frozen=True)
class Suggestion:
    """A text to label.

    Attributes:
        proposed: labels that the model gives; None: there is no model.
        confidence: probability of the proposed label, in `multilabel` of the least certain decision; None: no model.
        key: hexadecimal identity of the text, for `without` of `queue`.
    """

    fields: Fields
    proposed: tuple[str, ...] | None
    confidence: float | None
    probabilities: dict[str, float]
    why: str
    key: str


@dataclass(frozen=True)
class Queue:
    """Suggestions, and how they were chosen."""

    suggestions: list[Suggestion]
    labels: list[str]
    source: str
    model: str
    candidates: int
    left_out: int


def queue(
    params: Params, *, task: str = "", count: int = 50, file: Path | None = None, without: Collection[str] = ()
) -> Queue:
    """Choose the texts to label next. The same data and model give the same texts in the same order.

    Args:
        file: file or folder of texts without labels; None: the rows of train without a label, otherwise the domain.
        without: keys of suggestions that are left out, such as those that a person has skipped.
    """
    name, source = source_of(params, task)
    rows = read_rows(name, source)
    labels = known_labels(rows, source)
    used = [row for row in rows if row.split == "train" and row.labels is not None and {*row.labels} <= {*labels}]
    given = np.asarray([[label in (row.labels or ()) for label in labels] for row in used], float)
    given = given.reshape(len(used), len(labels))
    pool = read_pool(params, source, rows, file=file, without={bytes.fromhex(key) for key in without})
    beliefs = models.beliefs_about(params, name, pool.fields, [row.fields for row in used], given, labels=labels)
    suggestions = list(_suggestions(pool, beliefs, dict(zip(labels, given.sum(0), strict=True)), source, count=count))
    return Queue(suggestions, labels, pool.source, beliefs.source, len(pool.fields), pool.left_out)


def _suggestions(
    pool: Pool, beliefs: Beliefs, counts: Mapping[str, float], source: TaskSource, *, count: int
) -> Iterator[Suggestion]:
    keys = [digest_of(fields).hex() for fields in pool.fields]
    if beliefs.probabilities is None:
        assert beliefs.labelled is not None
        for index, size in typical(beliefs.features, labelled=beliefs.labelled, count=count, copies=pool.copies):
            why = f"typical of a group of {size} texts"
            yield Suggestion(pool.fields[index], None, None, {}, why, keys[index])
        return
    exclusive, given = not source.several, np.asarray([counts.get(label, 0) for label in beliefs.labels])
    for index in uncertain(
        beliefs.features, beliefs.probabilities, counts=given, count=count, copies=pool.copies, exclusive=exclusive
    ):
        row = beliefs.probabilities[index]
        sure = row if exclusive else np.maximum(row, 1 - row)
        chosen = [row.argmax()] if exclusive else np.flatnonzero(row >= 0.5)
        proposed = tuple(sorted(beliefs.labels[number] for number in chosen))
        confidence = float(sure.max() if exclusive else sure.min())
        shares = dict(zip(beliefs.labels, row.tolist(), strict=True))
        why = _doubt(row, beliefs.labels, exclusive=exclusive)
        yield Suggestion(pool.fields[index], proposed, confidence, shares, why, keys[index])


def _doubt(probabilities: models.Floats, labels: Sequence[str], *, exclusive: bool) -> str:
    if exclusive:
        first, second = np.argsort(-probabilities, kind="stable")[:2].tolist()
        return f"{labels[first]} {probabilities[first]:.2f} or {labels[second]} {probabilities[second]:.2f}"
    nearest = int(np.abs(probabilities - 0.5).argmin())
    return f"{labels[nearest]} {probabilities[nearest]:.2f}"


def write_suggestions(
    path: Path, suggestions: Sequence[Suggestion], source: TaskSource, *, overwrite: bool = False
) -> None:
    """Write a csv or jsonl file with the texts, an empty label, and what the model proposes; `headstart label` reads it
    when the labels are filled in.
    """
    rows = []
    for each in suggestions:
        proposed = "" if each.proposed is None else shown(each.proposed, source)
        confidence = "" if each.confidence is None else round(each.confidence, 4)
        rows.append((each.fields, {PROPOSED: proposed, CONFIDENCE: confidence, WHY: each.why}))
    write_to_label(path, rows, source, (PROPOSED, CONFIDENCE, WHY), overwrite=overwrite)
