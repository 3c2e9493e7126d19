"""Metrics of tags: one per unit (word) of a row.

Targets and answers are W tag indices. If the tags mark spans (BIO), spans are scored: a span is correct if
and only if both ends and its type are (the strict definition of CoNLL-2002 and seqeval; see
`components.data.scoring.spans`). Otherwise (parts of speech) each tag is scored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import (
    NO_LABEL,
    Fields,
    Floats,
    Inputs,
    Judged,
    Scoring,
    Vector,
    Vectors,
    f1,
    macro,
    ratio,
)
from components.data.scoring.spans import Integers, Spans, Tags, read_tags


@dataclass(frozen=True)
class Tagging(Scoring):
    """K = 3 C + 2 sums: true positives, predictions and targets of each class (a span type, or a tag if there are no
    spans); correct tags, tags."""

    labels: Sequence[str]

    averages = False
    constant_name, score_name = "most frequent tag", "share of words with a tag"

    def _tags(self, fields: Fields, tags: Vector, at: Iterable[int]) -> str:
        return ", ".join(f"{fields[word]}: {self.labels[int(tags[word])]}" for word in at)

    def in_words(self, fields: Fields, target: Vector) -> str:
        return (
            self._tags(fields, target, [n for n, tag in enumerate(target) if self.labels[int(tag)] != "O"]) or NO_LABEL
        )

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        at = np.flatnonzero(target.astype(np.int64) != answer.astype(np.int64))
        true, predicted = (self._tags(fields, tags, at) for tags in (target, answer))
        return (true, predicted, len(at) / len(target)) if len(at) else None

    def described(self, answer: Vector) -> tuple[int, float]:
        outside = self.labels.index("O") if "O" in self.labels else -1
        return -1, float(np.mean(answer != outside)) if len(answer) else 0.0

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The primary metric is span F1, or accuracy if tags mark no spans."""
        if not self.tags.types:
            return ("accuracy", "macro_f1")
        return ("span_f1", "span_precision", "span_recall", "macro_f1", "accuracy")

    @cached_property
    def tags(self) -> Tags:
        """Prefixes and types of the tags."""
        return read_tags(self.labels)

    @property
    def class_names(self) -> Sequence[str]:
        return self.tags.types or self.labels

    @property
    def width(self) -> int:
        return 3 * len(self.class_names) + 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        """N rows -> (N, K).

        Raises:
            ValueError: an answer does not have one tag per unit.
        """
        lengths, given = (np.fromiter(map(len, values), np.int64, len(values)) for values in (targets, answers))
        if not np.array_equal(lengths, given):
            row = int(np.flatnonzero(lengths != given)[0])
            raise ValueError(f"row {row}: {given[row]} tags for {lengths[row]} units")
        truth, guess = _joined(targets), _joined(answers)
        count, c = len(lengths), len(self.class_names)
        of_unit = np.repeat(np.arange(count), lengths)
        right = truth == guess
        if not self.tags.types:
            hits, guesses, truths = (of_unit[right], guess[right]), (of_unit, guess), (of_unit, truth)
        else:
            true, guessed = self.tags.spans(truth, lengths), self.tags.spans(guess, lengths)
            same = np.isin(_keys(guessed, lengths, types=c), _keys(true, lengths, types=c))
            hits = (guessed.rows[same], guessed.types[same])
            guesses, truths = (guessed.rows, guessed.types), (true.rows, true.types)
        cells = [(rows, block * c + kinds) for block, (rows, kinds) in enumerate((hits, guesses, truths))]
        cells += [(of_unit[right], np.full(int(right.sum()), 3 * c)), (of_unit, np.full(len(of_unit), 3 * c + 1))]
        rows, columns = (np.concatenate(part) for part in zip(*cells, strict=True))
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, self.width))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Span F1, precision and recall pool the spans of all types; macro F1 is the mean over the classes that occur
        in the targets; accuracy is the share of correct tags."""
        hits, guesses, truths = self.counts(sums)
        metrics = {
            "span_f1": f1(hits.sum(-1), guesses.sum(-1), truths.sum(-1)),
            "span_precision": ratio(hits.sum(-1), guesses.sum(-1)),
            "span_recall": ratio(hits.sum(-1), truths.sum(-1)),
            "macro_f1": macro(f1(hits, guesses, truths), truths),
            "accuracy": ratio(sums[..., -2], sums[..., -1]),
        }
        return {name: metrics[name] for name in self.names}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        most = np.bincount(_joined(targets), minlength=1).argmax()
        return [np.full(len(target), most, dtype=np.float32) for target in targets]

    def renamed(self, answers: Vectors, labels: Sequence[str]) -> Vectors:
        number = np.asarray([self.labels.index(label) for label in labels], dtype=np.float32)
        return [number[answer.astype(np.int64)] for answer in answers]


def _joined(values: Vectors) -> Integers:
    return np.concatenate([np.zeros(0), *values]).astype(np.int64)


def _keys(spans: Spans, lengths: Integers, *, types: int) -> Integers:
    """(S,) keys of spans in N rows; equal if and only if row, ends and type are equal."""
    longest = int(lengths.max(initial=0)) + 1
    position = (np.cumsum(lengths) - lengths)[spans.rows] + spans.starts
    return (position * longest + spans.ends - spans.starts) * types + spans.types
