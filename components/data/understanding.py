"""What a table is: the kind of its task and its columns, guessed from the rows; the only place that guesses."""

import json
import math
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import regex

from components.core.errors import DataError
from components.data.formats.dialect import GROUPS, LABELS, LABELS_TOO, TEXTS
from components.data.formats.words import UNSPACED, scheme_of
from components.data.sampling import Rows
from components.data.tasks.reading.records import (
    are_thousands,
    flag_of,
    is_no_number,
    label_text,
    labels_in,
    number_of,
    split_labels,
)
from components.settings.tasks import KINDS

#: Names of the columns of two texts.
PAIRS: Final = (
    *(("sentence1", "sentence2"), ("sentence_a", "sentence_b"), ("premise", "hypothesis"), ("text1", "text2")),
    *(("question1", "question2"), ("first", "second"), ("#1 string", "#2 string"), ("text_a", "text_b")),
)
WORDS: Final = ("words", "tokens")
TAGS: Final = ("tags", "ner_tags", "pos_tags", "labels")
#: A group column has at least this many values, and each on average at least this many rows.
_GROUPS, _ROWS_EACH = 5, 2
#: A label column has at most this many values, and each on average at least two rows.
_CLASSES: Final = 500
#: Whole numbers are measured, not names of classes, if there are more different ones, with gaps between them.
_NUMBERS: Final = 20
#: Share of the parts of texts with several labels that other texts have, too.
_AGAIN: Final = 0.9
_SEPARATORS: Final = (",", ";", "|", "><", "\n", "#", "/", "+", " ")


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


def understand(
    rows: Rows, *, text: Sequence[str] = (), label: str | None = None, kind: str | None = None
) -> Understanding:
    """The kind of a table's task and its columns.

    Args:
        text: column of the text, or both columns of a pair of texts; empty: guessed.
        label: column of the label; None: guessed.

    Raises:
        DataError: there is no such column, or nothing looks like a text or a label.
    """
    keys, columns = _keys(rows, text, label, kind or rows.kind), by_column(rows)
    reasons = columns_in_words(columns, keys)
    if "label" in keys and (lists := lists_in_words(columns, rows.loads)):
        reasons.append(lists)
    return Understanding(keys, reasons, group_column(columns, keys), runners_up(columns, keys)[1])


def _keys(rows: Rows, text: Sequence[str], label: str | None, kind: str | None) -> dict[str, Any]:
    if rows.format in ("conll", "conllu"):
        return {"kind": "tagging", "scheme": scheme_of(_tags(rows.rows, "tags"))}
    if rows.format == "squad" or (rows.format and rows.kind == "tagging"):
        return {"kind": rows.kind}
    columns = {name.casefold(): name for name in rows.columns}
    for name in [*text, *([label] if label else [])]:
        if name not in rows.columns:
            raise DataError(f"no column {name!r}; the columns are {names_listed(rows.columns)}")
    if {"question", "context", "answers"} <= columns.keys() and kind in (None, "questions"):
        return {"kind": "questions"} | {key: columns[key] for key in ("question", "context", "answers")}
    named = [*text[:1], *(columns[name] for name in WORDS if name in columns)]
    words = next((name for name in named if _holds_lists(rows.rows, name)), None)
    if words is not None and kind in (None, "tagging"):
        tags = label or next((columns[name] for name in TAGS if name in columns and columns[name] != words), None)
        if tags is not None:
            return {"kind": "tagging", "words": words, "tags": tags, "scheme": scheme_of(_tags(rows.rows, tags))}
    if kind == "tagging":
        return _tagging(rows, text, label)
    if kind in (None, "choice") and (chosen := choice_of(by_column(rows), next(iter(text), None), label)) is not None:
        return chosen
    if kind == "choice" or (kind is None and "choices" in columns):
        raise DataError("a choice needs columns of the prompt, the choices and the answer (docs/tasks.md); rename them")
    texts = list(text) or _text_columns(rows, label or label_by_name(by_column(rows)))
    if kind is not None and len(texts) != 1 + ("second" in KINDS[kind]):
        raise DataError(
            f"a task of kind {kind} has {1 + ('second' in KINDS[kind])} column(s) of text, found {names_listed(texts)}",
            key="text",
            do="name them with {key}",
        )
    single = label is None and len(texts) == 1 and (kind is None or "labels" in KINDS[kind])
    flags = flags_of(by_column(rows), texts) if single else []
    others = {name: values for name, values in by_column(rows).items() if name not in text}
    label = label or (None if flags else label_column(others, texts) or label_by_name(by_column(rows)))
    if label is None and not flags:
        lists = lists_in_words(by_column(rows), rows.loads)
        raise DataError(
            f"no column looks like a label (columns: {in_words(by_column(rows))})",
            key="label",
            do="name it with {key}" + (f"; {lists}" if lists else ""),
        )
    keys: dict[str, Any] = {"first": texts[0], "second": texts[1]} if len(texts) > 1 else {"text": texts[0]}
    if label is None:
        return {"kind": "multilabel"} | keys | {"labels": flags}
    if label in texts:
        raise DataError(f"{label!r} is the column of the label", key="text", do="name that of the text with {key}")
    guessed, separator = kind_of([row.get(label) for row in rows.rows], two=len(texts) > 1, label=label)
    if kind is None and guessed == "tagging":
        return _tagging(rows, texts, label)
    kind, separator = kind or guessed, separator if kind is None or "label_separator" in KINDS[kind] else None
    keys = {"kind": kind} | keys | {"score" if "score" in KINDS[kind] else "label": label}
    return keys | ({"label_separator": separator} if separator not in (None, ",") else {})


