"""The texts that should be labelled next (`headstart suggest`), and the file in which a person labels them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from components.errors import ConfigError, DataError
from components.formats.spreadsheet import csv_for_people
from components.labelling import models
from components.labelling.models import Known, Training
from components.labelling.pool import Pool, read_pool
from components.labelling.rows import FileRow, answer_columns, known_labels, read_rows, shown, source_of
from components.labelling.selection import typical, uncertain
from components.outputs import write_named
from components.settings.params import Params
from components.settings.tasks import TaskSource
from components.tasks.data import Fields
from components.unlabelled.texts import digest_of

#: `auto`: the champion if it knows all labels, otherwise a model on features without labels.
Model = Literal["auto", "champion", "frozen", "words"]
#: Columns that are added to the texts.
PROPOSED, CONFIDENCE, WHY = "proposed", "confidence", "why"
#: Labelled texts a label, up to which the choice is by typicality.
COLD: Final = 1
FORMATS: Final = (".csv", ".jsonl")


@dataclass(frozen=True)
class Suggestion:
    """A text to label.

    Attributes:
        fields: the texts of the row.
        proposed: labels that the model gives; None: there is no model.
        confidence: probability of the proposed label, in `multilabel` of the least certain decision; None: no model.
        probabilities: label -> probability; empty without a model.
        why: why the text was chosen, in words.
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
    """Suggestions, and how they were chosen.

    Attributes:
        suggestions: in the order in which they should be labelled.
        labels: known labels.
        source: of the texts, in words.
        model: of features and proposals, in words.
        candidates: number of texts that were compared.
        left_out: number of texts that have a label, are held out, or are near copies of such.
    """

    suggestions: list[Suggestion]
    labels: list[str]
    source: str
    model: str
    candidates: int
    left_out: int


def queue(
    params: Params,
    *,
    task: str = "",
    count: int = 50,
    file: Path | None = None,
    model: Model = "auto",
    balanced: bool = True,
    without: Collection[str] = (),
    seed: int = 0,
) -> Queue:
    """Choose the texts to label next. The same data, model and seed give the same texts in the same order.

    Args:
        params: settings; paths are relative to the working directory.
        task: the first of run.tasks if empty.
        count: number of texts.
        file: file or folder of texts without labels; None: the rows of train without a label, otherwise the domain.
        model: what features and proposals come from.
        balanced: whether labels with few texts are preferred.
        without: keys of suggestions that are left out, such as those that a person has skipped.
        seed: of the random choice.

    Raises:
        ConfigError: the task is unknown, or its kind cannot be labelled here; there is no champion and `model` asks for
            it.
        DataError: a file is damaged, or no text is left.
    """
    name, source = source_of(params, task)
    rows = read_rows(name, source)
    labels = known_labels(rows, source)
    training = _training(rows, labels, source)
    pool = read_pool(params, source, rows, file=file, without={bytes.fromhex(key) for key in without})
    known = _known(params, name, source, pool, training, model)
    chosen = list(_chosen(pool, known, training, count=count, balanced=balanced, seed=seed))
    found = [_suggestion(pool.fields[index], known, index, why, source) for index, why in chosen]
    return Queue(found, labels, pool.source, known.source, len(pool.fields), pool.left_out)


def _training(rows: Sequence[FileRow], labels: list[str], source: TaskSource) -> Training:
    number = {label: index for index, label in enumerate(labels)}
    used = [row for row in rows if row.split == "train" and row.labels is not None]
    used = [row for row in used if all(label in number for label in row.labels or ())]
    targets = [np.asarray([number[label] for label in row.labels or ()], dtype=np.float64) for row in used]
    return Training([row.fields for row in used], targets, labels, exclusive=source.kind != "multilabel")


