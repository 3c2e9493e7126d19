"""What is in labelled data: sizes, balance, lengths, duplicates, conflicts, leakage between splits; and the language,
guessed from the script and frequent words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from components.data.formats.textkey import row_key
from components.data.tasks.data import Examples, Split
from components.data.tasks.examples import NOTICES
from components.settings.tasks import SPLITS, has

#: Share of the texts that have at most `Facts.long` characters.
WHOLE = 0.95
#: Labels that may mean that there is none.
_MARKS = frozenset(("na", "n/a", "nan", "null", "-", "?"))
#: Counts of the reader that are said as `examples` says them.
_NOTED = ("dev_rows_with_unseen_label", "test_rows_with_unseen_label", "wrong_spans")
#: Count of the rows of train that are copies.
_COPIES = "train_rows_repeated"
#: Listed classes.
_LISTED = 8


class Facts:
    """Statistics of the rows of train, and of what the reader has counted in all `splits`.

    Attributes:
        rows: split -> number of rows, after rows of train that are in a later split were dropped.
        counts: of the reader (`Examples.counts`); of train alone, its copies.
        classes: label -> rows of train, most frequent first; empty for kinds without labels.
        median, long: characters of a text: median, and of the longest 5%, the shortest.
        conflicts: different texts of train that have several labels.
        language, script: of the texts; code, or `UNKNOWN`, and name.
        alike: labels that differ in upper and lower case only.
        telling: (token, rows of train with it, label) of tokens that occur with one label only, in many of its rows.
    """

    def __init__(self, kind: str, examples: Examples, *, splits: Sequence[str] = SPLITS) -> None:
        train, labels = examples.train, examples.labels
        texts = [" ".join(parts) for parts in train.fields]
        lengths = [*map(len, texts)]
        folded = Counter(label.casefold() for label in labels)
        targets = (int(number) for target in train.targets for number in target if labels and number >= 0)
        self.kind, self.rows = kind, {split: len(getattr(examples, split)) for split in splits}
        self.counts = Counter(
            {n: c for n, c in examples.counts.items() if len(splits) > 1 or n == "train_rows_repeated"}
        )
        self.classes = dict(Counter(labels[number] for number in targets).most_common())
        self.median, self.long = int(np.median(lengths)), int(np.quantile(lengths, WHOLE))
        self.conflicts = _conflicts(train) if labels and not has(kind, "words") else 0
        self.language, self.script = language_of(texts), script_of("".join(texts[:_TEXTS])[:_CHARACTERS])
        self.alike = [label for label in labels if folded[label.casefold()] > 1]
        self.telling = _telling(train, labels) if has(kind, "outside") else []

    def _sizes(self) -> str:
        sizes = [f"{self.rows.get('train', 0):,} rows to learn from"]
        sizes += [f"{self.rows['dev']:,} of dev"] if self.rows.get("dev") else []
        if test := self.rows.get("test"):
            sizes.append(
                f"{test:,} further row(s) are held out as test"
                if self.counts["test_rows_held_out"]
                else f"{test:,} of test"
            )
        return ", ".join(sizes)

    def of_any(self, what: str) -> int:
        """Rows of any split that are counted as `what`."""
        return sum(self.counts[f"{split}_rows_{what}"] for split in SPLITS)

    def lines(self) -> list[str]:
        """The facts in words."""
        lines = [f"{self.kind}: {self._sizes()}"]
        if self.classes:
            listed = [f"{name} {count:,}" for name, count in list(self.classes.items())[:_LISTED]]
            more = len(self.classes) - len(listed)
            least, most = min(self.classes.values()), max(self.classes.values())
            smallest = f"; the smallest is {list(self.classes)[-1]} with {least:,} row(s)" if least < most else ""
            lines.append(
                f"{len(self.classes)} classes in train: {', '.join(listed)}"
                + (f" and {more} more" if more else "")
                + smallest
            )
            if most > 10 * least:
                rare = [name for name, count in self.classes.items() if 10 * count < most]
                lines.append(
                    f"unbalanced: {len(rare)} label(s) have less than a tenth of the rows of {next(iter(self.classes))}"
                )
        language = (
            self.language
            if self.language != UNKNOWN
            else f"not recognised, {self.script.capitalize()} script (--language)"
        )
        lines.append(f"language {language}; {self.median} characters a text, 5% have more than {self.long}")
        if has(self.kind, "outside") and len(self.classes) > 2 and all(name.isdigit() for name in self.classes):
            lines.append("the labels are numbers; if they are grades to be predicted as such: --kind regression")
        if self.alike:
            lines.append(
                f"warning: labels differ in upper and lower case only: {', '.join(self.alike)}; write one of them"
            )
        if marks := [name for name in self.classes if name.casefold() in _MARKS]:
            lines.append(
                f"warning: the class {', '.join(map(repr, marks))} may stand for a missing label; if so, leave the "
                "cell empty"
            )
        for token, count, label in self.telling:
            lines.append(
                f"the token {token!r} occurs in {count:,} rows, all of them {label!r}; is it part of the label?"
            )
        unlabelled = "row(s) have no label and are left out; those of train are used as unlabelled text"
        later = "row(s) of {0} are also in a later split; dropped from {0}"
        problems = [
            *((self.counts[name], NOTICES[name][0]) for name in _NOTED),
            (self.of_any("empty"), "row(s) have no text; they are dropped"),
            (self.of_any("without_label"), unlabelled),
            (self.counts[_COPIES], "row(s) of train repeat an earlier text"),
            (self.conflicts, "text(s) of train have different labels; correct them where one is wrong"),
            *((self.counts[f"{split}_rows_in_later_splits"], later.format(split)) for split in SPLITS[:2]),
        ]
        return lines + [f"warning: {count:,} {what}" for count, what in problems if count]


def _telling(train: Split, labels: Sequence[str]) -> list[tuple[str, int, str]]:
    """Up to three tokens that occur in at least half of the rows of a label, and in no row of another one."""
    counts = Counter(train.labels.tolist())
    seen: Counter[str] = Counter()
    of_label: dict[str, int] = {}
    mixed: set[str] = set()
    for fields, number in zip(train.fields, train.labels.tolist(), strict=True):
        for token in {*" ".join(fields).casefold().split()}:
            seen[token] += 1
            if of_label.setdefault(token, number) != number:
                mixed.add(token)
    telling = [
        (token, count, labels[of_label[token]])
        for token, count in seen.most_common()
        if token not in mixed and of_label[token] >= 0 and count >= max(5, counts[of_label[token]] / 2)
    ]
    return telling[:3]


def _conflicts(train: Split) -> int:
    targets: dict[str, set[tuple[float, ...]]] = {}
    for fields, target in zip(train.fields, train.targets, strict=True):
        targets.setdefault(row_key(fields), set()).add(tuple(target))
    return sum(len(different) > 1 for different in targets.values())


#: Languages that are told apart.
LANGUAGES: Final = {
    "ar", "de", "el", "en", "es", "fr", "hi", "it", "ja", "km", "ko", "lo", "my", "nl", "pt", "ru", "th", "zh",
}  # fmt: skip
#: Those in Latin script.
_LATIN: Final = {"de", "en", "es", "fr", "it", "nl", "pt"}
_BEYOND_LATIN: Final = re.compile(r"[^\W\d_\x00-\u024f\u1e00-\u1eff]")
#: Codes of the identifier for varieties of a language, and for text without words.
_VARIETIES: Final = {"pcm": "en", "wuu": "zh", "yue": "zh", "zxx": "en"}
#: Code for a language that is none of those that are told apart (ISO 639-2, undetermined).
UNKNOWN: Final = "und"
#: Log-probability by which another language has to be more likely.
_MARGIN: Final = 12.0
#: Words and letters below which a list of terms may look like any language.
_WORDS, _LETTERS = 50, 200
#: Texts and characters that the language is guessed from.
_TEXTS, _CHARACTERS = 400, 10_000


def language_of(texts: Sequence[str]) -> str:
    """The most likely language (Lui & Baldwin 2012, "langid.py"); `UNKNOWN` if that is none of `LANGUAGES`, and `en`
    without words. Of a short text, another language in Latin script is told only if it is clearly more likely than
    `en`; a text in Latin script has no language of another one."""
    from py3langid import rank  # loads its model

    sample = " ".join(texts[:: max(1, len(texts) // _TEXTS)])[:_CHARACTERS]
    if not (letters := sum(map(str.isalpha, sample))):
        return "en"
    ranked = [(_VARIETIES.get(code, code), score) for code, score in rank(sample.casefold())]
    possible = LANGUAGES if _BEYOND_LATIN.search(sample) else _LATIN
    likely, score = next(each for each in ranked if each[0] in possible)
    if ranked[0][1] - score >= _MARGIN:
        return UNKNOWN
    is_short = letters < _LETTERS and len(sample.split()) < _WORDS
    is_clear = score - dict(reversed(ranked))["en"] >= _MARGIN
    return "en" if is_short and likely in _LATIN and not is_clear else likely


@cache
def _script(letter: str) -> str:
    """The writing system of a letter: the first word of its Unicode name, such as LATIN, CYRILLIC, CJK, THAI."""
    name = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
    return name.partition("-")[0].lower()


def script_of(text: str) -> str:
    """The writing system of most letters of a text, such as `latin`; `none` if it has no letters."""
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else "none"
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        counts[_script(letter)] += count
    del counts[""]
    return counts.most_common(1)[0][0] if counts else "none"