def kind_of(values: Sequence[Any], *, two: bool, label: str | None) -> tuple[str, str | None]:
    """The kind of task with one text a row, or `two`, by its labels, and the separator of several labels in one text.

    Raises:
        DataError: the values of the column `label` are lists of tags as text.
    """
    if not two and holds_tags(values):
        return "tagging", None
    refuse_lists_of_tags(values, label)
    measured = is_measured(values)
    if two:
        return "similarity" if measured else "pair", None
    lists = [labels for value in values if (labels := labels_in(value)) is not None]
    separator = None if lists else separator_of(values)
    if separator is not None or any(len(labels) != 1 for labels in lists):
        return "multilabel", separator
    return "regression" if measured else "classification", None


#: Words in the names of columns that are taken for the label only if no other column has few values.
_NO_LABELS: Final = GROUPS | {
    *(
        "lang",
        "language",
        "locale",
        "split",
        "fold",
        "sex",
        "gender",
        "age",
        "country",
        "region",
        "city",
        "date",
        "day",
    ),
    *("month", "year", "hour", "source", "channel", "platform", "annotator", "worker", "name"),
}
#: Values of a column that names the split of each row.
_SPLITS: Final = {"train", "training", "dev", "valid", "validation", "val", "test", "testing", "eval", "unsup", ""}
#: Columns that a message lists.
_LISTED: Final = 20


def names_listed(names: Iterable[str]) -> str:
    names = list(map(repr, names))
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def in_words(columns: Mapping[str, Sequence[Any]]) -> str:
    """The columns, and which of them have no values, or objects, whose members are no columns."""
    listed = names_listed(columns)
    given = {name: [value for value in values if value not in (None, "")] for name, values in columns.items()}
    if empty := [name for name, values in given.items() if not values]:
        listed += f"; {names_listed(empty)} without values"
    for name, values in given.items():
        if values and all(isinstance(value, dict) for value in values) and len(columns) <= _LISTED:
            members = names_listed(dict.fromkeys(member for value in values for member in value))
            listed += f"; {name!r} holds objects with {members}: write these as columns"
    return listed


def lists_in_words(columns: Mapping[str, Sequence[Any]], loads: str) -> str:
    """Columns that list objects, such as the aspects of a review, and how to make a row of each object; empty if there
    are none. `loads`: an expression of Python for the rows."""
    for name, values in columns.items():
        objects = [each for value in values if isinstance(value, list) for each in value]
        if objects and all(isinstance(each, dict) for each in objects):
            members = names_listed(dict.fromkeys(member for each in objects for member in each))
            lists = (list, dict)
            others = [other for other, given in columns.items() if not any(isinstance(each, lists) for each in given)]
            options = f"record_prefix={name + '.'!r}, errors='ignore'"
            flat = f"pandas.json_normalize({loads or 'rows'}, {name!r}, {others!r}, {options})"
            command = shlex.quote(f"import json, pandas; {flat}.to_csv('rows.csv', index=False)")
            return (
                f"{name!r} lists objects with {members}, several a row, and is not used; this makes a row of each: "
                f"python -c {command}"
            )
    return ""


