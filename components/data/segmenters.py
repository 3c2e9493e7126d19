"""Word segmentation for languages without spaces.

A segmenter splits runs of its own script and leaves other text unchanged; spaces are inserted between the words, and
tokenizers treat them as usual. A new language is one entry of `SEGMENTERS`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from components.core.errors import extras

#: Longer runs are split at this length first, because a dictionary search over a run of megabytes takes too long.
#: Sentences are far shorter.
LONGEST_RUN: Final = 2000
#: Share of a text's characters from which `auto` selects the segmenter of their script.
AUTO_SHARE: Final = 0.1


@dataclass(frozen=True)
class Segmenter:
    """An entry of `SEGMENTERS`."""

    script: re.Pattern[str]
    split: Callable[[str], list[str]]

    def cuts(self, text: str) -> Iterator[int]:
        """Positions in `text` at which a word of the script begins or ends, ascending, excluding 0 and the end."""
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
        """Share of the characters of `text`, without white space, that belong to the script."""
        covered = sum(run.end() - run.start() for run in self.script.finditer(text))
        return covered / max(1, sum(map(len, text.split()))) if covered else 0.0


@lru_cache(maxsize=1 << 16)
def _word_starts(split: Callable[[str], list[str]], run: str) -> tuple[int, ...]:
    # Cached because more than half of the runs of a text are repeated.
    return tuple(accumulate(map(len, split(run)), initial=0))[:-1]


def _thai_words(run: str) -> list[str]:
    """Dictionary words by maximal matching on Thai character clusters (pythainlp's newmm)."""
    # Imported on demand: loading the dictionary takes half a second.
    with extras():
        from pythainlp.tokenize.newmm import segment

    words: list[str] = segment(run)
    return words


#: Language -> segmenter. Thai: the assigned characters of the block U+0E00, including digits and the baht sign.
SEGMENTERS: Final[dict[str, Segmenter]] = {"thai": Segmenter(script=re.compile("[\u0e01-\u0e5b]+"), split=_thai_words)}


class Segmentation:
    """Selects the segmenter of a text. `name`: a key of `SEGMENTERS`; `none`; or `auto`, the segmenter whose script has
    at least a tenth of the characters of the text.

    Raises:
        ValueError: the name is unknown.
    """

    def __init__(self, name: str = "auto") -> None:
        if name not in ("auto", "none", *SEGMENTERS):
            raise ValueError(f"unknown segmenter {name!r}; known: auto, none, {', '.join(SEGMENTERS)}")
        self.name = name

    def choose(self, text: str) -> Segmenter | None:
        """The segmenter of `text`; None if words are separated by spaces."""
        if self.name == "none" or text.isascii():
            return None
        if self.name != "auto":
            return SEGMENTERS[self.name]
        return next((segmenter for segmenter in SEGMENTERS.values() if segmenter.share(text) >= AUTO_SHARE), None)

    def spaced(self, text: str, separator: str = " ") -> str:
        """`text` with a separator inserted between adjacent words."""
        return self.spaced_with_insertions(text, separator)[0]

    def spaced_with_insertions(self, text: str, separator: str = " ") -> tuple[str, list[int]]:
        """`text` with separators, and their positions in the result, ascending."""
        segmenter = self.choose(text)
        return (text, []) if segmenter is None else insert_spaces(text, segmenter, separator)


def insert_spaces(text: str, segmenter: Segmenter, separator: str = " ") -> tuple[str, list[int]]:
    """`text` split by one segmenter; result as of `Segmentation.spaced_with_insertions`."""
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
