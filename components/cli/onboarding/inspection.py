"""What is in labelled data: sizes, balance, lengths, duplicates, conflicts, leakage between splits; and the language,
guessed from the script and frequent words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from components.data.formats.textkey import text_key
from components.data.tasks.data import Fields
from components.data.tasks.examples import NOTICES
from components.data.tasks.kinds import find_kind
from components.settings.tasks import SPLITS, TaskSource

#: Share of the texts that have at most `Facts.long` characters.
WHOLE = 0.95
#: Labels that may mean that there is none.
_MARKS = frozenset(("na", "n/a", "nan", "null", "-", "?"))
#: Counts of the reader that are said as `examples` says them.
_NOTED = ("dev_rows_with_unseen_label", "test_rows_with_unseen_label", "wrong_spans")
#: Listed classes.
_LISTED = 8


@dataclass(frozen=True)
class Facts:
    """What the inspection has found.

    Attributes:
        rows: split -> number of rows, after rows of train that are in a later split were dropped.
        classes: label -> rows of train, most frequent first; empty for kinds without labels.
        median, long: characters of a text: median, and of the longest 5%, the shortest.
        duplicates: rows of train whose text occurs before.
        conflicts: different texts of train that have several labels.
        overlap: split -> rows that are also in a later split.
        empty: rows without text, which are dropped.
        language, script: of the texts; code, or `UNKNOWN`, and name.
        unlabelled: rows without a label, which are left out.
        alike: labels that differ in upper and lower case only.
        noted: (number, what) of rows of any split that are not as they should be.
        telling: (token, rows of train with it, label) of tokens that occur with one label only, in many of its rows.
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
    script: str = ""
    unlabelled: int = 0
    alike: tuple[str, ...] = ()
    telling: tuple[tuple[str, int, str], ...] = ()
    noted: tuple[tuple[int, str], ...] = ()

    def _sizes(self) -> str:
        sizes = [f"{self.rows.get('train', 0):,} rows to learn from"]
        sizes += [f"{self.rows['dev']:,} of dev"] if self.rows.get("dev") else []
        if test := self.rows.get("test"):
            sizes.append(f"{test:,} further row(s) are held out as test" if self.held_out else f"{test:,} of test")
        return ", ".join(sizes)

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
        language = self.language if self.language != UNKNOWN else f"not recognised, {self.script} script (--language)"
        lines.append(f"language {language}; {self.median} characters a text, 5% have more than {self.long}")
        if self.kind == "classification" and len(self.classes) > 2 and all(name.isdigit() for name in self.classes):
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
        problems = [
            *self.noted,
            (self.empty, "row(s) have no text; they are dropped"),
            (self.unlabelled, "row(s) have no label and are left out; those of train are used as unlabelled text"),
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
    facts = facts_of(
        source.kind, examples.train.fields, [each.tolist() for each in examples.train.targets], examples.labels
    )
    return replace(
        facts,
        rows={split: len(getattr(examples, split)) for split in SPLITS},
        held_out=examples.counts.get("test_rows_held_out", 0),
        overlap={split: examples.counts.get(f"{split}_rows_in_later_splits", 0) for split in SPLITS[:2]},
        empty=sum(examples.counts.get(f"{split}_rows_empty", 0) for split in SPLITS),
        unlabelled=sum(examples.counts.get(f"{split}_rows_without_label", 0) for split in SPLITS),
        noted=tuple((examples.counts[name], NOTICES[name][0]) for name in _NOTED if examples.counts.get(name)),
    )


def facts_of(kind: str, fields: Sequence[Fields], targets: Sequence[Sequence[float]], labels: Sequence[str]) -> Facts:
    """Statistics of the rows of train.

    Args:
        targets: N targets; of kinds with labels their indices, negative for no label.
    """
    texts = [" ".join(parts) for parts in fields]
    lengths = np.array([len(text) for text in texts])
    keys = [text_key(text) for text in texts]
    folded = Counter(label.casefold() for label in labels)
    counts = Counter(int(number) for target in targets for number in target if number >= 0) if labels else Counter()
    return Facts(
        kind=kind,
        rows={"train": len(fields)},
        held_out=0,
        classes={labels[number]: count for number, count in counts.most_common()},
        median=int(np.median(lengths)),
        long=int(np.quantile(lengths, WHOLE)),
        duplicates=len(keys) - len(set(keys)),
        conflicts=_conflicts(targets, keys) if labels and kind != "tagging" else 0,
        overlap={},
        empty=0,
        language=language_of(texts),
        script=script_of(texts),
        alike=tuple(label for label in labels if folded[label.casefold()] > 1),
        telling=_telling(fields, targets, labels) if kind == "classification" else (),
    )


def _telling(
    inputs: Sequence[Fields], targets: Sequence[Sequence[float]], labels: Sequence[str]
) -> tuple[tuple[str, int, str], ...]:
    """Up to three tokens that occur in at least half of the rows of a label, and in no row of another one."""
    counts = Counter(int(target[0]) for target in targets if target[0] >= 0)
    seen: Counter[str] = Counter()
    of_label: dict[str, int] = {}
    mixed: set[str] = set()
    for fields, target in zip(inputs, targets, strict=True):
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


def _conflicts(targets: Sequence[Sequence[float]], keys: Sequence[str]) -> int:
    labels: dict[str, set[tuple[float, ...]]] = {}
    for key, target in zip(keys, targets, strict=True):
        labels.setdefault(key, set()).add(tuple(target))
    return sum(len(different) > 1 for different in labels.values())


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


def script_of(texts: Sequence[str]) -> str:
    """The script of most letters, such as `Latin`."""
    letters = [letter for letter in "".join(texts[:_TEXTS])[:_CHARACTERS] if letter.isalpha()]
    names = Counter(unicodedata.name(letter, "unknown").split()[0] for letter in letters)
    return names.most_common(1)[0][0].capitalize() if names else "no"
