"""What a table is: the kind of its task and its columns, guessed from the rows; the only place that guesses."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import contains
from typing import Any, Final

import numpy as np

from components.core.errors import DataError
from components.data.columns import NUMBERS, Column, Columns, holds_tags, is_no_text, listed, number_in, text_in
from components.data.formats.delimited import GROUPS, LABELS, LABELS_TOO, TEXTS
from components.data.formats.words import scheme_of
from components.data.sampling import Rows
from components.data.tasks.reading.records import are_thousands, flag_of, is_blank, is_no_number, label_text, labels_in
from components.settings.tasks import KINDS, has

#: Names of the columns of two texts.
PAIRS: Final = (
    *(("sentence1", "sentence2"), ("sentence_a", "sentence_b"), ("premise", "hypothesis"), ("text1", "text2")),
    *(("question1", "question2"), ("first", "second"), ("#1 string", "#2 string"), ("text_a", "text_b")),
)
WORDS: Final = ("words", "tokens")
TAGS: Final = ("tags", "ner_tags", "pos_tags", "labels")
#: Names of labels, the surest first.
_ALL_LABELS: Final = (*LABELS, *LABELS_TOO)
#: Words in the names of columns that are taken for the label only if no other column has few values.
_NO_LABELS: Final = GROUPS | {
    *("lang", "language", "locale", "split", "fold", "sex", "gender", "age", "country", "region", "city", "date"),
    *("day", "month", "year", "hour", "source", "channel", "platform", "annotator", "worker", "name"),
}
#: Words in the names of columns of choices, one each, and names of the answer and of the prompt.
_CHOICES: Final = frozenset(("choice", "option", "opt", "op", "answer", "ans", "ending", "alternative", "candidate"))
_RIGHT: Final = ("label", "answer", "correct", "gold", "key", "target", "answer_index", "correct_answer", "cop")
_PROMPTS: Final = ("question", "prompt", "text", "premise", "context", "ctx")
#: Split -> words in the names of its files, and values of a column that names the split of each row.
SPLITS: Final = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "trial", "development"),
    "test": ("test", "testing", "eval"),
}
_SPLITS: Final = {"unsup", "", *chain(*SPLITS.values())}
#: A group column has at least this many values, and each on average at least this many rows.
_GROUPS, _ROWS_EACH = 5, 2
#: Rows, and characters of each, by which it is judged how well texts tell labels; and the number of features.
_TOLD_ROWS, _TOLD_CHARACTERS, _FEATURES = 1_000, 300, 1 << 13


@dataclass(frozen=True)
class Understanding:
    """What a table is.

    Attributes:
        keys: of `data.tasks.<name>`: the kind, the columns, the separator of labels and the scheme of tags.
        reasons: how the columns were taken, and what else they may be, in words.
        group: the column of the group, and why; None: rows are independent.
        others: further columns that may be labels.
    """

    keys: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    group: tuple[str, str] | None = None
    others: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Of the task."""
        return str(self.keys["kind"])

    def targets(self, table: Rows) -> list[Any]:
        """The value of the labels of each row; None: it has none. Of several labels, an empty text is none of them, and
        of labels that have a column each no row lacks them."""
        target = next((self.keys[key] for key in ("label", "score", "tags") if key in self.keys), None)
        if target is None:
            return [""] * len(next(iter(table.columns.values())))
        values = table.columns.get(target, [None])
        if "labels" in KINDS[self.kind]:
            return values
        measured = "score" in self.keys
        return [None if is_blank(value) or (measured and is_no_number(value)) else value for value in values]


