"""What is in labelled data: sizes, balance, lengths, duplicates, conflicts, leakage between splits, language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from components.cli.onboarding.language import language_of
from components.data.formats.textkey import text_key
from components.data.tasks.data import Examples, Split
from components.data.tasks.kinds import find_kind
from components.settings.tasks import SPLITS, TaskSource

#: Share of the texts that have at most `Facts.long` characters.
WHOLE = 0.95
#: Listed classes.
_LISTED = 8


@dataclass(frozen=True)
class Facts:
    """What the inspection has found.

    Attributes:
        kind: of the task.
        rows: split -> number of rows, after rows of train that are in a later split were dropped.
        held_out: rows of test that were held out of train.
        classes: label -> rows of train, most frequent first; empty for kinds without labels.
        median, long: characters of a text: median, and of the longest 5%, the shortest.
        duplicates: rows of train whose text occurs before.
        conflicts: different texts of train that have several labels.
        overlap: split -> rows that are also in a later split.
        empty: rows without text, which are dropped.
        unlabelled: rows of train without a label, which are left out.
        alike: labels that differ in upper and lower case only.
        telling: (token, rows of train with it, label) of tokens that occur with one label only, in many of its rows.
        language: code.
    """

    kind: str
    rows: dict[str, int]
    held_out: int
    classes: dict[str, int]
    median: int
    long: int
    duplicates: int
    conflicts: int
    overlap: dict[str, int]
    empty: int
    language: str
    unlabelled: int = 0
    alike: tuple[str, ...] = ()
    telling: tuple[tuple[str, int, str], ...] = ()

    def lines(self) -> list[str]:
        """The facts in words."""
        sizes = ", ".join(f"{count:,} {split}" for split, count in self.rows.items() if count)
        lines = [f"{self.kind}: {sizes}" + (" (test held out of train)" if self.held_out else "")]
        if self.classes:
            listed = [f"{name} {count:,}" for name, count in list(self.classes.items())[:_LISTED]]
            more = len(self.classes) - len(listed)
            lines.append(f"{len(self.classes)} labels: {', '.join(listed)}" + (f" and {more} more" if more else ""))
            least, most = min(self.classes.values()), max(self.classes.values())
            if most > 10 * least:
                rare = [name for name, count in self.classes.items() if 10 * count < most]
                lines.append(
                    f"unbalanced: {len(rare)} label(s) have less than a tenth of the rows of {next(iter(self.classes))}"
                )
        lines.append(f"language {self.language}; {self.median} characters a text, 5% have more than {self.long}")
        if self.kind == "classification" and len(self.classes) > 2 and all(name.isdigit() for name in self.classes):
            lines.append("the labels are numbers; if they are grades to be predicted as such: --kind regression")
        if self.alike:
            lines.append(
                f"warning: labels differ in upper and lower case only: {', '.join(self.alike)}; write one of them"
            )
        for token, count, label in self.telling:
            lines.append(
                f"the token {token!r} occurs in {count:,} rows, all of them {label!r}; is it part of the label?"
            )
        problems = [
            (self.empty, "row(s) have no text; they are dropped"),
            (self.unlabelled, "row(s) have no label; they are left out (no_label: drop), their texts are used without"),
            (self.duplicates, "row(s) of train repeat an earlier text"),
            (self.conflicts, "text(s) of train have different labels; correct them where one is wrong"),
            *(
                (count, f"row(s) of {split} are also in a later split; dropped from {split}")
                for split, count in self.overlap.items()
            ),
        ]
        return lines + [f"warning: {count:,} {what}" for count, what in problems if count]


def inspect(name: str, source: TaskSource) -> Facts:
    """Read a task as a run does, and count.

    Raises:
        DataError: the data are invalid (file, line, what to do).
    """
    examples = find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    texts = [" ".join(fields) for fields in examples.train.fields]
    lengths = np.array([len(text) for text in texts])
    keys = [text_key(text) for text in texts]
    return Facts(
        kind=source.kind,
        rows={split: len(getattr(examples, split)) for split in SPLITS},
        held_out=examples.counts.get("test_rows_held_out", 0),
        classes=_classes(examples),
        median=int(np.median(lengths)),
        long=int(np.quantile(lengths, WHOLE)),
        duplicates=len(keys) - len(set(keys)),
        conflicts=_conflicts(examples.train, keys) if examples.labels and source.kind != "tagging" else 0,
        overlap={split: examples.counts.get(f"{split}_rows_in_later_splits", 0) for split in SPLITS[:2]},
        empty=sum(examples.counts.get(f"{split}_rows_empty", 0) for split in SPLITS),
        language=language_of(texts),
        unlabelled=examples.counts.get("train_rows_without_label", 0),
        alike=_alike(examples.labels),
        telling=_telling(examples.train, examples.labels) if source.kind == "classification" else (),
    )


def _alike(labels: Sequence[str]) -> tuple[str, ...]:
    folded = Counter(label.casefold() for label in labels)
    return tuple(label for label in labels if folded[label.casefold()] > 1)


def _telling(train: Split, labels: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """Up to three tokens that occur in at least half of the rows of a label, and in no row of another one."""
    counts = Counter(int(target[0]) for target in train.targets if target[0] >= 0)
    seen: Counter[str] = Counter()
    of_label: dict[str, int] = {}
    mixed: set[str] = set()
    for fields, target in zip(train.fields, train.targets, strict=True):
        for token in {*" ".join(fields).casefold().split()}:
            seen[token] += 1
            if of_label.setdefault(token, int(target[0])) != int(target[0]):
                mixed.add(token)
    telling = [
        (token, count, labels[of_label[token]])
        for token, count in seen.most_common()
        if token not in mixed and of_label[token] >= 0 and count >= max(5, counts[of_label[token]] / 2)
    ]
    return tuple(telling[:3])


def _classes(examples: Examples) -> dict[str, int]:
    counts = Counter(int(number) for target in examples.train.targets for number in target if number >= 0)
    return {examples.labels[number]: count for number, count in counts.most_common()} if examples.labels else {}


def _conflicts(train: Split, keys: Sequence[str]) -> int:
    labels: dict[str, set[tuple[float, ...]]] = {}
    for key, target in zip(keys, train.targets, strict=True):
        labels.setdefault(key, set()).add(tuple(target.tolist()))
    return sum(len(targets) > 1 for targets in labels.values())
