"""Words for languages that are written without spaces.

A segmenter cuts the runs of its own script and leaves all else alone; spaces put between the words let the ordinary
tokenizers do the rest. To add a language: one line in `SEGMENTERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final

#: A longer run without any break is cut at this length first: a dictionary search over a run of megabytes would not
#: end in useful time. No sentence of real text comes near it.
LONGEST_RUN: Final = 2000
#: Share of a text's letters from which `auto` calls it a text in that script.
AUTO_SHARE: Final = 0.1


@dataclass(frozen=True)
class Segmenter:
    """One line of the `SEGMENTERS` table.

    Attributes:
        script: matches a maximal run of the language's own characters.
        split: a run -> its words; joined they are the run again.
    """

    script: re.Pattern[str]
    split: Callable[[str], list[str]]

    def cuts(self, text: str) -> Iterator[int]:
        """Positions in `text` at which a word of the script begins or ends, ascending, without 0 and the end."""
        last = 0
        for run in self.script.finditer(text):
            for start in range(run.start(), run.end(), LONGEST_RUN):
                for inside in _word_starts(self.split, text[start : min(start + LONGEST_RUN, run.end())]):
                    if last < start + inside:
                        last = start + inside
                        yield last
            if last < run.end() < len(text):
                yield run.end()
                last = run.end()

    def share(self, text: str) -> float:
        """Share of the characters of `text`, white space aside, that belong to the script."""
        own = sum(run.end() - run.start() for run in self.script.finditer(text))
        return own / max(1, sum(map(len, text.split()))) if own else 0.0


@lru_cache(maxsize=1 << 16)
def _word_starts(split: Callable[[str], list[str]], run: str) -> tuple[int, ...]:
    """Where the words of a run start. Remembered: more than half of the runs of a text have come before."""
    return tuple(accumulate(map(len, split(run)), initial=0))[:-1]


@cache
def _newmm() -> Callable[[str], list[str]]:
    # Imported at the first Thai text: its dictionary takes half a second to load.
    from pythainlp.tokenize.newmm import segment

    return segment


def _thai_words(run: str) -> list[str]:
    """Dictionary words by maximal matching on Thai character clusters (pythainlp's newmm)."""
    return _newmm()(run)


#: Language -> how it is cut. Thai: letters and signs of the block U+0E00, its digits and the baht sign included.
SEGMENTERS: Final[dict[str, Segmenter]] = {
    "thai": Segmenter(script=re.compile("[\u0e01-\u0e5b]+"), split=_thai_words),
}


class Segmentation:
    """The choice of a segmenter: a name from `SEGMENTERS` for every text, `none`, or `auto`.

    `auto` looks at each text by itself and takes the segmenter whose script holds at least a tenth of its characters.
    """

    def __init__(self, name: str = "auto") -> None:
        if name not in ("auto", "none", *SEGMENTERS):
            raise ValueError(f"unknown segmenter {name!r}; known: auto, none, {', '.join(SEGMENTERS)}")
        self.name = name

    def choose(self, text: str) -> Segmenter | None:
        """The segmenter that fits `text`, None where words are told apart by spaces."""
        if self.name == "none" or text.isascii():
            return None
        if self.name != "auto":
            return SEGMENTERS[self.name]
        return next((segmenter for segmenter in SEGMENTERS.values() if segmenter.share(text) >= AUTO_SHARE), None)

    def spaced(self, text: str, separator: str = " ") -> str:
        """`text` with a space (or another character) between every two words that had none."""
        return self.spaced_with_insertions(text, separator)[0]

    def spaced_with_insertions(self, text: str, separator: str = " ") -> tuple[str, list[int]]:
        """The spaced text, and the positions in it (ascending) of the spaces that were inserted."""
        segmenter = self.choose(text)
        return (text, []) if segmenter is None else insert_spaces(text, segmenter, separator)


def insert_spaces(text: str, segmenter: Segmenter, separator: str = " ") -> tuple[str, list[int]]:
    """`text` cut by one segmenter, as `Segmentation.spaced_with_insertions` returns it."""
    parts: list[str] = []
    inserted: list[int] = []
    before = 0
    for cut in segmenter.cuts(text):
        if not (text[cut - 1].isspace() or text[cut].isspace()):
            parts.append(text[before:cut])
            inserted.append(cut + len(inserted))
            before = cut
    parts.append(text[before:])
    return separator.join(parts), inserted
