"""Classification: one label per text, or per pair of texts (paraphrase, entailment)."""

from collections import Counter
from dataclasses import replace

from components.core.errors import DataError
from components.data.scoring.classification import NO_CLASS, UNSEEN, Classification
from components.data.tasks.data import Examples, Labels, Split
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import (
    label_of,
    merged_numbers,
    read_labelled,
)
from components.data.tasks.reading.splits import Row, Rows, examples_of, train_of, unseen_labels, with_labels
from components.data.tasks.task_io import PAIR_EXAMPLES, TEXT_EXAMPLES, label_io
from components.settings.tasks import TaskSource

#: Rows from which classes that occur once are no classes.
FEW = 20


def labelled(name: str, source: TaskSource) -> Examples:
    """Rows of one or more texts with one label; a target is the index of the label in the sorted labels, -1 for no
    class, or `UNSEEN`.

    Rows with the label `outside` belong to no class: they are kept in test only, and in no slice.

    Raises:
        DataError: a file is missing or damaged, a text or label is empty (file and line), there is only one class, half
            of dev or test has labels that train lacks (file and line), test has no row with the label `outside`, or
            as `examples_of`.
    """
    rows: Rows = {}
    counts: Counter[str] = Counter()
    unlabelled: list[Row] = []
    records = read_labelled(name, source, [*source.texts, source.label], counts, texts=len(source.texts))
    for split, fields, label, origin in with_labels(records, source, source.texts, counts, unlabelled):
        target = label_of(label, source.label, origin)
        if target == source.outside:
            counts["outside_rows" if split == "test" else f"{split}_rows_outside"] += 1
            if split != "test":
                continue
            origin = replace(origin, slice=None)
        rows.setdefault(split, []).append(Row(fields, target, origin))
    same = merged_numbers(row.target for each in rows.values() for row in each)
    if same:
        rows = {
            split: [replace(row, target=same.get(row.target, row.target)) for row in each]
            for split, each in rows.items()
        }
    names = sorted({row.target for row in rows.get("train", [])})
    if len(names) < 2:
        raise DataError(
            f"holds {f'only one class ({names[0]!r})' if names else 'no class'}; a classifier needs two or more",
            where=train_of(source),
            key=f"data.tasks.{name}.label",
            do="check {key}",
        )
    if len(names) == len(rows["train"]) > FEW:
        raise DataError(
            f"each of the {len(names)} rows has a class of its own",
            where=train_of(source),
            key=f"data.tasks.{name}.label",
            do="check {key}",
        )
    number = {label: index for index, label in enumerate(names)}
    if source.outside is not None:
        if "outside_rows" not in counts:
            raise DataError(
                f"{source.path}: no row of test has the label {source.outside!r}; check data.tasks.{name}.outside"
            )
        number[source.outside] = NO_CLASS
    number |= dict.fromkeys(unseen_labels(rows, source, set(number), lambda row: (row.target,), counts), UNSEEN)
    return examples_of(
        name,
        source,
        rows,
        labels=names,
        target=lambda row: (number[row.target],),
        every_label=True,
        counts=counts,
        unlabelled=unlabelled,
    )


def strata(split: Split) -> Labels:
    """A label budget is a number of rows per class."""
    return split.labels


KIND = Kind(
    read=labelled,
    io=label_io(["text"], TEXT_EXAMPLES),
    scoring=Classification,
    strata=strata,
)

PAIR = Kind(
    read=labelled,
    io=label_io(["first", "second"], PAIR_EXAMPLES),
    scoring=Classification,
    strata=strata,
)