def _filled(columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The columns with a value in at least half of the rows, and, if none of these has a label's name, the column
    `label` or `labels`, which often few rows fill in. All columns if there are none."""
    given = {name: [value for value in values if value not in (None, "")] for name, values in columns.items()}
    filled = [name for name, values in columns.items() if len(given[name]) >= len(values) / 2]
    if not any(name.casefold() in LABELS for name in filled):
        called = [name for name in columns if name.casefold() in ("label", "labels")]
        filled += [name for name in called if len(set(map(str, given[name]))) > 1]
    return {name: values for name, values in columns.items() if name in filled} or dict(columns)


def label_by_name(columns: Mapping[str, Sequence[Any]]) -> str | None:
    """A column that is called a label, or that has few values and a label's name among the words of its name; it is no
    text, however long its values are."""
    columns = _filled(columns)
    lowered = {name.casefold(): name for name in columns}
    named = next((lowered[name] for name in LABELS if name in lowered), None)
    suited = with_few_values(columns, [name for name in columns if words_of(name) & {*LABELS}])
    return named or next(iter(suited), None)


def text_column(rows: Rows, *, like: str | None) -> str:
    """The column of the text in a table without labels: `like`, the column of the labelled texts, if it has that.

    Raises:
        DataError: no column holds text.
    """
    return like if like in rows.columns else _text_columns(rows, None)[0]


def group_column(columns: Mapping[str, Sequence[Any]], keys: Mapping[str, Any]) -> tuple[str, str] | None:
    """The column of the group, and why, in words: named like a group, with many values and several rows for each; of
    several the one with the fewest values, whose groups are the largest, but those called `id` alone come last. A
    position, which counts up and begins again in each group, is none."""
    used = {value for value in keys.values() if isinstance(value, str)} | {*keys.get("labels", [])}
    candidates = []
    for name in (name for name in columns if name not in used):
        given = [value for value in columns[name] if value not in (None, "")]
        if not GROUPS & words_of(name) or any(isinstance(value, list | dict) for value in given) or _is_position(given):
            continue
        values = len({_text(value) for value in given})
        if values >= _GROUPS and len(given) >= max(_ROWS_EACH * values, len(columns[name]) / 2):
            candidates.append((not GROUPS & words_of(name) - {"id"}, values, len(given) / values, name))
    if not candidates:
        return None
    _, values, each, name = min(candidates)
    return name, (
        f"column {name!r} is the group: {values:,} values, {each:.1f} rows each, which are not independent; the rows "
        "of a group stay in one split and one fold"
    )


def _is_position(values: Sequence[Any]) -> bool:
    """Whether values count up, by the same step nearly each time, and begin again."""
    numbers = [_number(value) for value in values]
    steps = [after - before for before, after in pairwise(numbers) if before is not None and after is not None]
    rises = Counter(step for step in steps if step > 0)
    if len(steps) < len(values) - 1 or not rises or steps.count(0) > len(steps) / 10:
        return False
    return max(rises.values()) > 0.8 * rises.total() and len(rises) < len(set(numbers))


def runners_up(columns: Mapping[str, Sequence[Any]], keys: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Other columns that could be the text, and others that could be the label, with few values, but more than one."""
    used = {value for value in keys.values() if isinstance(value, str)} | {*keys.get("labels", [])}
    others = [name for name in columns if name not in used]
    few = with_few_values(columns, others) if {"label", "score"} & keys.keys() else {}
    texts = {name: [value for value in columns[name] if isinstance(value, str) and value.strip()] for name in others}
    texts = {
        name: values for name, values in texts.items() if few.get(name, _CLASSES) > _NUMBERS and _are_texts(values)
    }
    return list(texts), [name for name in few if name not in texts]


def _are_texts(values: Sequence[str]) -> bool:
    # About four letters are a word in scripts without spaces.
    words = sum(len(value.split()) + len(_UNSPACED.findall(value)) // 4 for value in values)
    return bool(values) and words >= 3 * len(values) and not _is_no_text(values)


def columns_in_words(columns: Mapping[str, Sequence[Any]], keys: Mapping[str, Any]) -> list[str]:
    """The columns that are used, alternatives to them, and labels that become one class, in words."""
    roles = ("text", "first", "second", "label", "score")
    used = [f"{keys[role]!r} is the {role}" for role in roles if role in keys]
    if "labels" in keys:
        used.append(f"{', '.join(map(repr, keys['labels']))} are columns of labels")
        flags = zip(*(columns[name] for name in keys["labels"]), strict=True)
        if all(sum(map(bool, map(flag_of, row))) == 1 for row in flags):
            used[-1] += ", one in each row; a single column with its name makes it a classification"
    if "scheme" in keys:
        spans = "mark no spans" if keys["scheme"] == "none" else f"mark spans in scheme {keys['scheme']}"
        return [f"the tags {spans} (--scheme)"]
    if not used:
        return []
    texts, labels = runners_up(columns, keys)
    both = ",".join([keys.get("text", ""), *texts[:1]])
    single = "text" in keys and "labels" not in keys and keys.get("kind") != "multilabel"
    pair = f"; --text {shlex.quote(both)} reads both" if single and both.count(",") == 1 else ""
    more = [(texts, f"the text (--text{pair})"), (labels, "the label (--label)")]
    lines = [
        f"column {', '.join(used)}"
        + "".join(f"; {', '.join(map(repr, names[:5]))} may also be {what}" for names, what in more if names)
    ]
    for name, split in columns.items():
        splits = {str(value).strip().casefold() for value in split}
        if len(splits) > 1 and {"train", "training"} & splits and splits <= _SPLITS and name not in keys.values():
            lines.append(
                f"warning: column {name!r} names the split of each row ({', '.join(sorted(splits))}), and is not used; "
                "write a file for each split, such as train.csv and test.csv in one folder"
            )
    values = columns.get(keys.get("score", ""), ())
    if any(isinstance(value, str) and "," in value for value in values):
        what = "separates thousands" if are_thousands(values) else "is the decimal comma"
        lines.append(f"the comma in {keys['score']!r} {what}; --kind multilabel reads several labels instead")
    written: dict[str, set[str]] = {}
    for value in columns.get(keys.get("label", ""), ()):
        if isinstance(value, str) and value.strip() and labels_in(value) is None:
            written.setdefault(label_text(value), set()).add(value)
    several = [name for name, ways in written.items() if len(ways) > 1]
    if several and "label_separator" not in keys:
        lines.append(f"labels that differ in spaces or Unicode form only are one class: {', '.join(several[:5])}")
    return lines


def with_few_values(columns: Mapping[str, Sequence[Any]], names: Iterable[str]) -> dict[str, int]:
    """Column -> number of its values, of columns that may be labels: with few values, but more than one."""
    counts: dict[str, int] = {}
    for name in names:
        values = columns[name]
        count = len({_text(value) for value in values} - {"", "null"})
        if 2 <= count <= min(_CLASSES, max(2, len(values) / 2), len(values) - 1):
            counts[name] = count
    return counts


def _tagging(rows: Rows, text: Sequence[str], label: str | None) -> dict[str, Any]:
    """Words and tags in texts, separated by spaces."""
    columns = by_column(rows)
    tags = label or next((name for name, values in columns.items() if holds_tags(values)), None)
    if tags is None:
        raise DataError(f"no column holds tags (columns: {in_words(columns)})", key="label", do="name them with {key}")
    if not any(" " in value.strip() for value in columns[tags] if isinstance(value, str)):
        raise DataError(
            f"column {tags!r} has the tag of one word a row; write one sentence a row, or CoNLL: a word and its tag a "
            "line, and an empty line after each sentence"
        )
    words = text[0] if text else _text_columns(rows, tags)[0]
    parts = [{tags: str(row.get(tags) or "").split()} for row in rows.rows]
    return {"kind": "tagging", "words": words, "tags": tags, "scheme": scheme_of(_tags(parts, tags))}


def holds_tags(values: Sequence[Any]) -> bool:
    """Whether texts are tags of words, such as `O B-artist I-artist`."""
    parts = {part for value in values if isinstance(value, str) for part in value.split()}
    return bool(parts - {"O"}) and all(re.fullmatch(r"O|[BIESLU]-\S+", part) for part in parts)


def refuse_lists_of_tags(values: Sequence[Any], column: str | None) -> None:
    """Check that a column of labels does not hold lists of tags that a table has as text.

    Raises:
        DataError: it does.
    """
    lists = [labels_in(value) for value in values if isinstance(value, str)]
    if lists and all(lists) and holds_tags([str(tag) for tags in lists for tag in tags or ()]):
        raise DataError(
            f"column {column!r} has lists of tags as text ({values[0]!r:.60}); save the table as parquet or jsonl, "
            "with lists of words and of tags"
        )


#: Words in the names of columns of choices, one each, and of the answer.
_CHOICES: Final = frozenset(("choice", "option", "opt", "op", "answer", "ans", "ending", "alternative", "candidate"))
_RIGHT: Final = ("label", "answer", "correct", "gold", "key", "target", "answer_index", "correct_answer", "cop")
_PROMPTS: Final = ("question", "prompt", "text", "premise", "context", "ctx")


def choice_of(columns: Mapping[str, Sequence[Any]], text: str | None, label: str | None) -> dict[str, Any] | None:
    """Keys of a multiple choice: a prompt, choices in one column of lists or in columns that are numbered or lettered
    (`choice0`, `optionB`), and the answer: its number, its letter or its text; None if the columns are none."""
    lowered = {name.casefold(): name for name in columns}
    named = lowered.get("choices")
    choices = [named] if named else _numbered(columns)
    if not choices:
        return None
    listed = [columns[named]] if named else [columns[name] for name in choices]
    rows = [
        list(row[0] or ()) if named and isinstance(row[0], list) else list(row) for row in zip(*listed, strict=True)
    ]
    others = [name for name in columns if name not in choices and name != text]
    rights = [label] if label else [lowered[name] for name in _RIGHT if lowered.get(name) in others]
    few = with_few_values(columns, [name for name in others if name not in rights]) if not label else ()
    for right in [*rights, *few]:
        answer = _answer_in([str("" if value is None else value).strip() for value in columns[right]], rows)
        rest = {name: columns[name] for name in others if name != right}
        prompts = [text] if text else [lowered[name] for name in _PROMPTS if lowered.get(name) in rest]
        if answer is not None and (prompts := prompts or texts_of(rest, None)):
            keys = {"kind": "choice", "text": prompts[0], "choices": named or choices, "label": right}
            return keys | ({} if answer == "from_zero" else {"answer": answer})
    return None


def _numbered(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Columns of texts whose names are a word of choices and consecutive numbers or letters, at least two; or only
    letters, at least three."""
    series: dict[str, dict[str, str]] = {}
    for name, values in columns.items():
        ends = re.fullmatch(r"(.*?)[ _.-]?(\d|[A-Za-z])", name)
        if ends is not None and all(value is None or isinstance(value, str | int | float) for value in values):
            series.setdefault(ends[1], {})[ends[2].lower()] = name
    for stem, names in series.items():
        for begin in ("0", "1", "a"):
            run = [chr(ord(begin) + step) for step in range(len(names))]
            least = 2 if words_of(stem) & _CHOICES else 3 if not stem and begin == "a" else math.inf
            if set(run) == names.keys() and len(run) >= least:
                return [names[each] for each in run]
    return []


def _answer_in(values: Sequence[str], rows: Sequence[Sequence[Any]]) -> str | None:
    """How values name one of the choices of their row, as `data.tasks.<name>.answer`; None if they do not."""
    given = [(value.removesuffix(".0"), row) for value, row in zip(values, rows, strict=True) if value]
    if given and all(value in map(_text, row) for value, row in given):
        return "text"
    if given and all(re.fullmatch(r"[A-Za-z]", value) and ord(value.upper()) - 65 < len(row) for value, row in given):
        return "letter"
    if given and all(value.isdecimal() and int(value) <= len(row) for value, row in given):
        if any(value == "0" for value, _ in given):
            return "from_zero" if all(int(value) < len(row) for value, row in given) else None
        return "from_one"
    return None


def texts_of(columns: Mapping[str, Sequence[Any]], label: str | None) -> list[str]:
    """The column of the text, or the two of a pair: by name, then the one with the longest texts; empty if there is
    none. Links, paths, dates, e-mail addresses and identifiers are no texts.

    Args:
        columns: name -> one value per row.
        label: column of the label, which is no text; None: not known.
    """
    names = {name.casefold(): name for name in columns if name != label}
    texts = {}
    for name in names.values():
        given = [value for value in columns[name] if isinstance(value, str) and value.strip()]
        if len(given) > len(columns[name]) / 2 and not _is_no_text(given):
            texts[name] = given
    for pair in PAIRS:
        if all(name in names and (names[name] in texts or not texts) for name in pair):
            return [names[name] for name in pair]
    named = [names[name] for name in TEXTS if names.get(name) in texts]
    if first := next((name for name in named if not _are_words(texts[name])), None):
        return [first]
    long = {name: given for name, given in texts.items() if not _are_words(given)} or texts
    # A word of the name counts as much as texts that are twice as long.
    lengths = {
        name: sum(map(len, given)) / len(given) * (2 if words_of(name) & {*TEXTS} else 1)
        for name, given in long.items()
    }
    best = max(lengths, key=lengths.__getitem__, default=None)
    if best is None or (named and best in named):
        best = next(
            iter(named), next((names[name] for name in TEXTS if name in names and _are_str(columns[names[name]])), None)
        )
    return [] if best is None else [best]


def _are_str(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) and value.strip() for value in values)


def _are_words(values: Sequence[str]) -> bool:
    """Whether values are few words that repeat, as labels are."""
    return len(values) >= _NUMBERS and len(set(values)) <= len(values) / 5 and not _are_texts(values)


_LETTER: Final = rf"[{UNSPACED}\p{{Thai}}]"
#: A letter of a script without spaces between words, in which a run of characters with a digit is a sentence.
_UNSPACED: Final = regex.compile(_LETTER, regex.VERSION1)
#: A part of a date or a time, as programs write them.
_DATE: Final = (
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*+\.?|[AaPp]\.?[Mm]\.?"
    r"|(?:GMT|UTC|[A-Z]{1,2}[DS]?T|Z)(?:[+-][\d:]++)?|[+-]?[\d.:/\-]++(?:T[\d.:+]++)?Z?"
)
#: One word without spaces that is written by a program, or a date.
_NO_TEXT: Final = regex.compile(
    r"(https?://|www\.)\S+|\S+@\S+\.\w+|(?=.*\d)(?:(?:" + _DATE + r")[\s,]*+)++|[0-9a-fA-F-]{8,}"
    rf"|[[\w.:-]--{_LETTER}]*[/\\][\S--{_LETTER}]+|(?=[\S--{_LETTER}]*\d)[\S--{_LETTER}]++",
    regex.VERSION1,
)


def _is_no_text(texts: Sequence[str]) -> bool:
    """Whether most values are links, paths, numbers, dates, addresses or identifiers, or tags of words."""
    count = sum(_NO_TEXT.fullmatch(text.strip()) is not None for text in texts)
    return count > 0.8 * len(texts) or holds_tags(texts)


def words_of(name: str) -> set[str]:
    """The words of a name, in lower case: `label` and `final` of `label_final` or `labelFinal`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _text_columns(rows: Rows, label: str | None) -> list[str]:
    """One text column, or two of a pair."""
    if texts := texts_of(by_column(rows), label):
        return texts
    raise DataError(f"no column holds text (columns: {in_words(by_column(rows))})", key="text", do="name it with {key}")


def label_column(columns: Mapping[str, Sequence[Any]], texts: Sequence[str]) -> str | None:
    """The column of the label: by name, by a word of the name, then the one with the fewest values, of equal ones the
    last, because labels usually follow the text; None if there is none. A column that is mostly empty is none. Of a
    column of numbers and one that names each of them, it is the names."""
    columns = _filled(columns)
    label = _label_column(columns, texts)
    if label is None or not all(_number(value) is not None for value in columns[label] if value not in (None, "")):
        return label
    for name in with_few_values(columns, [name for name in columns if name not in (label, *texts)]):
        pairs = {(_text(code), _text(word)) for code, word in zip(columns[label], columns[name], strict=True)}
        sizes = {len(pairs), *(len({pair[side] for pair in pairs}) for side in (0, 1))}
        if len(sizes) == 1 and not any(_number(word) is not None for _, word in pairs):
            return name
    return label


def _label_column(columns: Mapping[str, Sequence[Any]], texts: Sequence[str]) -> str | None:
    names = {name.casefold(): name for name in columns if name not in texts}
    named = [names[name] for name in (*LABELS, *LABELS_TOO) if name in names]
    if (first := next((name for name in named if not _tells_nothing(columns[name])), None)) is not None:
        return first
    suited = with_few_values(columns, [name for name in names.values() if name not in named]) or dict.fromkeys(named, 1)
    suited = {name: count for name, count in suited.items() if not words_of(name) & _NO_LABELS} or suited
    by_word = [name for name in suited if words_of(name) & {*LABELS, *LABELS_TOO}]
    if by_word:
        return min(
            by_word, key=lambda name: min(map([*LABELS, *LABELS_TOO].index, words_of(name) & {*LABELS, *LABELS_TOO}))
        )
    return _told(columns, texts, suited) if suited else None


def _tells_nothing(values: Sequence[Any]) -> bool:
    """Whether values are all the same, or texts of which each is another one."""
    given = [_text(value) for value in values if value not in (None, "")]
    return len(given) >= _NUMBERS and (len(set(given)) == 1 or (len(set(given)) == len(given) and _are_texts(given)))


#: Rows, and characters of each, by which it is judged how well texts tell labels; and the number of features.
_TOLD_ROWS, _TOLD_CHARACTERS, _FEATURES = 1_000, 300, 1 << 13


def _told(columns: Mapping[str, Sequence[Any]], texts: Sequence[str], suited: Mapping[str, int]) -> str:
    """Of columns with few values the one with the fewest, of equal ones the last; or one that the texts tell better:
    whose agreement with a prediction by naive Bayes on three characters, from the other half of the rows, is higher by
    two standard errors of agreement by chance."""
    fewest = min(reversed(list(suited)), key=suited.__getitem__)
    rows = range(0, len(columns[fewest]), max(1, len(columns[fewest]) // _TOLD_ROWS))
    if len(suited) < 2 or len(rows) < 2 * _NUMBERS or not texts:
        return fewest
    counts = np.zeros((len(rows), _FEATURES), dtype=np.float32)
    for index, row in enumerate(rows):
        text = f" {' '.join(str(columns[name][row] or '') for name in texts)} "[:_TOLD_CHARACTERS].casefold().encode()
        for place in range(len(text) - 4):
            counts[index, zlib.crc32(text[place : place + 5]) % _FEATURES] = 1
    agreements = {name: _agreement(counts, [_text(columns[name][row]) for row in rows]) for name in suited}
    best = max(agreements, key=agreements.__getitem__)
    return best if agreements[best] - agreements[fewest] > 2 / math.sqrt(len(rows)) else fewest


def _agreement(counts: np.ndarray, values: Sequence[str]) -> float:
    """Cohen's kappa between values and their predictions from the other half of the rows.

    Args:
        counts: (N, D) features.
    """
    names, numbers = np.unique(values, return_inverse=True)
    predicted = np.zeros(len(values), dtype=int)
    for half in (0, 1):
        of_class = np.ones((len(names), counts.shape[1]), dtype=np.float32)
        np.add.at(of_class, numbers[half::2], counts[half::2])
        prior = np.log(np.bincount(numbers[half::2], minlength=len(names)) + 1)
        weights = np.log(of_class / of_class.sum(1, keepdims=True))
        predicted[1 - half :: 2] = (counts[1 - half :: 2] @ weights.T + prior).argmax(1)
    share = np.bincount(numbers, minlength=len(names)) / len(values)
    chance = float(share @ np.bincount(predicted, minlength=len(names)) / len(values))
    return (float((predicted == numbers).mean()) - chance) / max(1 - chance, 1e-9)


def flags_of(columns: Mapping[str, Sequence[Any]], texts: Sequence[str]) -> list[str]:
    """Columns of 0 and 1, of yes and no, or of crosses besides the texts, if there are several and nothing else looks
    like a label. Empty cells say nothing."""
    others = {name: values for name, values in columns.items() if name not in texts}
    flags = []
    for name, values in others.items():
        given = [value for value in values if value not in (None, "")]
        if given and all(flag_of(value) is not None for value in given):
            flags.append(name)
    rest = {name: values for name, values in others.items() if name not in flags}
    if len(flags) < 2 or any(words_of(name) & {*LABELS, *LABELS_TOO} for name in columns if name not in texts):
        return []
    return [] if with_few_values(rest, [name for name in rest if not _is_identifier(rest[name])]) else flags


def _is_identifier(values: Sequence[Any]) -> bool:
    texts = [_text(value) for value in values if value not in (None, "")]
    return not texts or _is_no_text(texts)


def is_measured(values: Sequence[Any]) -> bool:
    """Whether labels are measurements: numbers that are not whole, or many that are no count of classes from 0 or 1."""
    present = [value for value in values if value is not None and value != ""]
    given = [value for value in present if not is_no_number(value)]
    thousands = are_thousands(given)
    numbers = {number for value in given if (number := _number(value, thousands)) is not None}
    if len(given) < 0.8 * len(present) or not given or any(_number(value, thousands) is None for value in given):
        return False
    if _are_joined_numbers(given):
        return False
    if thousands:
        return True
    if any(not number.is_integer() for number in numbers):
        return True
    first, last = min(numbers), max(numbers)
    return len(numbers) > _NUMBERS and not (first in (0, 1) and last - first + 1 == len(numbers))


def _number(value: Any, thousands: bool = False) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return number_of(value, thousands=thousands) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return None


def _are_joined_numbers(values: Sequence[Any]) -> bool:
    """Whether values such as `3,7` are two labels, each of which is also alone, and not decimal numbers."""
    texts = {value.strip() for value in values if isinstance(value, str)}
    joined = [text.split(",") for text in texts if "," in text]
    alone = {text for text in texts if "," not in text}
    seconds = {part for parts in joined for part in parts[1:]}
    return len(seconds) > 2 and seconds | {parts[0] for parts in joined} <= alone


def separator_of(values: Sequence[Any]) -> str | None:
    """The separator of several labels in one text: nearly all of its parts are used again and again."""
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if _are_joined_numbers(texts):
        return ","
    if all(_number(text) is not None for text in texts):
        return None
    for separator in _SEPARATORS:
        split = [split_labels(value, separator) for value in map(str.strip, texts)]
        joined = [parts for parts in split if len(parts) > 1]
        # The name of a label may contain spaces. A space separates labels only if each of them is also a value.
        alone = {parts[0] for parts in split if len(parts) == 1}
        if separator == " " and (len(alone) < 3 or not alone.issuperset(part for parts in joined for part in parts)):
            continue
        if not joined or any(not part or len(part) > 40 for parts in joined for part in parts):
            continue
        uses = Counter(part for parts in split for part in set(parts))
        again = [uses[part] > 1 for parts in joined for part in parts]
        if len(uses) < len(set(texts)) and sum(again) >= _AGAIN * len(again):
            return separator
    return None


def _holds_lists(rows: Sequence[dict[str, Any]], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(isinstance(value, list | None) for value in values) and any(value is not None for value in values)


def _tags(rows: Sequence[dict[str, Any]], column: str) -> list[list[str]]:
    """A list, or a text that is split at white space, for each row."""
    values = [row.get(column) for row in rows]
    wrong = [value for value in values if not isinstance(value, list | str | None)]
    if wrong:
        raise DataError(
            f"{column!r} holds {wrong[0]!r:.40}; expected a list of tags, one for each word, or a text of them",
            key="tags",
            do="name the column of the tags with {key}",
        )
    return [value.split() if isinstance(value, str) else [str(tag) for tag in value or []] for value in values]


def by_column(rows: Rows) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows.rows] for name in rows.columns}


def _text(value: Any) -> str:
    # Dates, times and decimal numbers of a parquet file or a DataFrame are no JSON.
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
