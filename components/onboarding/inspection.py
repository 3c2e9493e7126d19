"""What is in labelled data: sizes, balance, lengths, duplicates, conflicts, leakage between splits, language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from components.formats.textkey import text_key
from components.settings.tasks import SPLITS, TaskSource
from components.tasks.data import Examples, Split
from components.tasks.kinds import find_kind

#: Scripts of languages: first and last character. Letters of none of them are those of a language with spaces.
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
#: Listed classes.
_LISTED = 8


@dataclass(frozen=True)
class Facts:
    """What was found.

    Attributes:
        kind: of the task.
        rows: split -> number of rows, after rows of train that are in a later split were dropped.
        held_out: rows of test that were held out of train.
        classes: label -> rows of train, most frequent first; empty for kinds without labels.
        median, long: characters of a text: median, and of the longest 5%, the shortest.
        duplicates: rows of train whose text occurs before.
        conflicts: different texts of train that have several labels.
        overlap: split -> rows that are also in a later split.
        empty: rows without text, which are dropped.
        language: code.
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

    def lines(self) -> list[str]:
        """The facts in words."""
        sizes = ", ".join(f"{count:,} {split}" for split, count in self.rows.items() if count)
        found = [f"{self.kind}: {sizes}" + (" (test held out of train)" if self.held_out else "")]
        if self.classes:
            listed = [f"{name} {count:,}" for name, count in list(self.classes.items())[:_LISTED]]
            more = len(self.classes) - len(listed)
            found.append(f"{len(self.classes)} labels: {', '.join(listed)}" + (f" and {more} more" if more else ""))
            least, most = min(self.classes.values()), max(self.classes.values())
            if most > 10 * least:
                rare = [name for name, count in self.classes.items() if 10 * count < most]
                found.append(
                    f"unbalanced: {len(rare)} label(s) have less than a tenth of the rows of {next(iter(self.classes))}"
                )
        found.append(f"language {self.language}; {self.median} characters a text, 5% have more than {self.long}")
        problems = [
            (self.empty, "row(s) have no text; they are dropped"),
            (self.duplicates, "row(s) of train repeat an earlier text"),
            (self.conflicts, "text(s) of train have different labels; correct them where one is wrong"),
            *(
                (count, f"row(s) of {split} are also in a later split; dropped from {split}")
                for split, count in self.overlap.items()
            ),
        ]
        return found + [f"warning: {count:,} {what}" for count, what in problems if count]


def inspect(name: str, source: TaskSource) -> Facts:
    """Read a task as a run does, and count.

    Raises:
        DataError: the data are invalid (file, line, what to do).
    """
    found = find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    texts = [" ".join(fields) for fields in found.train.fields]
    lengths = np.array([len(text) for text in texts])
    keys = [text_key(text) for text in texts]
    return Facts(
        kind=source.kind,
        rows={split: len(getattr(found, split)) for split in SPLITS},
        held_out=found.counts.get("test_rows_held_out", 0),
        classes=_classes(found),
        median=int(np.median(lengths)),
        long=int(np.quantile(lengths, 0.95)),
        duplicates=len(keys) - len(set(keys)),
        conflicts=_conflicts(found.train, keys) if found.labels and source.kind != "tagging" else 0,
        overlap={split: found.counts.get(f"{split}_rows_in_later_splits", 0) for split in SPLITS[:2]},
        empty=sum(found.counts.get(f"{split}_rows_empty", 0) for split in SPLITS),
        language=language_of(texts),
    )


def _classes(found: Examples) -> dict[str, int]:
    counts = Counter(int(number) for target in found.train.targets for number in target if number >= 0)
    return {found.labels[number]: count for number, count in counts.most_common()} if found.labels else {}


def _conflicts(train: Split, keys: Sequence[str]) -> int:
    labels: dict[str, set[tuple[float, ...]]] = {}
    for key, target in zip(keys, train.targets, strict=True):
        labels.setdefault(key, set()).add(tuple(target.tolist()))
    return sum(len(one) > 1 for one in labels.values())


def language_of(texts: Sequence[str]) -> str:
    """The language by script, and in Latin script by frequent words; `en` if nothing tells."""
    sample = " ".join(texts[:: max(1, len(texts) // _TEXTS)])[:_CHARACTERS]
    letters = [ord(character) for character in sample if character.isalpha() or "\u0e00" <= character <= "\u0e7f"]
    counts = {code: sum(first <= letter <= last for letter in letters) for code, (first, last) in SCRIPTS.items()}
    best = max(counts, key=counts.__getitem__)
    if counts[best] > 0.3 * len(letters):
        return "ja" if best == "zh" and counts["ja"] > 0.05 * len(letters) else best
    words = Counter(sample.casefold().split())
    scores = {code: sum(words[word] for word in known) for code, known in STOPWORDS.items()}
    return max(scores, key=scores.__getitem__) if any(scores.values()) else "en"
