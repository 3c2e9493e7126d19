"""The texts that should be labelled next (`headstart suggest`), and the file in which a person labels them."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from components.core.errors import DataError
from components.core.outputs import write_named
from components.data.formats.delimited import csv_for_people
from components.data.formats.textkey import digest_of
from components.data.tasks.data import Fields
from components.labelling import models
from components.labelling.models import Known, Training
from components.labelling.pool import Pool, read_pool
from components.labelling.rows import FileRow, answer_columns, known_labels, read_rows, shown, source_of
from components.labelling.selection import typical, uncertain
from components.settings.params import Params
from components.settings.tasks import TaskSource

#: Columns that are added to the texts.
PROPOSED, CONFIDENCE, WHY = "proposed", "confidence", "why"
#: Labelled texts a label, up to which the choice is by typicality.
COLD: Final = 1
FORMATS: Final = (".csv", ".jsonl")


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
    training = _training(rows, labels, source)
    pool = read_pool(params, source, rows, file=file, without={bytes.fromhex(key) for key in without})
    beliefs = _known(params, name, source, pool, training)
    suggestions = [
        _suggestion(pool.fields[index], beliefs, index, why, source)
        for index, why in _chosen(pool, beliefs, training, count=count)
    ]
    return Queue(suggestions, labels, pool.source, beliefs.source, len(pool.fields), pool.left_out)


def _training(rows: Sequence[FileRow], labels: list[str], source: TaskSource) -> Training:
    number = {label: index for index, label in enumerate(labels)}
    used = [row for row in rows if row.split == "train" and row.labels is not None]
    used = [row for row in used if all(label in number for label in row.labels or ())]
    targets = [np.asarray([number[label] for label in row.labels or ()], dtype=np.float64) for row in used]
    return Training([row.fields for row in used], targets, labels, exclusive=not source.several)


def _known(params: Params, task: str, source: TaskSource, pool: Pool, training: Training) -> Known:
    """Features and probabilities of the pool: by the champion if it knows all labels, else by a regression."""
    champion = models.champion_of(params, task)
    usable = champion is not None and set(training.labels) <= set(champion.labels)
    if usable and (beliefs := models.of_champion(champion, pool.fields)) is not None:
        return beliefs
    texts = [*pool.fields, *training.fields]
    features, name = models.frozen(params, texts, kind=source.kind, labels=training.labels)
    candidates, labelled = features[: len(pool.fields)], features[len(pool.fields) :]
    # With too few labels there is no model.
    if not training.teaches or len(training.fields) < COLD * len(training.labels):
        return Known(candidates, None, training.labels, name, labelled)
    head = models.fitted(labelled, training)
    return Known(candidates, head.answers(candidates), training.labels, f"regression on {name}", labelled)


def _chosen(pool: Pool, beliefs: Known, training: Training, *, count: int) -> Iterator[tuple[int, str]]:
    if beliefs.probabilities is None:
        labelled = beliefs.labelled if beliefs.labelled is not None else beliefs.features[:0]
        for index, size in typical(beliefs.features, labelled=labelled, count=count, copies=pool.copies):
            yield index, f"typical of a group of {size} texts"
        return
    given = dict(zip(training.labels, training.counts.tolist(), strict=True))
    counts = np.asarray([given.get(label, 0) for label in beliefs.labels], dtype=np.int64)
    exclusive = training.exclusive
    for index in uncertain(
        beliefs.features, beliefs.probabilities, counts=counts, count=count, copies=pool.copies, exclusive=exclusive
    ):
        yield index, _doubt(beliefs.probabilities[index], beliefs.labels, exclusive=exclusive)


def _doubt(probabilities: models.Floats, labels: Sequence[str], *, exclusive: bool) -> str:
    if exclusive:
        first, second = np.argsort(-probabilities, kind="stable")[:2].tolist()
        return f"{labels[first]} {probabilities[first]:.2f} or {labels[second]} {probabilities[second]:.2f}"
    nearest = int(np.abs(probabilities - 0.5).argmin())
    return f"{labels[nearest]} {probabilities[nearest]:.2f}"


def _suggestion(fields: Fields, beliefs: Known, index: int, why: str, source: TaskSource) -> Suggestion:
    key = digest_of(fields).hex()
    if beliefs.probabilities is None:
        return Suggestion(fields, None, None, {}, why, key)
    row = beliefs.probabilities[index]
    if source.several:
        proposed = tuple(sorted(label for label, value in zip(beliefs.labels, row, strict=True) if value >= 0.5))
        confidence = float(np.maximum(row, 1 - row).min())
    else:
        proposed, confidence = (beliefs.labels[int(row.argmax())],), float(row.max())
    shares = {label: float(value) for label, value in zip(beliefs.labels, row, strict=True)}
    return Suggestion(fields, proposed, confidence, shares, why, key)


def check_format(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; use {' or '.join(FORMATS)}")


def write_suggestions(
    path: Path, suggestions: Sequence[Suggestion], source: TaskSource, *, overwrite: bool = False
) -> None:
    """Write a csv or jsonl file with the texts, an empty label, and what the model proposes; `headstart label` reads it
    when the labels are filled in.
    """
    check_format(path)
    texts, label = answer_columns(source)
    rows: list[dict[str, str | float]] = [
        dict[str, str | float](zip(texts, suggestion.fields, strict=True))
        | {
            label: "",
            PROPOSED: "" if suggestion.proposed is None else shown(suggestion.proposed, source),
            CONFIDENCE: "" if suggestion.confidence is None else round(suggestion.confidence, 4),
            WHY: suggestion.why,
        }
        for suggestion in suggestions
    ]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_named(path, text, overwrite=overwrite)
        return
    text = csv_for_people([*texts, label, PROPOSED, CONFIDENCE, WHY], rows)
    write_named(path, text, overwrite=overwrite)
