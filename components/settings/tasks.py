"""`data.tasks.<name>` of params.yaml: the labelled data of one downstream task.

Which keys a block may hold follows from its kind and from the format of its files: `KINDS` and `FORMATS`.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from components.errors import nearest
from components.settings.section import Fraction, Positive, Section

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "label-first", "parallel", "conll", "conllu", "squad"]
Scheme = Literal["bio", "iob1", "iobes", "none"]
#: A column by its name, or by its number where there is no header; YAML reads numbers as numbers.
Column = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]

TABLES: tuple[Format, ...] = ("csv", "tsv", "jsonl", "json", "parquet")
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Kind:
    """The keys that belong to a kind of task, and the formats that can hold it."""

    keys: tuple[str, ...]
    formats: tuple[Format, ...]


_LINES: tuple[Format, ...] = (*TABLES, "parallel")
KINDS: dict[str, Kind] = {
    "classification": Kind(("text", "label", "outside"), (*_LINES, "label-first")),
    "multilabel": Kind(("text", "label", "labels", "label_separator"), _LINES),
    "pair": Kind(("first", "second", "label"), _LINES),
    "similarity": Kind(("first", "second", "score"), _LINES),
    "tagging": Kind(("words", "tags", "scheme", "learn_as"), (*_LINES, "conll", "conllu")),
    "questions": Kind(("question", "context", "answers", "wrong_spans"), ("squad", "jsonl", "json", "parquet")),
    "choice": Kind(("text", "choices", "label", "answer"), TABLES),
}
_KIND_KEYS = frozenset(key for kind in KINDS.values() for key in kind.keys)

#: Of the keys below, those that a format understands.
_FORMAT_KEYS = frozenset(("header", "delimiter", "quotes", "comments", "encoding", "slice", "id"))
FORMATS: dict[Format, frozenset[str]] = {
    "csv": frozenset(("header", "delimiter", "quotes", "encoding", "slice", "id")),
    "tsv": frozenset(("header", "delimiter", "quotes", "encoding", "slice", "id")),
    "jsonl": frozenset(("encoding", "slice", "id")),
    "json": frozenset(("slice", "id")),
    "parquet": frozenset(("slice", "id")),
    "label-first": frozenset(("encoding",)),
    "parallel": frozenset(("encoding", "slice", "id")),
    "conll": frozenset(("delimiter", "comments", "encoding")),
    "conllu": frozenset(("slice", "id")),
    "squad": frozenset(("slice",)),
}
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
    "": "parallel",
}


class TaskSource(Section):
    """The labelled data of one downstream task: its files in one folder, and what in them is what."""

    path: str
    kind: str = "classification"
    #: `auto`: by the ends of the files' names; a name without one is a folder of parallel files.
    format: Format | Literal["auto"] = "auto"
    #: A file below `path` or several, read one after the other; `FILE#MEMBER` for a member of a json document.
    train: str | list[str] = "train.jsonl"
    dev: str | list[str] | None = "dev.jsonl"
    test: str | list[str] = "test.jsonl"

    # Columns. Of classification, multilabel and choice (what the choices go on from, or answer):
    text: Column = "text"
    #: Of these and of pair; of multilabel a list, or a text with `label_separator` between the labels ...
    label: Column = "label"
    label_separator: Annotated[str, Field(min_length=1)] = ","
    #: ... or a column of 0 and 1 for each label.
    labels: Annotated[list[Column], Field(min_length=2)] | None = None
    #: Of classification: a label that is none, on texts that belong to no class. They are not learned from; in test it
    #: is scored whether the model is less sure of them (`outside_auroc`).
    outside: str | None = None
    # Of pair and similarity:
    first: Column = "first"
    second: Column = "second"
    score: Column = "score"
    # Of tagging; null: the first and the last column of conll, `form` and `upos` of conllu, else `words` and `tags`.
    words: Column | None = None
    tags: Column | None = None
    #: How the files mark spans; none: tags are no spans (parts of speech).
    scheme: Scheme = "bio"
    #: How the model is to mark them.
    learn_as: Literal["bio", "iobes"] = "bio"
    # Of questions; `answers` holds {"text": [...], "answer_start": [...]} or a list as in SQuAD.
    question: Column = "question"
    context: Column = "context"
    answers: Column = "answers"
    #: Answers that do not stand where they are said to: refuse the data, move them to the nearest place in the context
    #: where they stand (and drop those that stand nowhere), or drop the questions.
    wrong_spans: Literal["refuse", "move", "drop"] = "refuse"
    # Of choice: a column for each choice, or one that holds a list.
    choices: Annotated[list[Column], Field(min_length=2)] | Column = "choices"
    #: What `label` says: the right choice's number, its letter (A, B ...), or the choice itself.
    answer: Literal["from_zero", "from_one", "letter", "text"] = "from_zero"

    #: Column whose values are scored apart; of conllu the key of a comment, of squad only `title`.
    slice: Column | None = None
    id: Column | None = None
    header: bool = True
    #: Between columns; null: as the format has it (conll: tabs, or any white space).
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    #: Whether a field in double quotes may hold delimiters; null: in csv, not in tsv.
    quotes: bool | None = None
    #: What comment lines of conll begin with; null: `#`, where a line lacks the tabs of the others.
    comments: Annotated[str, Field(min_length=1)] | None = None
    encoding: str = "utf-8"
    language: str = "en"
    #: Rows in each training set, of each class where there are classes; `all` takes the whole train split. Nested: 20
    #: holds the 5.
    budgets: list[Positive | Literal["all"]] = Field(default=[5, 20], min_length=1)
    #: One run each: the seed draws the rows and whatever is random in learning from them.
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    #: Share of train set apart for dev when `dev` is null.
    dev_share: Fraction = 0.1
    #: At most so many rows of dev are used, the same for all runs; null for all. They are predicted again and again.
    dev_rows: Positive | None = 1000
    #: At most so many rows of test are scored, the same for all runs; null for all.
    test_rows: Positive | None = None
    #: Systems without a language model that are trained beside: those that take a moment, and where the language has no
    #: spaces those that look at characters; or all that there are for the kind.
    baselines: Literal["auto", "all"] = "auto"
    #: Rows of train that stand in dev or test too: refuse the data, drop them from train, or only report them.
    overlap: Literal["refuse", "drop", "report"] = "drop"

    def files(self, split: str) -> list[str]:
        """The names of a split's files as they stand in params.yaml; none where dev is a share of train."""
        named: str | list[str] | None = getattr(self, split)
        return [] if named is None else [named] if isinstance(named, str) else named

    def format_of(self, file: str) -> Format:
        """The format of one of the files.

        Raises:
            ValueError: `auto`, and its name does not say.
        """
        if self.format != "auto":
            return self.format
        name = Path(file.partition("#")[0].lower().removesuffix(".gz").removesuffix(".zst"))
        if name.suffix == ".json":
            return "squad" if self.kind == "questions" else "json"
        if name.suffix not in _SUFFIXES:
            raise ValueError(f"the name {file!r} does not say its format; set format to one of {', '.join(FORMATS)}")
        return _SUFFIXES[name.suffix]

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, encoding: str) -> str:
        try:
            line_break = "\n".encode(encoding)
        except LookupError as error:
            raise ValueError("is no encoding that Python knows; for example utf-8, latin-1, cp874") from error
        if line_break != b"\n":
            raise ValueError("has line breaks of several bytes; convert the files to utf-8")
        return codecs.lookup(encoding).name

    @model_validator(mode="after")
    def _keys_that_fit(self) -> TaskSource:
        """Keys of another kind or another format would be read by nobody."""
        problems: list[str] = []
        formats = dict.fromkeys(self.format_of(file) for split in SPLITS for file in self.files(split))
        # A kind without an entry accepts every key and format; whether it exists is checked by `pipeline.checks`.
        if kind := KINDS.get(self.kind):
            problems += [
                f"key {key} does not fit kind {self.kind}{nearest(key, kind.keys)}"
                for key in sorted(self.model_fields_set & (_KIND_KEYS - set(kind.keys)))
            ]
            problems += [
                f"format {name} cannot hold kind {self.kind}; use {', '.join(kind.formats)}"
                for name in formats
                if name not in kind.formats
            ]
        problems += [
            f"key {key} means nothing in format {name}"
            for key in sorted(self.model_fields_set & _FORMAT_KEYS)
            for name in formats
            if key not in FORMATS[name] and getattr(self, key) != type(self).model_fields[key].default
        ]
        problems += self._columns_that_fit(list(formats))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _columns_that_fit(self, formats: list[Format]) -> list[str]:
        problems: list[str] = []
        if "conll" in formats:
            problems += [
                f"{key} must be the number of a column in format conll, from 0 (-1: the last); found {value!r}"
                for key, value in (("words", self.words), ("tags", self.tags))
                if value is not None and not value.removeprefix("-").isdigit()
            ]
        if "squad" in formats and self.slice not in (None, "title"):
            problems.append(f"slice can only be title in format squad; found {self.slice!r}")
        if "conllu" in formats and self.words not in (None, "form"):
            problems.append(f"words can only be form in format conllu; found {self.words!r}")
        if self.labels is not None and "label" in self.model_fields_set:
            problems.append("name either label, one column, or labels, a column of 0 and 1 each")
        return problems
