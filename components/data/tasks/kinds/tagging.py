"""Tagging: one tag per word, in CoNLL, CoNLL-U, parallel files, or tables with a column of words and one of tags.

Targets and answers are W tag indices. If the tags mark spans (BIO), spans are scored: a span is correct if
and only if both ends and its type are (the strict definition of CoNLL-2002 and seqeval; see
`components.data.scoring.spans`). Otherwise (parts of speech) each tag is scored.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError, nearest
from components.data.formats.conll import CONLLU
from components.data.formats.hub import tagging_columns
from components.data.formats.tables import as_text
from components.data.formats.textkey import text_key
from components.data.formats.words import OUTSIDE, TagError, convert, inventory, repaired
from components.data.scoring.base import NO_LABEL, Fields, Floats, Inputs, Judged, Scoring, Vector, Vectors, ratio
from components.data.scoring.spans import Integers, Tags, read_tags
from components.data.tasks.data import Answer, Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import Origin, Position, SplitFile, read_records, split_files
from components.data.tasks.reading.splits import Rows
from components.data.tasks.task_io import TaskIO, texts
from components.settings.formats import FORMATS
from components.settings.tasks import WHOLE_FILE, TaskSource

#: Maximum number of words of a sentence; longer ones indicate missing empty lines between sentences.
MOST_WORDS = 10_000


@dataclass(frozen=True)
class _Tagged:
    """A sentence; `lines` holds the line of each word, or is empty if all words are on one line."""

    words: list[str]
    tags: list[str]
    origin: Origin
    lines: list[int] = field(default_factory=list)


def read_tagging(name: str, source: TaskSource) -> Examples:
    """Fields are the words; a target holds the index of each word's tag.

    Spans are validated against `scheme`, repaired where only their first letter is wrong, and converted to BIO; the
    labels are all tags of the span types of train. With `scheme: none` the labels are the tags of train.

    Raises:
        DataError: a file is missing or damaged, a tag violates the scheme (file and line), the numbers of words and
            tags differ, a word is empty, a sentence has more than `MOST_WORDS` words, types or tags of half of
            the sentences of dev or test do not occur in train, or as `Rows.examples`.
    """
    rows = Rows(name, source)
    for file in split_files(source):
        for sentence in _sentences(file, rows.counts):
            _check(sentence)
            origin, words = sentence.origin, tuple(sentence.words)
            if source.document == WHOLE_FILE:
                origin = replace(origin, document=WHOLE_FILE)
            tags = _learned(sentence, source, rows.counts, file.split)
            rows.add(file.split, words, tags, origin, text_key(" ".join(words)))
    seen = {_kind(tag, source) for row in rows["train"] for tag in row.target} - {None}
    if len(seen) < (2 if source.scheme == "none" else 1):
        what = "only one tag" if source.scheme == "none" else "no span"
        raise rows.unusable("tags", f"holds {what}")
    kinds = {str(kind) for kind in seen}

    kinds |= rows.unseen(kinds, lambda row: [str(kind) for tag in row.target if (kind := _kind(tag, source))])
    labels = sorted(kinds) if source.scheme == "none" else inventory(kinds, "bio")
    return rows.examples(labels=labels)


def _check(sentence: _Tagged) -> None:
    if len(sentence.tags) != len(sentence.words):
        raise DataError(
            f"{len(sentence.words)} words, {len(sentence.tags)} tags; each word needs one tag", where=sentence.origin
        )
    if len(sentence.words) > MOST_WORDS:
        raise DataError(
            f"a sentence of {len(sentence.words)} words, the maximum is {MOST_WORDS}; "
            f"separate the sentences (in CoNLL by an empty line)",
            where=sentence.origin,
        )
    for index, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True)):
        if not word.strip() or not tag.strip():
            problem = (
                f"{word!r}, has no tag; fill it in, or set tags" if word.strip() else "is empty; remove it, and its tag"
            )
            raise DataError(f"word {index + 1}{', ' if word.strip() else ' '}{problem}", where=_place(sentence, index))


def _kind(tag: str, source: TaskSource) -> str | None:
    """The type of the span that a tag belongs to, or the tag if tags mark no spans."""
    if source.scheme == "none":
        return tag
    return None if tag == OUTSIDE else tag.partition("-")[2]


def _learned(sentence: _Tagged, source: TaskSource, counts: Counter[str], split: str) -> tuple[str, ...]:
    if source.scheme == "none":
        return tuple(sentence.tags)
    tags, changed = repaired(sentence.tags, source.scheme)
    if changed:
        counts[f"{split}_tags_repaired"] += changed
    try:
        return tuple(convert(tags, source.scheme, "bio"))
    except TagError as error:
        word = sentence.words[error.index]
        what = f"word {error.index + 1}, {word!r}, scheme {source.scheme}: {error}"
        raise DataError(what, where=_place(sentence, error.index)) from error


def _place(sentence: _Tagged, index: int) -> Position:
    """The line of a word, or of its sentence."""
    position = sentence.origin.position
    return replace(position, line=sentence.lines[index], unit="line") if sentence.lines else position


def _sentences(file: SplitFile, counts: Counter[str]) -> Iterator[_Tagged]:
    source, path, form = file.source, file.path, file.form
    default = tagging_columns(path) if form == "datasets" else FORMATS[form].tagging
    words, tags = source.words or default[0], source.tags or default[1]
    if form == "conllu" and tags not in CONLLU:
        raise DataError(f"{path}: CoNLL-U has no column {tags!r}{nearest(tags, CONLLU)}")
    lines = ["lines"] if form in ("conll", "conllu") else []
    for record in read_records(file, [words, tags, *lines], counts, nested=True):
        first, second = map(_listed, record.values, (words, tags), (record.origin, record.origin))
        yield _Tagged(first, second, record.origin, *record.values[2:])


def _listed(value: Any, column: str, origin: Origin) -> list[str]:
    """A list of texts, or a text that is split at white space."""
    result = [as_text(item, origin) or "" for item in value] if isinstance(value, list) else None
    result = (as_text(value, origin) or "").split() if result is None else result
    if not result:
        raise DataError(f"{column!r} is empty; remove the row or fill it in", where=origin)
    return result


def parse(row: Mapping[str, Any]) -> Fields | None:
    """The words: a list, or a text with white space between the words."""
    value = row["words"]
    return (tuple(value.split()) if isinstance(value, str) else texts("words", value)) or None


def format_tags(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """One tag per word, and the spans that the tags mark."""
    numbers = answer.astype(np.int64)
    tags = read_tags(labels)
    spans = [
        {"start": start, "end": end, "type": tags.types[kind], "text": " ".join(fields[start:end])}
        for _, start, end, kind in tags.spans(numbers, np.asarray([len(numbers)]))
    ]
    names = [labels[number] for number in numbers]
    return {"prediction": " ".join(names), "tags": names, "spans": spans}


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
        #: Row and class of the true positives, predictions and targets.
        items: list[tuple[Integers, ...]] = [(of_unit[right], guess[right]), (of_unit, guess), (of_unit, truth)]
        if self.tags.types:
            true, guessed = self.tags.spans(truth, lengths), self.tags.spans(guess, lengths)
            spans = ([*{*true} & {*guessed}], guessed, true)
            items = [tuple(np.asarray(each, dtype=np.int64).reshape(-1, 4)[:, [0, 3]].T) for each in spans]
        cells = [(rows, block * c + kinds) for block, (rows, kinds) in enumerate(items)]
        cells += [(of_unit[right], np.full(int(right.sum()), 3 * c)), (of_unit, np.full(len(of_unit), 3 * c + 1))]
        rows, columns = (np.concatenate(part) for part in zip(*cells, strict=True))
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, self.width))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Span F1, precision and recall pool the spans of all types; accuracy is the share of correct tags."""
        pooled = self.pooled(sums)
        spans = {f"span_{name}": pooled[name] for name in ("precision", "recall")}
        metrics = pooled | spans | {"span_f1": pooled["micro_f1"], "accuracy": ratio(sums[..., -2], sums[..., -1])}
        return {name: metrics[name] for name in self.names}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        most = np.bincount(_joined(targets), minlength=1).argmax()
        return [np.full(len(target), most, dtype=np.float32) for target in targets]

    def renamed(self, answers: Vectors, labels: Sequence[str]) -> Vectors:
        number = np.asarray([self.labels.index(label) for label in labels], dtype=np.float32)
        return [number[answer.astype(np.int64)] for answer in answers]


def _joined(values: Vectors) -> Integers:
    return np.concatenate([np.zeros(0), *values]).astype(np.int64)


KIND = Kind(
    read=read_tagging,
    io=TaskIO(
        inputs={"words": "texts"},
        columns={"prediction": "text", "spans": "spans"},
        outputs={"tags": "texts", "spans": "spans"},
        parse=parse,
        format=format_tags,
        examples=({"words": ["Marie", "Curie", "went", "to", "Paris"]}, {"words": ["It", "rains"]}),
    ),
    scoring=Tagging,
    pipeline="token-classification",
)