def understand(
    table: Rows, *, text: Sequence[str] = (), label: str | None = None, kind: str | None = None
) -> Understanding:
    """The kind of a table's task and its columns.

    Args:
        text: column of the text, or both columns of a pair of texts; empty: guessed.
        label: column of the label; None: guessed.

    Raises:
        DataError: there is no such column, or nothing looks like a text or a label.
    """
    columns = Columns(table)
    keys = _keys(table, columns, text, label, kind or table.kind)
    used = {*chain(*([value] if isinstance(value, str) else value for value in keys.values()))}
    others, labelled = columns.without(used), {"label", "score"} & keys.keys()
    texts = [each.name for each in others if not (labelled and 0 < each.few <= NUMBERS) and each.holds_sentences]
    labels = [each.name for each in others if labelled and each.few and each.name not in texts]
    reasons = _in_words(columns, keys, texts, labels)
    if "label" in keys and (lists := columns.lists_in_words()):
        reasons.append(lists)
    return Understanding(keys, reasons, _group_of(others), labels)


def text_columns(table: Rows, *, like: Sequence[str] = ()) -> list[str]:
    """The column of the text, or the two of a pair, in a table without labels: those of the labelled texts, `like`, if
    it has them.

    Raises:
        DataError: no column holds text.
    """
    return [*like] if like and {*like} <= table.columns.keys() else _texts(Columns(table), None)


def _keys(table: Rows, columns: Columns, text: Sequence[str], label: str | None, kind: str | None) -> dict[str, Any]:
    if table.format in ("conll", "conllu"):
        return {"kind": "tagging", "scheme": scheme_of(_tags(columns["tags"]))}
    if table.format == "squad" or (table.format and has(table.kind or "", "words")):
        return {"kind": table.kind}
    lowered = columns.lowered

    def may_hold(key: str) -> bool:
        return kind is None or has(kind, key)

    for name in [*text, *([label] if label else [])]:
        if name not in columns:
            raise DataError(f"no column {name!r}; the columns are {listed(columns)}")
    if may_hold("answers") and (questions := _questions_of(columns, given=bool(text or label))):
        return questions
    named = [*(columns[name] for name in text[:1]), *columns.called(WORDS)]
    words = next((column.name for column in named if column.all_are(list)), None)
    if words is not None and may_hold("tags"):
        tags = label or next((column.name for column in columns.called(TAGS) if column.name != words), None)
        if tags is not None:
            return _tagged(words, columns[tags])
    if kind is not None and may_hold("tags"):
        return _tagging(columns, text, label)
    if may_hold("choices") and (chosen := _choice_of(columns, next(iter(text), None), label)) is not None:
        return chosen
    if may_hold("choices") and (kind is not None or "choices" in lowered):
        raise DataError("a choice needs columns of the prompt, the choices and the answer (docs/tasks.md); rename them")
    by_name = _label_by_name(columns)
    texts = list(text) or _texts(columns, label or by_name)
    if kind is not None and len(texts) != 1 + ("second" in KINDS[kind]):
        raise DataError(
            f"a task of kind {kind} has {1 + ('second' in KINDS[kind])} column(s) of text, found {listed(texts)}",
            key="text",
            do="name them with {key}",
        )
    keys: dict[str, Any] = {"first": texts[0], "second": texts[1]} if len(texts) > 1 else {"text": texts[0]}
    single = label is None and len(texts) == 1 and (kind is None or "labels" in KINDS[kind])
    if single and (flags := _flags_of(columns.without(texts))):
        return {"kind": "multilabel"} | keys | {"labels": flags}
    filled = [each for each in _filled(columns.without(text)) if each.name not in texts]
    label = label or _label_of(filled, [columns[name] for name in texts]) or by_name
    if label is None:
        lists = columns.lists_in_words()
        raise DataError(
            f"no column looks like a label (columns: {columns.in_words()})",
            key="label",
            do="name it with {key}" + (f"; {lists}" if lists else ""),
        )
    if label in texts:
        raise DataError(f"{label!r} is the column of the label", key="text", do="name that of the text with {key}")
    guessed, separator = _kind_of(columns[label], two=len(texts) > 1)
    if kind is None and has(guessed, "tags"):
        return _tagging(columns, texts, label)
    kind, separator = kind or guessed, separator if kind is None or "label_separator" in KINDS[kind] else None
    keys = {"kind": kind} | keys | {"score" if "score" in KINDS[kind] else "label": label}
    return keys | ({"label_separator": separator} if separator not in (None, ",") else {})


