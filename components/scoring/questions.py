"""Scores of extractive question answering, by the rules of SQuAD (Rajpurkar et al. 2016, 2018).

Fields are (question, context). Targets are [start, end, start, end, ...]: character offsets in the context, end
exclusive, of every reference answer; an empty vector: the context does not answer. Answers begin with [start, end];
start == end says that there is no answer.

Answers are compared without case, punctuation, articles and surplus white space. Exact match and F1 (of the words that
two answers share, each as often as it comes) are the best over the references. Where the question has no answer, or
none is given, both are 1 if the other side has none either, otherwise 0 (version 2.0).

Thai and Chinese do not put spaces between words, so that a word by that rule is a phrase or a sentence. The two scores
of characters leave out all white space and compare character by character (Cui et al. 2019, CMRC 2018); they are given
for every language.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.scoring.base import Floats, Inputs, Scoring, Vectors, ratio

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: The parts that are scored apart: questions that the context answers, and those that it does not.
PARTS = ("answerable", "unanswerable")


@dataclass(frozen=True)
class Questions(Scoring):
    """The K = 10 columns: the four scores and a 1, of the answerable questions and of the others."""

    names = ("f1", "exact_match", "f1_characters", "exact_match_characters")
    averages = False
    constant_name = "no answer"

    @property
    def width(self) -> int:
        """K."""
        return 2 * (len(self.names) + 1)

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        """N rows -> (N, K)."""
        found = np.zeros((len(targets), self.width))
        half = self.width // 2
        for row, ((_, context), target, answer) in enumerate(zip(fields, targets, answers, strict=True)):
            places = target.astype(np.int64).reshape(-1, 2)
            references = [context[start:end] for start, end in places]
            start, end = (int(place) for place in answer[:2])
            first = 0 if references else half
            found[row, first : first + half] = (*answer_scores(context[start:end], references), 1)
        return sparse.csr_array(found)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """The means over all questions."""
        both = sums[..., : self.width // 2] + sums[..., self.width // 2 :]
        return {name: both[..., place] / both[..., -1] for place, name in enumerate(self.names)}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """No answer."""
        return [np.zeros(4, dtype=np.float32)] * len(targets)

    def classes(self, sums: Floats) -> dict[str, dict[str, float]]:
        """The scores of the answerable questions and of the others, where there are any."""
        found = {}
        for part, values in zip(PARTS, np.split(sums, 2), strict=True):
            if values[-1]:
                means = {name: float(values[place] / values[-1]) for place, name in enumerate(self.names)}
                found[part] = {**means, "rows": float(values[-1])}
        return found

    def class_f1(self, sums: Floats) -> dict[str, Floats]:
        """F1 of the answerable questions and of the others."""
        halves = np.split(sums, 2, axis=-1)
        return {part: ratio(half[..., 0], half[..., -1]) for part, half in zip(PARTS, halves, strict=True)}


def answer_scores(answer: str, references: Sequence[str]) -> tuple[float, float, float, float]:
    """F1, exact match, and both of characters, of an answer ("" for none): the best over the references (none: the
    question has no answer). A reference of nothing but articles and punctuation is none."""
    scores = [_against(answer, reference) for reference in filter(normalised, references)] or [_against(answer, "")]
    f1, exact, f1_characters, exact_characters = (max(values) for values in zip(*scores, strict=True))
    return f1, exact, f1_characters, exact_characters


@lru_cache(maxsize=65536)
def normalised(answer: str) -> str:
    """Lower case, without punctuation, articles and surplus white space, in the order of SQuAD's own script."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def _against(answer: str, reference: str) -> tuple[float, float, float, float]:
    ours, theirs = normalised(answer), normalised(reference)
    our_characters, their_characters = ours.replace(" ", ""), theirs.replace(" ", "")
    return (
        _overlap(ours.split(), theirs.split()),
        float(ours == theirs),
        _overlap(our_characters, their_characters),
        float(our_characters == their_characters),
    )


def _overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """F1 of two bags; without an element on a side, whether both are empty."""
    if not ours or not theirs:
        return float(not ours and not theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
