"""Tagging: one tag per word, in CoNLL, CoNLL-U, parallel files, or tables with a column of words and one of tags."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from components.core.errors import DataError, nearest
from components.data.formats.conll import CONLLU
from components.data.formats.hub import tagging_columns
from components.data.formats.tables import as_text
from components.data.formats.textkey import text_key
from components.data.formats.words import OUTSIDE, TagError, convert, inventory, repaired
from components.data.scoring.spans import read_tags
from components.data.scoring.tagging import Tagging
from components.data.tasks.data import Answer, Examples, Fields
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import Origin, Position, SplitFile, read_records, split_files
from components.data.tasks.reading.splits import Row, Rows, examples_of, train_of, unseen_labels
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
            the sentences of dev or test do not occur in train, or as `examples_of`.
    """
    rows: Rows = {}
    counts: Counter[str] = Counter()
    for file in split_files(source):
        for sentence in _sentences(file, counts):
            _check(sentence)
            origin, words = sentence.origin, tuple(sentence.words)
            if source.document == WHOLE_FILE:
                origin = replace(origin, document=WHOLE_FILE)
            tags = _learned(sentence, source, counts, file.split)
            rows.setdefault(file.split, []).append(Row(words, tags, origin, text_key(" ".join(words))))
    seen = {_kind(tag, source) for row in rows["train"] for tag in row.target} - {None}
    if len(seen) < (2 if source.scheme == "none" else 1):
        raise DataError(
            f"holds {'only one tag' if source.scheme == 'none' else 'no span'}",
            where=train_of(source),
            key=f"data.tasks.{name}.tags",
            do="check {key}",
        )
    kinds = {str(kind) for kind in seen}

    def kinds_in(row: Row) -> list[str]:
        return [str(kind) for tag in row.target if (kind := _kind(tag, source))]

    kinds |= unseen_labels(rows, source, kinds, kinds_in, counts)
    labels = sorted(kinds) if source.scheme == "none" else inventory(kinds, "bio")
    number = {label: index for index, label in enumerate(labels)}
    return examples_of(
        name, source, rows, labels=labels, target=lambda row: [number[tag] for tag in row.target], counts=counts
    )


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
    result = tags.spans(numbers, np.asarray([len(numbers)])) if tags.types else None
    spans = [
        {"start": int(start), "end": int(end), "type": tags.types[kind], "text": " ".join(fields[start:end])}
        for start, end, kind in (zip(result.starts, result.ends, result.types, strict=True) if result else ())
    ]
    names = [labels[number] for number in numbers]
    return {"prediction": " ".join(names), "tags": names, "spans": spans}


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