def _questions_of(columns: Columns, *, given: bool) -> dict[str, Any] | None:
    """Keys of questions about contexts; `given`: whether columns of another task are named."""
    asked, lowered = columns.called(("question", "context", "answers", "answer"))[:3], columns.lowered
    if len(asked) < 3 or not {"question", "context"} <= lowered.keys():
        return None
    _, contexts, answers = asked
    # A column `answer` has spans of the contexts; otherwise it is a label, such as yes and no.
    if "answers" not in lowered and (
        given
        or columns.called(("label", "score"))
        or 2 * len(answers.different) < len(answers.strings)
        or not all(map(contains, contexts.cells, answers.cells))
    ):
        return None
    names = [column.name for column in asked]
    return {"kind": "questions"} | dict(zip(("question", "context", "answers"), names, strict=True))


def _kind_of(column: Column, *, two: bool) -> tuple[str, str | None]:
    """The kind of task with one text a row, or `two`, by its labels, and the separator of several labels in one text.

    Raises:
        DataError: the values are lists of tags that a table has as text.
    """
    values = column.values
    if not two and holds_tags(values):
        return "tagging", None
    written = [labels_in(value) for value in values if isinstance(value, str)]
    if written and all(written) and holds_tags([str(tag) for tags in written for tag in tags or ()]):
        raise DataError(
            f"column {column.name!r} has lists of tags as text ({values[0]!r:.60}); save the table as parquet or "
            "jsonl, with lists of words and of tags"
        )
    if two:
        return "similarity" if column.is_measured else "pair", None
    lists = [labels for value in values if (labels := labels_in(value)) is not None]
    separator = None if lists else column.separator
    if separator is not None or any(len(labels) != 1 for labels in lists):
        return "multilabel", separator
    return "regression" if column.is_measured else "classification", None


def _filled(columns: Sequence[Column]) -> list[Column]:
    """The columns with a value in at least half of the rows, and, if none of these has a label's name, the column
    `label` or `labels`, which often few rows fill in. All columns if there are none."""
    full = [column for column in columns if len(column.given) >= len(column.values) / 2]
    called = () if any(column.name.casefold() in LABELS for column in full) else ("label", "labels")
    named = [each for each in columns if each.name.casefold() in called and len(set(map(str, each.given))) > 1]
    return [column for column in columns if column in full or column in named] or [*columns]


def _label_by_name(columns: Columns) -> str | None:
    """A column that is called a label, or that has few values and a label's name among the words of its name; it is no
    text, however long its values are."""
    filled = _filled([*columns.values()])
    named = [column for column in columns.called(LABELS) if column in filled]
    named += [column for column in filled if column.few and column.words & {*LABELS}]
    return named[0].name if named else None


def _group_of(columns: Iterable[Column]) -> tuple[str, str] | None:
    """The column of the group, and why, in words: named like a group, with many values and several rows for each; of
    several the one with the fewest values, whose groups are the largest, but those called `id` alone come last. A
    position, which counts up and begins again in each group, is none."""
    candidates = []
    for column in columns:
        given, values = column.given, len(column.different)
        if not GROUPS & column.words or any(isinstance(value, list | dict) for value in given) or _is_position(given):
            continue
        if values >= _GROUPS and len(given) >= max(_ROWS_EACH * values, len(column.values) / 2):
            candidates.append((not GROUPS & column.words - {"id"}, values, len(given) / values, column.name))
    if not candidates:
        return None
    _, values, each, name = min(candidates)
    return name, (
        f"column {name!r} is the group: {values:,} values, {each:.1f} rows each, which are not independent; the rows "
        "of a group stay in one split and one fold"
    )


def _is_position(values: Sequence[Any]) -> bool:
    """Whether values count up, by the same step nearly each time, and begin again."""
    numbers = [number_in(value) for value in values]
    steps = [after - before for before, after in pairwise(numbers) if before is not None and after is not None]
    rises = Counter(step for step in steps if step > 0)
    if len(steps) < len(values) - 1 or not rises or steps.count(0) > len(steps) / 10:
        return False
    return max(rises.values()) > 0.8 * rises.total() and len(rises) < len(set(numbers))


