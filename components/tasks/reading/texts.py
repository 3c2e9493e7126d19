"""Texts with one label each, or with any number of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from components.errors import DataError
from components.settings.tasks import TaskSource
from components.tasks.data import Examples
from components.tasks.reading.records import Place, Record, as_text, filled, label_of, read_records, split_files
from components.tasks.reading.splits import Row, Rows, examples_of, refuse_unseen, train_of


def read_classification(name: str, source: TaskSource) -> Examples:
    """Columns `text` and `label`; a target is the number of the label, by name; -1 for what belongs to no class.

    Rows with the label `outside` stay in test only, and outside of every slice.

    Raises:
        DataError: a file is missing or damaged, a text or label is empty (file and line), there is one class only, a
            label of dev or test does not occur in train (file and line); the splits do not fit (see `examples_of`).
    """
    return labelled(name, source, (source.text,))


def labelled(name: str, source: TaskSource, columns: tuple[str, ...], what: tuple[str, ...] = ("text",)) -> Examples:
    """Rows of one or more texts with one label; `what` the texts are called in messages."""
    rows: Rows = {}
    counts: dict[str, int] = {}
    for split, path, member in split_files(source):
        for record in read_records(path, member, source, [*columns, source.label]):
            *texts, label = record.values
            fields = tuple(
                filled(text, f"the {part}", column, record.place)
                for text, part, column in zip(texts, what, columns, strict=True)
            )
            target = label_of(label, source.label, record.place)
            part = record.slice
            if target == source.outside:
                count = "outside_rows" if split == "test" else f"{split}_rows_outside"
                counts[count] = counts.get(count, 0) + 1
                part = None
                if split != "test":
                    continue
            rows.setdefault(split, []).append(Row(fields, target, part, record.id, record.place))
    names = sorted({row.target for row in rows.get("train", [])})
    if len(names) < 2:
        raise DataError(
            f"{train_of(source)}: holds {f'one class only ({names[0]!r})' if names else 'no class'}; a classifier "
            f"needs two or more, check data.tasks.{name}.label"
        )
    number = {label: index for index, label in enumerate(names)}
    if source.outside is not None:
        if "outside_rows" not in counts:
            raise DataError(
                f"{source.path}: no row of test has the label {source.outside!r}; check data.tasks.{name}.outside"
            )
        number[source.outside] = -1
    refuse_unseen(rows, source, set(number), lambda row: (row.target,))
    return examples_of(
        name,
        source,
        rows,
        labels=names,
        target=lambda row: (number[row.target],),
        every_label=True,
        counts=counts,
    )


def read_multilabel(name: str, source: TaskSource) -> Examples:
    """Columns `text` and `label` (a list, or a text with `label_separator`), or `labels`, columns of 0 and 1.

    A target is the numbers of the labels, ascending; empty where a text has none.

    Raises:
        DataError: as `read_classification`; a column of `labels` holds something else than 0 and 1; no row of train has
            a label at all.
    """
    rows: Rows = {}
    for split, path, member in split_files(source):
        for record in _records(path, member, source):
            text = filled(record.values[0], "the text", source.text, record.place)
            names = tuple(sorted(set(_labels(record, source))))
            rows.setdefault(split, []).append(Row((text,), names, record.slice, record.id, record.place))
    seen = {label for row in rows["train"] for label in row.target}
    if not seen:
        raise DataError(f"{train_of(source)}: no row has a label; check data.tasks.{name}.label")
    refuse_unseen(rows, source, seen, lambda row: row.target)
    labels = sorted(seen)
    number = {label: index for index, label in enumerate(labels)}
    return examples_of(name, source, rows, labels=labels, target=lambda row: [number[label] for label in row.target])


def _records(path: Any, member: str, source: TaskSource) -> Iterator[Record]:
    columns = source.labels if source.labels is not None else [source.label]
    return read_records(path, member, source, [source.text, *columns], nested=True)


def _labels(record: Record, source: TaskSource) -> list[str]:
    values = record.values[1:]
    if source.labels is None:
        return _named(values[0], source, record.place)
    found: list[str] = []
    for column, value in zip(source.labels, values, strict=True):
        flag = (as_text(value, record.place) or "").strip().lower()
        if flag not in ("0", "1", "0.0", "1.0", "true", "false"):
            raise DataError(f"{record.place}: column {column!r} holds {value!r}; a column of labels holds 0 or 1")
        if flag in ("1", "1.0", "true"):
            found.append(column)
    return found


def _named(value: Any, source: TaskSource, place: Place) -> list[str]:
    if isinstance(value, list):
        return [label_of(label, source.label, place) for label in value]
    return [label for part in (as_text(value, place) or "").split(source.label_separator) if (label := part.strip())]