def _known(params: Params, task: str, source: TaskSource, pool: Pool, training: Training, model: Model) -> Known:
    """Features and probabilities of the pool."""
    if model in ("auto", "champion"):
        champion = models.champion_of(params, task)
        usable = champion is not None and set(training.labels) <= set(champion.labels)
        if usable and (known := models.of_champion(champion, pool.fields)) is not None:
            return known
        if model == "champion":
            raise ConfigError(
                f"{task}: there is no champion that knows all labels of train and shows its features; use --model auto"
            )
    texts = [*pool.fields, *training.fields]
    if model == "words":
        features, name = models.word_features(texts, labels=len(training.labels)), "words"
    else:
        features, name = models.frozen(params, texts, kind=source.kind, labels=training.labels)
    own, labelled = features[: len(pool.fields)], features[len(pool.fields) :]
    if not _is_warm(training):
        return Known(own, None, training.labels, name, labelled)
    head = models.fitted(labelled, training)
    return Known(own, head.answers(own), training.labels, f"regression on {name}", labelled)


def _is_warm(training: Training) -> bool:
    """Whether there are enough labels for a model."""
    return training.teaches and len(training.fields) >= COLD * len(training.labels)


def _chosen(
    pool: Pool, known: Known, training: Training, *, count: int, balanced: bool, seed: int
) -> Iterator[tuple[int, str]]:
    """(index in the pool, why)."""
    if known.probabilities is None:
        labelled = known.labelled if known.labelled is not None else known.features[:0]
        for index, size in typical(known.features, labelled=labelled, count=count, copies=pool.copies, seed=seed):
            yield index, f"typical of a group of {size} texts"
        return
    counts = None
    if balanced:
        own = dict(zip(training.labels, training.counts.tolist(), strict=True))
        counts = np.asarray([own.get(label, 0) for label in known.labels], dtype=np.int64)
    exclusive = training.exclusive
    for index in uncertain(
        known.features,
        known.probabilities,
        counts=counts,
        count=count,
        copies=pool.copies,
        exclusive=exclusive,
        seed=seed,
    ):
        yield index, _doubt(known.probabilities[index], known.labels, exclusive=exclusive)


def _doubt(probabilities: models.Floats, labels: Sequence[str], *, exclusive: bool) -> str:
    """Between which labels the model decides."""
    if exclusive:
        first, second = np.argsort(-probabilities, kind="stable")[:2].tolist()
        return f"{labels[first]} {probabilities[first]:.2f} or {labels[second]} {probabilities[second]:.2f}"
    nearest = int(np.abs(probabilities - 0.5).argmin())
    return f"{labels[nearest]} {probabilities[nearest]:.2f}"


def _suggestion(fields: Fields, known: Known, index: int, why: str, source: TaskSource) -> Suggestion:
    key = digest_of(fields).hex()
    if known.probabilities is None:
        return Suggestion(fields, None, None, {}, why, key)
    row = known.probabilities[index]
    if source.kind == "multilabel":
        proposed = tuple(sorted(label for label, value in zip(known.labels, row, strict=True) if value >= 0.5))
        confidence = float(np.maximum(row, 1 - row).min())
    else:
        proposed, confidence = (known.labels[int(row.argmax())],), float(row.max())
    shares = {label: float(value) for label, value in zip(known.labels, row, strict=True)}
    return Suggestion(fields, proposed, confidence, shares, why, key)


def check_format(path: Path) -> None:
    """Check the suffix of a file of suggestions.

    Raises:
        DataError: the suffix is unknown.
    """
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; use {' or '.join(FORMATS)}")


def write_suggestions(
    path: Path, suggestions: Sequence[Suggestion], source: TaskSource, *, overwrite: bool = False
) -> None:
    """Write a csv or jsonl file with the texts, an empty label, and what the model proposes; `headstart label` reads it
    when the labels are filled in.

    Raises:
        DataError: the suffix is unknown.
        ArtifactError: the file exists and may not be replaced, or cannot be written.
    """
    check_format(path)
    texts, label = answer_columns(source)
    rows: list[dict[str, str | float]] = [
        dict[str, str | float](zip(texts, one.fields, strict=True))
        | {
            label: "",
            PROPOSED: "" if one.proposed is None else shown(one.proposed, source),
            CONFIDENCE: "" if one.confidence is None else round(one.confidence, 4),
            WHY: one.why,
        }
        for one in suggestions
    ]
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_named(path, text, overwrite=overwrite)
        return
    text = csv_for_people([*texts, label, PROPOSED, CONFIDENCE, WHY], rows)
    write_named(path, text, overwrite=overwrite)
