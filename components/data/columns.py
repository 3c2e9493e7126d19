"""The columns of a table, and what their values look like: texts, labels, numbers, tags."""

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import regex

from components.data.formats.delimited import words_in
from components.data.formats.kinds import are_tags
from components.data.formats.words import UNSPACED
from components.data.sampling import Rows
from components.data.tasks.reading.records import are_thousands, is_no_number, number_of, split_labels

#: A label column has at most this many values, and each on average at least two rows.
_CLASSES: Final = 500
#: Whole numbers are measured, not names of classes, if there are more different ones, with gaps between them.
NUMBERS: Final = 20
#: Share of the parts of texts with several labels that other texts have, too.
_AGAIN: Final = 0.9
_SEPARATORS: Final = (",", ";", "|", "><", "\n", "#", "/", "+", " ")
#: Columns that a message lists.
_LISTED: Final = 20
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


class Column:
    """A column of a table, and what its values look like."""

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name, self.values = name, values
        self.words = words_in(name)
        #: The values that are not missing, and those that are texts with more than white space.
        self.given = [value for value in values if value not in (None, "")]
        self.strings = [value for value in self.given if isinstance(value, str) and value.strip()]

    @cached_property
    def cells(self) -> list[str]:
        """All values as text."""
        return [text_in(value) for value in self.values]

    @cached_property
    def different(self) -> set[str]:
        """The given values as text, each once."""
        return {*self.cells} - {"", "null"}

    @cached_property
    def few(self) -> int:
        """Number of the values if they may be labels: few different ones, but more than one. 0: they may not."""
        rows, count = len(self.values), len(self.different)
        return count if 2 <= count <= min(_CLASSES, max(2, rows / 2), rows - 1) else 0

    @cached_property
    def holds_text(self) -> bool:
        """Whether most rows have a text, which no program has written."""
        return len(self.strings) > len(self.values) / 2 and not is_no_text(self.strings)

    @cached_property
    def holds_words(self) -> bool:
        """Whether texts are few words that repeat, as labels are."""
        count = len(self.strings)
        return count >= NUMBERS and len(set(self.strings)) <= count / 5 and not self.holds_sentences

    @cached_property
    def holds_sentences(self) -> bool:
        """Whether values are texts of three words or more on average."""
        return are_texts(self.strings)

    @cached_property
    def is_measured(self) -> bool:
        """Whether labels are measurements: numbers that are not whole, or many that are no count of classes from 0 or
        1."""
        given = [value for value in self.given if not is_no_number(value)]
        thousands = are_thousands(given)
        numbers = {number_in(value, thousands) for value in given}
        if len(given) < 0.8 * len(self.given) or not given or None in numbers or _are_joined_numbers(given):
            return False
        whole = [number for number in numbers if number is not None and number.is_integer()]
        if thousands or len(whole) < len(numbers):
            return True
        first, last = min(whole), max(whole)
        return len(numbers) > NUMBERS and not (first in (0, 1) and last - first + 1 == len(numbers))

    @cached_property
    def separator(self) -> str | None:
        """The separator of several labels in one text: nearly all of its parts are used again and again."""
        texts = self.strings
        if _are_joined_numbers(texts):
            return ","
        if all(number_in(text) is not None for text in texts):
            return None
        for separator in _SEPARATORS:
            split = [split_labels(value, separator) for value in map(str.strip, texts)]
            joined = [parts for parts in split if len(parts) > 1]
            several = [part for parts in joined for part in parts]
            # The name of a label may contain spaces. A space separates labels only if each of them is also a value.
            alone = {parts[0] for parts in split if len(parts) == 1}
            if separator == " " and (len(alone) < 3 or not alone.issuperset(several)):
                continue
            if not joined or any(not part or len(part) > 40 for part in several):
                continue
            uses = Counter(part for parts in split for part in set(parts))
            again = [uses[part] > 1 for part in several]
            if len(uses) < len(set(texts)) and sum(again) >= _AGAIN * len(again):
                return separator
        return None

    def all_are(self, kind: Any) -> bool:
        """Whether there are values, and all of them are of a type."""
        return bool(self.given) and all(isinstance(value, kind) for value in self.given)

    def tells_nothing(self) -> bool:
        """Whether values are all the same, or texts of which each is another one."""
        count, different = len(self.given), self.different
        return count >= NUMBERS and (len(different) == 1 or (len(different) == count and are_texts(different)))


class Columns(dict[str, Column]):
    """The columns of a table by name."""

    def __init__(self, table: Rows) -> None:
        super().__init__({name: Column(name, values) for name, values in table.columns.items()})
        self.loads, self.lowered = table.loads, {name.casefold(): name for name in self}

    def called(self, names: Iterable[str]) -> list[Column]:
        """Those with one of these names, in the order of the names."""
        return [self[self.lowered[name]] for name in names if name in self.lowered]

    def without(self, names: Collection[Any]) -> list[Column]:
        return [column for name, column in self.items() if name not in names]

    def in_words(self) -> str:
        """The columns, and which of them have no values, or objects, whose members are no columns."""
        said = listed(self)
        if empty := [name for name, column in self.items() if not column.given]:
            said += f"; {listed(empty)} without values"
        for name, column in self.items():
            if column.all_are(dict) and len(self) <= _LISTED:
                said += f"; {name!r} holds objects with {_members(column.given)}: write these as columns"
        return said

    def lists_in_words(self) -> str:
        """A column that lists objects, such as the aspects of a review, and how to make a row of each object; empty if
        there is none."""
        for name, column in self.items():
            objects = [each for value in column.values if isinstance(value, list) for each in value]
            if objects and all(isinstance(each, dict) for each in objects):
                plain = (other for other in self.values() if not any(isinstance(v, list | dict) for v in other.values))
                others = [other.name for other in plain]
                options = f"record_prefix={name + '.'!r}, errors='ignore'"
                flat = f"pandas.json_normalize({self.loads or 'rows'}, {name!r}, {others!r}, {options})"
                command = shlex.quote(f"import json, pandas; {flat}.to_csv('rows.csv', index=False)")
                return (
                    f"{name!r} lists objects with {_members(objects)}, several a row, and is not used; this makes a "
                    f"row of each: python -c {command}"
                )
        return ""


def listed(names: Iterable[str], most: int = _LISTED) -> str:
    names = list(map(repr, names))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _members(objects: Iterable[Mapping[str, Any]]) -> str:
    return listed(dict.fromkeys(member for value in objects for member in value))


def are_texts(values: Collection[str]) -> bool:
    # About four letters are a word in scripts without spaces.
    words = sum(len(value.split()) + len(_UNSPACED.findall(value)) // 4 for value in values)
    return bool(values) and words >= 3 * len(values) and not is_no_text(values)


def holds_tags(values: Iterable[Any]) -> bool:
    """Whether texts are tags of words, such as `O B-artist I-artist`."""
    parts = {part for value in values if isinstance(value, str) for part in value.split()}
    return bool(parts - {"O"}) and are_tags(parts)


def is_no_text(texts: Collection[str]) -> bool:
    """Whether most values are links, paths, numbers, dates, addresses or identifiers, or tags of words."""
    count = sum(_NO_TEXT.fullmatch(text.strip()) is not None for text in texts)
    return count > 0.8 * len(texts) or holds_tags(texts)


def number_in(value: Any, thousands: bool = False) -> float | None:
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
    seconds = {part for parts in joined for part in parts[1:]}
    return len(seconds) > 2 and seconds | {parts[0] for parts in joined} <= texts


def text_in(value: Any) -> str:
    # Dates, times and decimal numbers of a parquet file or a DataFrame are no JSON.
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
