"""`data.tasks.<name>`: the labelled data of a task. The keys of a block depend on its kind (`KINDS`) and the format of
its files (`components.settings.formats`)."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from components.core.errors import nearest
from components.settings.detection import detected, files_of_split, holds_tables
from components.settings.formats import FORMAT_KEYS, FORMATS, by_name, suffix_of
from components.settings.section import Positive, Section, Seed

#: Number that represents the budget `all`.
ALL = -1
#: `task`: the texts of the train split, without their labels; `domain`: the documents of `data.domain`; or `both`.
#: Texts of dev and test are left out. Documents are for kinds with one text per row.
TextSource = Literal["task", "domain", "both"]


if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[tuple(FORMATS)]
Scheme = Literal["bio", "iob1", "iobes", "none"]
#: A column by name, or by number in files without a header; YAML parses these as numbers.
Column = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]

#: Values of `document`.
MARKS, EMPTY_LINES, WHOLE_FILE = "marks", "empty_lines", "file"
#: Value of `group` by which the clusters are found.
AUTO = "auto"
SPLITS = ("train", "dev", "test")


#: Kind of task -> its keys.
KINDS: dict[str, tuple[str, ...]] = {
    "classification": ("text", "label", "outside", "no_label"),
    "multilabel": ("text", "label", "labels", "label_separator"),
    "pair": ("first", "second", "label", "no_label"),
    "similarity": ("first", "second", "score", "no_label"),
    "regression": ("text", "score", "no_label"),
    "tagging": ("words", "tags", "scheme", "document"),
    "questions": ("question", "context", "answers", "wrong_spans"),
    "choice": ("text", "choices", "label", "answer"),
}


def has(kind: str, key: str) -> bool:
    """Whether a kind of task has a key, which says what its rows hold."""
    return key in KINDS.get(kind, ())


#: Kinds of task whose rows are one text, as documents are.
OF_ONE_TEXT = frozenset(kind for kind in KINDS if has(kind, "text") and not has(kind, "choices"))
#: Kinds whose rows have labels that a person gives.
LABELLED = tuple(kind for kind in KINDS if has(kind, "label") and not has(kind, "choices"))
_KIND_KEYS = frozenset(key for keys in KINDS.values() for key in keys)
#: Kind of task -> the keys of the others.
MISFITS = {kind: _KIND_KEYS.difference(keys) for kind, keys in KINDS.items()}
#: What is learned in the kinds: that of another kind stands for that of this one, whatever its spelling.
_LEARNED = {"label", "labels", "score", "tags", "answers"}


def named_files(files: str | list[str] | None) -> list[str]:
    """The files of a split."""
    return files if isinstance(files, list) else [] if files is None else [files]


Words = Annotated[str, Field(pattern=r"\S")]


class TaskSource(Section):
    """The labelled data of one downstream task: its files in one folder, their format and columns."""

    #: Folder of the files.
    path: str
    #: Kind of task.
    kind: str = "classification"
    #: `auto`: by the suffix of the file, and where several formats share it by the content; a name without suffix is a
    #: split of a Hugging Face data set, or a folder of parallel files.
    format: Format | Literal["auto"] = "auto"
    #: One or more files below `path`, concatenated; `FILE#MEMBER` for a member of a JSON document, a folder or a
    #: pattern (`train_*.txt`) for parallel files. `dev: null`: no dev, or with `selection: dev` a tenth of train.
    #: `test: null`: a share of train (`test_share`).
    train: str | list[str] = "train.jsonl"
    dev: str | list[str] | None = "dev.jsonl"
    test: str | list[str] | None = "test.jsonl"

    #: Column of the text: classification, multilabel, regression, and choice (prompt or question).
    text: Column = "text"
    #: Column of the label: classification, multilabel, pair, and choice (see `answer`). In multilabel a list, or a text
    #: with `label_separator`.
    label: Column = "label"
    #: Separator of labels in one text.
    label_separator: Annotated[str, Field(min_length=1)] = ","
    #: Multilabel: columns of 0 and 1, one per label, instead of `label`.
    labels: Annotated[list[Column], Field(min_length=2)] | None = None
    #: Classification: label of texts that belong to no class. They are not used for training; on test `outside_auroc`
    #: measures whether the model is less confident on them.
    outside: str | None = None
    #: Column of the first text: pair and similarity.
    first: Column = "first"
    #: Column of the second text: pair and similarity.
    second: Column = "second"
    #: Column of the number: similarity and regression.
    score: Column = "score"
    #: Column of the words: tagging. Null: the first column of conll, `form` of conllu, `tokens` of data sets, `text` of
    #: annotation tools (it is split into words), else `words`.
    words: Column | None = None
    #: Column of the tags: tagging. Null: the last column of conll, `upos` of conllu, the only control of an annotation
    #: tool, a column of class labels of data sets, else `tags`.
    tags: Column | None = None
    #: Where documents begin, whose sentences are in one split and in one fold: a column whose values are documents, in
    #: conllu the key of a comment; `marks`: -DOCSTART- in conll, `# newdoc` in conllu; `empty_lines`: two or more in
    #: conll; `file`: a file is one document. null: sentences are independent.
    document: Column | None = None
    #: Tagging scheme of the files; `none`: tags mark no spans (parts of speech).
    scheme: Scheme = "bio"
    #: Column of the question: questions.
    question: Column = "question"
    #: Column of the context: questions.
    context: Column = "context"
    #: Column of the answers: questions. {"text": [...], "answer_start": [...]}, or a list of objects as in SQuAD.
    answers: Column = "answers"
    #: Answers that are not at their given offset in the context: refuse the data if more than 5% of the questions have
    #: some, and move fewer; move them to the nearest occurrence, dropping answers without one; or drop the questions.
    wrong_spans: Literal["refuse", "move", "drop"] = "refuse"
    #: Choice: one column per choice, or one column that holds a list.
    choices: Annotated[list[Column], Field(min_length=2)] | Column = "choices"
    #: Choice: what `label` holds: the number of the correct choice, its letter (A, B ...), or its text.
    answer: Literal["from_zero", "from_one", "letter", "text"] = "from_zero"

    #: Column whose values are slices of test with metrics of their own; in conllu the key of a comment, in squad only
    #: `title`.
    slice: Column | None = None
    #: Column whose values are clusters (service, customer, author): rows of one cluster are not independent. They stay
    #: in one split and one fold, and the promotion rule estimates variances between clusters. `auto`: the column
    #: `group` if the rows have one, otherwise the column `slice` if test has at least five values of it (in folds only
    #: if none of them is in train), otherwise no clusters. null: rows are independent, but for copies and documents.
    group: Column | None = AUTO
    #: Column of the row's id; in conllu the key of a comment. Null: file and line.
    id: Column | None = None
    #: Whether csv and tsv have a header line; null: if the first row is unlike the rows below it.
    header: bool | None = None
    #: Separator of columns; null: in csv and tsv guessed, in conll tabs, or any white space.
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    #: Whether double quotes enclose fields; null: guessed, as other quotes and escapes are.
    quotes: bool | None = None
    #: Encoding of the files; null: UTF-8 if they are, else the most probable one.
    encoding: str | None = None
    #: Classification and multilabel: label -> its meaning in a few words, for `finetune.<name>.label_names`, or several
    #: texts (terms, a definition, a template), whose vectors are averaged. The text of a label that is not listed is
    #: the label, with spaces for underscores and hyphens and before capital letters.
    label_texts: dict[str, Annotated[list[Words], Field(min_length=1)]] = {}
    #: Language code of the rows that are learned; selects baselines for languages without spaces.
    language: str = "en"
    #: Transfer between languages: column of each row's language (in conllu the key of a comment), or test files of
    #: further languages (language -> one or more files). Each language of test is scored as a slice.
    languages: Column | dict[str, str | list[str]] | None = None
    #: With a column of languages: those whose rows are learned; rows of train and dev in others are left out. Empty:
    #: `language`.
    train_languages: list[str] = []
    #: Label budgets: training rows, per class in classification and pair; `all` is the whole train split. Larger
    #: budgets contain the smaller ones.
    budgets: list[Positive | Literal["all"]] = Field(default=[5, 20], min_length=1)
    #: Where hyper-parameters, epochs and systems are chosen. `budget`: by cross-validation within the rows of each
    #: label budget, so that a budget counts every label that is used (Perez et al. 2021, "True few-shot learning").
    #: `dev`: on the dev split, whose labels are spent in addition.
    selection: Literal["budget", "dev"] = "budget"
    #: Folds of the cross-validation; fewer if the smallest class has fewer units: rows, or groups and copies, which are
    #: in one fold.
    folds: Annotated[int, Field(ge=2)] = 5
    #: Seeds of the runs: of the sampled rows and of training.
    seeds: list[Seed] = Field(default=[0, 1, 2], min_length=1)
    #: Share of train that becomes test if `test` is null, by a hash of the group, document or text: a row stays where
    #: it is when others are added. Of a label all of whose rows would be in test, all stay in train.
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    #: Maximum number of dev rows, the same for all runs; null: all. Dev is predicted at every evaluation.
    dev_rows: Positive | None = 1000
    #: Maximum number of test rows, the same for all runs; null: all.
    test_rows: Positive | None = None
    #: Baselines without a language model. `auto`: the fast ones, and character models for languages without spaces;
    #: `all`: all of the kind.
    baselines: Literal["auto", "all"] = "auto"
    #: Rows of train and dev that are also in a later split: refuse the data, drop them, or only report them.
    overlap: Literal["refuse", "drop", "report"] = "drop"

    #: Rows without text: refuse the data, or drop them; `checks.empty_rows` limits how many. Not in conll and squad.
    empty: Literal["refuse", "drop"] = "refuse"
    #: Rows without a label: refuse the data, or leave them out; `headstart suggest` offers those of train. Of kinds
    #: with one label or number.
    no_label: Literal["refuse", "drop"] = "refuse"

    def files(self, split: str) -> list[str]:
        """Names of a split's files as in params.yaml, the files of further languages last; empty if dev is a share of
        train."""
        further = self.languages.values() if isinstance(self.languages, dict) and split == "test" else ()
        return [name for files in (getattr(self, split), *further) for name in named_files(files)]

    @property
    def several(self) -> bool:
        """Whether a row has any number of labels."""
        return has(self.kind, "labels")

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the text, or of the two texts, of a row with labels."""
        return (self.first, self.second) if has(self.kind, "second") else (self.text,)

    @property
    def slice_column(self) -> str | None:
        """The column of the slices: `slice`, or a column of languages."""
        return self.languages if isinstance(self.languages, str) else self.slice

    @property
    def learned_languages(self) -> list[str]:
        """The languages of train and dev; empty unless languages are compared."""
        return [] if self.languages is None else self.train_languages or [self.language]

    def learns(self, split: str, language: str | None) -> bool:
        """Whether a row of a split is used, by the value of its column of languages."""
        return split == "test" or not isinstance(self.languages, str) or language in self.learned_languages

    def language_of(self, path: str) -> str | None:
        """The language of a test file, by its path as in the positions of rows; None if files have no language."""
        if not isinstance(self.languages, dict):
            return None
        of_file = {
            f"{located}{'#' * bool(member)}{member}": language
            for language, files in self.languages.items()
            for name, _, member in (file.partition("#") for file in named_files(files))
            for located in self.located(name)
        }
        return of_file.get(path, self.language)

    def format_of(self, file: str) -> Format:
        """The format of a file as in params.yaml.

        Raises:
            ValueError: the format is `auto`, and the suffix is unknown.
        """
        return self.format_at(Path(self.path) / file.partition("#")[0])

    def format_at(self, path: Path) -> Format:
        """The format of a file or folder; of one that does not exist yet, by its suffix.

        Raises:
            ValueError: the format is `auto`, and the suffix is unknown.
        """
        if self.format != "auto":
            return self.format
        if collected := detected(path, kind=self.kind):
            return collected
        form = by_name(path.name) if suffix_of(path.name) else "parallel"
        if not form:
            raise ValueError(f"the suffix of {path.name!r} is unknown; set format to one of {', '.join(FORMATS)}")
        return "squad" if form == "json" and self.kind == "questions" else form

    def located(self, file: str) -> list[Path]:
        """The files that an entry of a split names: one, or the files of a split of a Hugging Face data set."""
        name = file.partition("#")[0]
        path = Path(self.path) / name
        if self.format not in ("auto", "datasets") or path.is_file() or (path.is_dir() and not holds_tables(path)):
            return [path]
        return files_of_split(Path(self.path), name) or [path]

    @field_validator("label_texts", mode="before")
    @classmethod
    def _lists_of_labels(cls, texts: Any) -> Any:
        """YAML reads the key of `{0: negative}` as a number; one text is a list of one."""
        if not isinstance(texts, dict):
            return texts
        return {
            str(label) if type(label) is int else label: [text] if isinstance(text, str) else text
            for label, text in texts.items()
        }

    @field_validator("encoding")
    @classmethod
    def _encoding_of_python(cls, encoding: str | None) -> str | None:
        try:
            # A codec of bytes, such as hex, encodes no text.
            "a".encode(encoding or "utf-8")
            return None if encoding is None else codecs.lookup(encoding).name
        except (LookupError, UnicodeError) as error:
            raise ValueError("is not an encoding of Python; use for example utf-8, latin-1, cp874") from error

    @model_validator(mode="after")
    def _keys_that_fit(self) -> TaskSource:
        """Refuse keys of another kind or format, which would have no effect."""
        problems: list[str] = []
        formats = dict.fromkeys(self.format_of(file) for split in SPLITS for file in self.files(split))
        # A kind without an entry accepts every key and format; whether it exists is checked by `pipeline.checks`.
        if keys := KINDS.get(self.kind):
            problems += [
                f"key {key} does not fit kind {self.kind}"
                + nearest(next((other for other in keys if {key, other} <= _LEARNED), ""), keys)
                for key in sorted(self.model_fields_set & MISFITS[self.kind])
            ]
            problems += [
                f"format {name} cannot hold kind {self.kind}; use "
                f"{', '.join(other for other, format in FORMATS.items() if self.kind in format.kinds)}"
                for name in formats
                if self.kind not in FORMATS[name].kinds
            ]
        problems += [
            f"key {key} has no effect in format {name}"
            for key in sorted(self.model_fields_set & FORMAT_KEYS)
            for name in formats
            if key not in FORMATS[name].keys and getattr(self, key) != type(self).model_fields[key].default
        ]
        problems += self._columns_that_fit(formats)
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _columns_that_fit(self, formats: Collection[Format]) -> Iterator[str]:
        if "conll" in formats:
            yield from [
                f"{key} must be the number of a column in format conll, from 0 (-1: the last); found {value!r}"
                for key, value in (("words", self.words), ("tags", self.tags))
                if value is not None and not value.removeprefix("-").isdigit()
            ]
        if self.languages is not None and self.slice is not None:
            yield "set either slice or languages, which are slices, too"
        if isinstance(self.languages, str):
            yield from [
                f"format {name} has no column of languages; name test files by language instead"
                for name in formats
                if name == "squad" or "slice" not in FORMATS[name].keys
            ]
        elif self.train_languages:
            yield "key train_languages has no effect without a column of languages"
        if isinstance(self.languages, dict) and self.language in self.languages:
            yield f"languages: {self.language!r} is the language of test already; set language to another"
        yield from [
            f"document must name a column in format {name}, or be {WHOLE_FILE}; found {self.document!r}"
            for name in formats
            if name != "conll" and self.document in (EMPTY_LINES, *([] if name == "conllu" else [MARKS]))
        ]
        yield from [
            f"{key} can only be {' or '.join(filter(None, allowed))} in format {name}; found {value!r}"
            for name in formats
            for key, allowed in FORMATS[name].only.items()
            if (value := getattr(self, key)) not in allowed
        ]
        tools = [name for name in formats if FORMATS[name].tool]
        if tools and self.scheme != "bio":
            yield f"scheme has no effect in format {tools[0]}, whose spans are characters; remove it"
        if self.labels is not None and "label" in self.model_fields_set:
            yield "set either label (one column) or labels (one column of 0 and 1 each)"


def budget_name(budget: int) -> str:
    """A budget as in params.yaml."""
    return "all" if budget == ALL else str(budget)