def _in_words(columns: Columns, keys: Mapping[str, Any], texts: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The columns that are used, alternatives to them, and labels that become one class, in words."""
    used = [f"{keys[role]!r} is the {role}" for role in ("text", "first", "second", "label", "score") if role in keys]
    if "labels" in keys:
        used.append(f"{', '.join(map(repr, keys['labels']))} are columns of labels")
        flags = zip(*(columns[name].values for name in keys["labels"]), strict=True)
        if all(sum(map(bool, map(flag_of, row))) == 1 for row in flags):
            used[-1] += ", one in each row; a single column with its name makes it a classification"
    if "scheme" in keys:
        spans = "mark no spans" if keys["scheme"] == "none" else f"mark spans in scheme {keys['scheme']}"
        return [f"the tags {spans} (--scheme)"]
    if not used:
        return []
    both = ",".join([keys.get("text", ""), *texts[:1]])
    single = "text" in keys and "labels" not in keys and not has(keys["kind"], "labels")
    pair = f"; --text {shlex.quote(both)} reads both" if single and both.count(",") == 1 else ""
    said = (
        f"; {', '.join(map(repr, names[:5]))} may also be {what}"
        for names, what in ((texts, f"the text (--text{pair})"), (labels, "the label (--label)"))
        if names
    )
    lines = [f"column {', '.join(used)}{''.join(said)}"]
    for name, column in columns.items():
        splits = {str(value).strip().casefold() for value in column.values}
        if len(splits) > 1 and splits.intersection(SPLITS["train"]) and splits <= _SPLITS and name not in keys.values():
            lines.append(
                f"warning: column {name!r} names the split of each row ({', '.join(sorted(splits))}), and is not used; "
                "write a file for each split, such as train.csv and test.csv in one folder"
            )
    if "score" in keys and any("," in value for value in columns[keys["score"]].strings):
        what = "separates thousands" if are_thousands(columns[keys["score"]].values) else "is the decimal comma"
        lines.append(f"the comma in {keys['score']!r} {what}; --kind multilabel reads several labels instead")
    written: dict[str, set[str]] = {}
    for value in columns[keys["label"]].strings if "label" in keys and "label_separator" not in keys else ():
        if labels_in(value) is None:
            written.setdefault(label_text(value), set()).add(value)
    if several := [name for name, ways in written.items() if len(ways) > 1]:
        lines.append(f"labels that differ in spaces or Unicode form only are one class: {', '.join(several[:5])}")
    return lines


def _tagged(words: str, tags: Column) -> dict[str, Any]:
    return {"kind": "tagging", "words": words, "tags": tags.name, "scheme": scheme_of(_tags(tags))}


def _tagging(columns: Columns, text: Sequence[str], label: str | None) -> dict[str, Any]:
    """Words and tags in texts, separated by spaces."""
    tags = label or next((name for name, column in columns.items() if holds_tags(column.values)), None)
    if tags is None:
        raise DataError(f"no column holds tags (columns: {columns.in_words()})", key="label", do="name them with {key}")
    if not any(" " in value.strip() for value in columns[tags].strings):
        raise DataError(
            f"column {tags!r} has the tag of one word a row; write one sentence a row, or CoNLL: a word and its tag a "
            "line, and an empty line after each sentence"
        )
    return _tagged(next(iter(text), "") or _texts(columns, tags)[0], columns[tags])


def _choice_of(columns: Columns, text: str | None, label: str | None) -> dict[str, Any] | None:
    """Keys of a multiple choice: a prompt, choices in one column of lists or in columns that are numbered or lettered
    (`choice0`, `optionB`), and the answer: its number, its letter or its text; None if the columns are none."""
    named = columns.lowered.get("choices")
    choices = [named] if named else _numbered(columns)
    if not choices:
        return None
    rows: Iterable[Sequence[Any]] = zip(*(columns[name].values for name in choices), strict=True)
    rows = [row[0] or () if named and isinstance(row[0], list) else row for row in rows]
    others = columns.without([*choices, text])
    rights = [columns[label]] if label else [column for column in columns.called(_RIGHT) if column in others]
    few = [column for column in others if not label and column not in rights and column.few]
    for right in [*rights, *few]:
        answer = _answer_in([str("" if value is None else value).strip() for value in right.values], rows)
        rest = [column for column in others if column is not right]
        prompts = [text] if text else [column.name for column in columns.called(_PROMPTS) if column in rest]
        if answer is not None and (prompts := prompts or _texts_of(rest)):
            keys = {"kind": "choice", "text": prompts[0], "choices": named or choices, "label": right.name}
            return keys | ({} if answer == "from_zero" else {"answer": answer})
    return None


def _numbered(columns: Columns) -> list[str]:
    """Columns of texts whose names are a word of choices and consecutive numbers or letters, at least two; or only
    letters, at least three."""
    series: dict[str, dict[str, str]] = {}
    for name, column in columns.items():
        ends = re.fullmatch(r"(.*?)[ _.-]?(\d|[A-Za-z])", name)
        if ends is not None and all(isinstance(value, str | int | float) for value in column.given):
            series.setdefault(ends[1], {})[ends[2].lower()] = name
    for stem, names in series.items():
        for begin in ("0", "1", "a"):
            run = [chr(ord(begin) + step) for step in range(len(names))]
            least = 2 if Column(stem, ()).words & _CHOICES else 3 if not stem and begin == "a" else math.inf
            if set(run) == names.keys() and len(run) >= least:
                return [names[each] for each in run]
    return []


def _answer_in(values: Sequence[str], rows: Sequence[Sequence[Any]]) -> str | None:
    """How values name one of the choices of their row, as `data.tasks.<name>.answer`; None if they do not."""
    given = [(value.removesuffix(".0"), row) for value, row in zip(values, rows, strict=True) if value]
    if given and all(value in map(text_in, row) for value, row in given):
        return "text"
    if given and all(re.fullmatch(r"[A-Za-z]", value) and ord(value.upper()) - 65 < len(row) for value, row in given):
        return "letter"
    if given and all(value.isdecimal() and int(value) <= len(row) for value, row in given):
        if any(value == "0" for value, _ in given):
            return "from_zero" if all(int(value) < len(row) for value, row in given) else None
        return "from_one"
    return None


def _texts_of(columns: Iterable[Column]) -> list[str]:
    """The column of the text, or the two of a pair: by name, then the one with the longest texts; empty if there is
    none. Links, paths, dates, e-mail addresses and identifiers are no texts."""
    names = {column.name.casefold(): column for column in columns}
    texts = [column for column in names.values() if column.holds_text]
    for pair in PAIRS:
        if all(name in names and (names[name] in texts or not texts) for name in pair):
            return [names[name].name for name in pair]
    called = [names[name] for name in TEXTS if name in names]
    named = [column for column in called if column in texts]
    if first := next((column for column in named if not column.holds_words), None):
        return [first.name]

    # A word of the name counts as much as texts that are twice as long.
    def length(column: Column) -> float:
        return sum(map(len, column.strings)) / len(column.strings) * (2 if column.words & {*TEXTS} else 1)

    best = max([column for column in texts if not column.holds_words] or texts, key=length, default=None)
    if best is None or best in named:
        best = next(iter([*named, *(column for column in called if column.strings)]), None)
    return [] if best is None else [best.name]


def _texts(columns: Columns, label: str | None) -> list[str]:
    """One text column, or two of a pair; `label`: the column of the label, which is no text."""
    if texts := _texts_of(columns.without([label])):
        return texts
    raise DataError(f"no column holds text (columns: {columns.in_words()})", key="text", do="name it with {key}")


def _label_of(filled: Sequence[Column], texts: Sequence[Column]) -> str | None:
    """The column of the label, one of the `filled` ones: by name, by a word of the name, then the one with the fewest
    values, of equal ones the last, because labels usually follow the text; None if there is none. Of a column of
    numbers and one that names each of them, it is the names."""
    names = {column.name.casefold(): column for column in filled}
    named = [names[name] for name in _ALL_LABELS if name in names]
    label = next((column for column in named if not column.tells_nothing()), None)
    if label is None:
        suited = [column for column in names.values() if column not in named and column.few] or named
        suited = [column for column in suited if not column.words & _NO_LABELS] or suited
        by_word = [column for column in suited if column.words & {*_ALL_LABELS}]
        if not suited:
            return None
        label = (
            min(by_word, key=lambda column: min(map(_ALL_LABELS.index, column.words & {*_ALL_LABELS})))
            if by_word
            else _told(texts, suited)
        )
    if any(number_in(value) is None for value in label.given):
        return label.name
    for column in (column for column in filled if column.few and column is not label):
        pairs = {*zip(label.cells, column.cells, strict=True)}
        sizes = {len(pairs), *(len({pair[side] for pair in pairs}) for side in (0, 1))}
        if len(sizes) == 1 and not any(number_in(word) is not None for _, word in pairs):
            return column.name
    return label.name


def _told(texts: Sequence[Column], suited: Sequence[Column]) -> Column:
    """Of columns with few values the one with the fewest, of equal ones the last; or one that the texts tell better:
    whose agreement with a prediction by naive Bayes on five bytes, from the other half of the rows, is higher by two
    standard errors of agreement by chance."""
    fewest = min(reversed(suited), key=lambda column: column.few)
    rows = range(0, len(fewest.values), max(1, len(fewest.values) // _TOLD_ROWS))
    if len(suited) < 2 or len(rows) < 2 * NUMBERS or not texts:
        return fewest
    # Seldom needed, and slow to import.
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.metrics import cohen_kappa_score
    from sklearn.model_selection import cross_val_predict
    from sklearn.naive_bayes import MultinomialNB

    joined = [" ".join(str(each.values[row] or "") for each in texts)[:_TOLD_CHARACTERS].casefold() for row in rows]
    counts = HashingVectorizer(
        analyzer="char",
        lowercase=False,
        ngram_range=(5, 5),
        n_features=_FEATURES,
        binary=True,
        norm=None,
        alternate_sign=False,
    ).transform(f" {text} ".encode().decode("latin-1") for text in joined)
    even = np.arange(len(rows)) % 2 == 0
    halves = [(np.flatnonzero(half), np.flatnonzero(~half)) for half in (even, ~even)]

    def agreement(column: Column) -> float:
        values = [column.cells[row] for row in rows]
        score = cohen_kappa_score(values, cross_val_predict(MultinomialNB(), counts, values, cv=halves))
        return float(np.nan_to_num(score))

    agreements = [agreement(column) for column in suited]
    most = max(agreements)
    is_better = most - agreements[suited.index(fewest)] > 2 / math.sqrt(len(rows))
    return suited[agreements.index(most)] if is_better else fewest


def _flags_of(others: Sequence[Column]) -> list[str]:
    """Columns of 0 and 1, of yes and no, or of crosses besides the texts, if there are several and nothing else looks
    like a label. Empty cells say nothing."""
    flags = [each for each in others if each.given and all(flag_of(value) is not None for value in each.given)]
    rest = [column for column in others if column not in flags and column.few]
    if len(flags) < 2 or any(column.words & {*_ALL_LABELS} for column in others):
        return []
    is_alone = all(is_no_text([*map(text_in, column.given)]) for column in rest)
    return [flag.name for flag in flags] if is_alone else []


def _tags(column: Column) -> list[list[str]]:
    """A list, or a text that is split at white space, for each row."""
    wrong = [value for value in column.values if not isinstance(value, list | str | None)]
    if wrong:
        raise DataError(
            f"{column.name!r} holds {wrong[0]!r:.40}; expected a list of tags, one for each word, or a text of them",
            key="tags",
            do="name the column of the tags with {key}",
        )
    return [value.split() if isinstance(value, str) else [*map(str, value or ())] for value in column.values]
