"""What is in labelled data: sizes, balance, lengths, duplicates, conflicts, leakage between splits; and the language,
guessed from the script and frequent words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from components.data.formats.textkey import text_key
from components.data.tasks.data import Fields
from components.data.tasks.kinds import find_kind
from components.settings.tasks import SPLITS, TaskSource

#: Share of the texts that have at most `Facts.long` characters.
WHOLE = 0.95
#: Labels that may mean that there is none.
_MARKS = frozenset(("na", "n/a", "nan", "null", "-", "?"))
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
        unlabelled: rows without a label, which are left out.
        alike: labels that differ in upper and lower case only.
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
    unlabelled: int = 0
    alike: tuple[str, ...] = ()
    telling: tuple[tuple[str, int, str], ...] = ()

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
        lines.append(f"language {self.language}; {self.median} characters a text, 5% have more than {self.long}")
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


#: Scripts of languages: first and last character. Letters of other scripts belong to languages with spaces.
SCRIPTS: Final = {
    "th": (0x0E00, 0x0E7F),
    "lo": (0x0E80, 0x0EFF),
    "my": (0x1000, 0x109F),
    "km": (0x1780, 0x17FF),
    "ja": (0x3040, 0x30FF),
    "zh": (0x4E00, 0x9FFF),
    "ru": (0x0400, 0x04FF),
    "ar": (0x0600, 0x06FF),
    "hi": (0x0900, 0x097F),
    "el": (0x0370, 0x03FF),
    "ko": (0xAC00, 0xD7AF),
}
#: Frequent words of languages in Latin script.
STOPWORDS: Final = {
    "en": {"the", "of", "and", "is", "to", "in", "what", "a", "that", "it", "you", "for"},
    "de": {"der", "die", "und", "das", "ist", "nicht", "ein", "ich", "mit", "zu"},
    "fr": {"le", "la", "les", "et", "des", "est", "une", "pas", "que", "dans"},
    "es": {"el", "los", "las", "y", "es", "una", "que", "por", "con", "del"},
    "it": {"il", "che", "di", "gli", "una", "per", "non", "con", "della", "sono"},
    "pt": {"o", "os", "um", "uma", "que", "não", "com", "para", "do", "da"},
    "nl": {"het", "een", "van", "en", "niet", "dat", "ik", "op", "met", "zijn"},
}
#: Texts and characters that the language is guessed from.
_TEXTS, _CHARACTERS = 400, 40_000
#: Share of the letters from which a text is in a script, and of kana from which Han is Japanese.
SHARE: Final = 0.3
KANA: Final = 0.05


def language_of(texts: Sequence[str]) -> str:
    """The language by script, and in Latin script by frequent words; `en` if nothing tells.

    Han with kana is Japanese.
    """
    sample = " ".join(texts[:: max(1, len(texts) // _TEXTS)])[:_CHARACTERS]
    letters = [ord(character) for character in sample if character.isalpha() or "\u0e00" <= character <= "\u0e7f"]
    counts = {code: sum(first <= letter <= last for letter in letters) for code, (first, last) in SCRIPTS.items()}
    best = max(counts, key=counts.__getitem__)
    if counts["ja"] > KANA * len(letters) and counts["ja"] + counts["zh"] > SHARE * len(letters):
        return "ja"
    if counts[best] > SHARE * len(letters):
        return best
    words = Counter(sample.casefold().split())
    scores = {code: sum(words[word] for word in frequent) for code, frequent in STOPWORDS.items()}
    return max(scores, key=scores.__getitem__) if any(scores.values()) else "en"
