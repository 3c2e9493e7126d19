"""Metrics of extractive question answering, as defined by SQuAD (Rajpurkar et al. 2016, 2018).

Fields are (question, context). Targets are [start, end, start, end, ...]: character offsets in the context, end
exclusive, of every reference answer; empty if the question is unanswerable. Answers begin with [start, end]; start ==
end means no answer.

Answers are normalised: lower case, no punctuation, no articles, single spaces. Exact match and F1 of the bags of words
are maxima over the references. If the question is unanswerable or no answer is predicted, both metrics are 1 if
both are the case, else 0 (SQuAD 2.0).

Thai and Chinese are written without spaces between words, so a word by this definition is a phrase or a sentence. The
two character metrics remove white space and compare characters (Cui et al. 2019, CMRC 2018); they are computed for
every language.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import Classes, Fields, Floats, Inputs, Judged, Scoring, Vector, Vectors, ratio

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Classes of questions.
PARTS = ("answerable", "unanswerable")


@dataclass(frozen=True)
class Questions(Scoring):
    """K = 10 sums: the four metrics and the number of rows, of answerable and of unanswerable questions."""

    names = ("f1", "exact_match", "f1_characters", "exact_match_characters")
    averages = False
    score_name, outcomes = "margin of the answer", ("no answer", "answer")
    constant_name = "no answer"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return " / ".join(sorted(_texts(fields, target))) or "no answer"

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        predicted = fields[1][int(answer[0]) : int(answer[1])]
        if predicted in (_texts(fields, target) or {""}):
            return None
        # The margin of the span over no answer, as a probability.
        margin = float(np.clip(answer[2] - answer[3], -30, 30))
        return self.compared(fields, target, answer[:2], 1 / (1 + np.exp(-margin if predicted else margin)))

    def described(self, answer: Vector) -> tuple[int, float]:
        # The scores of an answer and of no answer.
        return int(answer[0] != answer[1]), float(np.clip(answer[2] - answer[3], -1e3, 1e3))

    def named(self, target: Vector) -> tuple[str, ...]:
        return (PARTS[not len(target)],)

    @property
    def width(self) -> int:
        return 2 * (len(self.names) + 1)

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        metrics = np.zeros((len(targets), self.width))
        half = self.width // 2
        for row, ((_, context), target, answer) in enumerate(zip(fields, targets, answers, strict=True)):
            references = [context[start:end] for start, end in target.astype(np.int64).reshape(-1, 2)]
            start, end = (int(offset) for offset in answer[:2])
            first = 0 if references else half
            metrics[row, first : first + half] = (*answer_scores(context[start:end], references), 1)
        return sparse.csr_array(metrics)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        both = sums[..., : self.width // 2] + sums[..., self.width // 2 :]
        return {name: both[..., index] / both[..., -1] for index, name in enumerate(self.names)}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The prediction that no question has an answer."""
        return [np.zeros(4, dtype=np.float32)] * len(targets)

    def classes(self, sums: Floats) -> Classes:
        """The metrics of the two classes of questions, if they occur."""
        metrics: Classes = {}
        for part, values in zip(PARTS, np.split(sums, 2), strict=True):
            if values[-1]:
                means = {name: float(values[index] / values[-1]) for index, name in enumerate(self.names)}
                metrics[part] = {**means, "rows": float(values[-1])}
        return metrics

    def class_f1(self, sums: Floats) -> dict[str, Floats]:
        """F1 of the two classes of questions."""
        halves = np.split(sums, 2, axis=-1)
        return {part: ratio(half[..., 0], half[..., -1]) for part, half in zip(PARTS, halves, strict=True)}


def _texts(fields: Fields, target: Vector) -> set[str]:
    """The answers of a target."""
    return {fields[1][start:end] for start, end in target.astype(np.int64).reshape(-1, 2)}


def answer_scores(answer: str, references: Sequence[str]) -> tuple[float, float, float, float]:
    """F1, exact match, and both on characters: maxima over the references that are not empty after normalisation.

    An empty answer is no answer; without references the question is unanswerable.
    """
    scores = [_against(answer, reference) for reference in filter(normalised, references)] or [_against(answer, "")]
    f1, exact, f1_characters, exact_characters = (max(values) for values in zip(*scores, strict=True))
    return f1, exact, f1_characters, exact_characters


@lru_cache(maxsize=65536)
def normalised(answer: str) -> str:
    """Normalised text: the steps of SQuAD's evaluation script, in the same order."""
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
    """F1 of two bags; if one is empty, 1 if both are, else 0."""
    if not ours or not theirs:
        return float(not ours and not theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
