"""Answers by the overlap of words alone: the sliding window of Richardson, Burges and Renshaw 2013 (MCTest, section 4)
over spans, as the SQuAD paper used it (Rajpurkar et al. 2016, section 5.1).

Of the candidates those stay whose sentence, the candidate aside, shares most words and word pairs with the question;
of these that one wins for which

    max_j sum_{i = 1..|S|} IC(P_{j+i}) [P_{j+i} in S]  -  least distance of the candidate to a word of the question

is highest: P are the words of the context, S those of question and candidate, IC(w) = log(1 + 1 / count of w in P), and
a distance counts as share of the context's words. Rajpurkar et al. took the constituents of a parse as candidates. Here
they are the runs of words between two words that any text holds, or punctuation: names, numbers, noun phrases.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from components.baselines.base import Data, Predictions, Systems
from components.task_models.span_head import NEVER, apply_threshold, best_threshold
from components.tasks.data import Answer, Fields
from components.tokenization.segmenters import Segmentation

#: Words of a candidate at most; of longer runs the last ones, where the head of an English phrase stands.
MOST_WORDS: Final = 8
#: A word that stands in so large a share of the contexts says nothing, if there are as many contexts as this.
COMMON: Final = 0.1
LEAST_CONTEXTS: Final = 100
#: Scores that differ by less are equal.
ROUNDING: Final = 1e-9
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u3011\u0e2f\u0e5a\u0e5b"
_WORD = re.compile(rf"[^\s{_PUNCTUATION}]+|[{_PUNCTUATION}]")
_MARK = re.compile(rf"[{_PUNCTUATION}]")
_ENDS = frozenset(".!?\u3002")


@dataclass(frozen=True)
class Words:
    """A text's words and punctuation marks.

    Attributes:
        words: in lower case.
        spans: (P, 2) characters of each.
        sentences: (P,) number of the sentence of each.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    sentences: list[int]


def words_of(text: str, segmentation: Segmentation) -> Words:
    """The words of a text; languages without spaces are segmented."""
    spaced, inserted = segmentation.spaced_with_insertions(text)
    found = list(_WORD.finditer(spaced))
    starts = np.asarray([match.start() for match in found], dtype=np.int64)
    ends = np.asarray([match.end() for match in found], dtype=np.int64)
    # A position moves back by the spaces that were put in before it.
    starts, ends = (places - np.searchsorted(np.asarray(inserted, dtype=np.int64), places) for places in (starts, ends))
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    sentence, sentences = 0, []
    for place, match in enumerate(found):
        sentences.append(sentence)
        following = text[spans[place][1] : spans[place][1] + 1]
        # "3.5" and "U.S." do not end a sentence in the middle.
        if match[0] in _ENDS and (not following or following.isspace()):
            sentence += 1
    return Words([match[0].lower() for match in found], spans, sentences)


class SlidingWindow:
    """The baseline; `common` are the words that end a candidate, the usual English ones and those of the contexts.

    Args:
        contexts: of the training rows.
    """

    def __init__(self, contexts: Iterable[str]) -> None:
        self.segmentation = Segmentation("auto")
        distinct = set(contexts)
        counts = Counter(word for text in distinct for word in set(words_of(text, self.segmentation).words))
        frequent = {word for word, count in counts.items() if count > COMMON * len(distinct)}
        self.common = ENGLISH_STOP_WORDS | (frequent if len(distinct) >= LEAST_CONTEXTS else set())
        self.threshold = NEVER

    def fit(self, fields: Sequence[Fields], score: Callable[[list[Answer]], NDArray[np.float64]]) -> None:
        """Choose on dev from which score on a question is answered at all.

        Args:
            fields: of dev.
            score: answers for dev -> (N,) the deciding score of each.
        """
        self.threshold = NEVER
        raw = np.stack(self.answers(fields))
        refused = [np.asarray([0, 0, *row[2:]], dtype=np.float32) for row in raw]
        self.threshold = best_threshold(raw[:, 2].astype(np.float64), score(list(raw)), score(refused))

    def answers(self, fields: Sequence[Fields]) -> list[Answer]:
        """[start, end, score, threshold] of each question; start == end where the score is below the threshold."""
        contexts = {text: words_of(text, self.segmentation) for text in dict.fromkeys(text for _, text in fields)}
        found = [
            (
                *best_candidate(words_of(question, self.segmentation).words, contexts[context], self.common),
                self.threshold,
            )
            for question, context in fields
        ]
        return apply_threshold(np.asarray(found, dtype=np.float32).reshape(-1, 4))


def best_candidate(question: Sequence[str], context: Words, common: frozenset[str]) -> tuple[int, int, float]:
    """First character, character behind the last, and score of the best candidate; 0, 0, 0 where there is none."""
    asked = {word for word in question if not _MARK.fullmatch(word)}
    pairs = set(zip(question[:-1], question[1:], strict=True))
    candidates = [(a, b) for a, b in candidates_of(context, common) if not asked.issuperset(context.words[a:b])]
    if not candidates:
        return 0, 0, 0.0
    overlap = _Overlap(context, asked, pairs)
    shared = [overlap(a, b) for a, b in candidates]
    most = max(shared)
    left = [candidate for candidate, found in zip(candidates, shared, strict=True) if found == most]
    windows = _Windows(context, asked)
    near = windows.asked.tolist()
    away = [_distance(a, b, near, len(context.words)) for a, b in left]
    bounds = [windows.bound(a, b) - distance for (a, b), distance in zip(left, away, strict=True)]
    best, first = -np.inf, len(left)
    # Few windows have to be looked at where those that may be best come first.
    for place in sorted(range(len(left)), key=lambda place: (-bounds[place], place)):
        if bounds[place] < best - ROUNDING:
            break
        score = windows(*left[place]) - away[place]
        if score > best + ROUNDING:
            best, first = score, place
        elif score > best - ROUNDING:
            # The first of equals.
            first = min(first, place)
    a, b = left[first]
    return context.spans[a][0], context.spans[b - 1][1], float(most + best)


def candidates_of(context: Words, common: frozenset[str]) -> list[tuple[int, int]]:
    """Runs of words of one sentence between common words and marks, as places (first, last + 1)."""
    runs: list[tuple[int, int]] = []
    begin = 0
    for place in range(len(context.words) + 1):
        over = place == len(context.words)
        ends = over or context.words[place] in common or _MARK.fullmatch(context.words[place]) is not None
        if ends or (place > begin and context.sentences[place] != context.sentences[place - 1]):
            if place > begin:
                runs.append((max(begin, place - MOST_WORDS), place))
            begin = place + 1 if ends else place
    return runs


class _Overlap:
    """How many different words and word pairs of the question a candidate's sentence holds without the candidate; each
    sentence is counted once, whatever candidates it has."""

    def __init__(self, context: Words, asked: set[str], pairs: set[tuple[str, str]]) -> None:
        words, self.sentences = context.words, context.sentences
        self.words = [word if word in asked else None for word in words]
        self.pairs = [
            pair if pair in pairs and one == other else None
            for pair, one, other in zip(pairwise(words), self.sentences, self.sentences[1:], strict=False)
        ]
        self.held: dict[int, Counter[str | tuple[str, str]]] = defaultdict(Counter)
        for found in (self.words, self.pairs):
            for key, sentence in zip(found, self.sentences, strict=False):
                if key is not None:
                    self.held[sentence][key] += 1

    def __call__(self, a: int, b: int) -> int:
        held = self.held[self.sentences[a]]
        # Its words go, and the pairs that one of them belongs to.
        own = Counter(key for key in (*self.words[a:b], *self.pairs[max(a - 1, 0) : b]) if key is not None)
        return len(held) - sum(held[key] == count for key, count in own.items())


class _Windows:
    """The window in which most is predictions of question and candidate.

    Attributes:
        asked: places of the question's words.
    """

    def __init__(self, context: Words, asked: set[str]) -> None:
        self.words = context.words
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, word in enumerate(context.words):
            self.places[word].append(place)
        self.weights = np.asarray([np.log1p(1 / len(self.places[word])) for word in context.words])
        self.question = asked
        found = [place for word in asked & self.places.keys() for place in self.places[word]]
        self.asked = np.asarray(sorted(found), dtype=np.int64)
        weighted = np.zeros(len(self.weights))
        weighted[self.asked] = self.weights[self.asked]
        self._sums = np.concatenate([[0.0], np.cumsum(weighted)])
        self._found: dict[frozenset[str], float] = {}
        self._without: dict[int, float] = {}
        self._most: dict[str, float] = {}

    def bound(self, a: int, b: int) -> float:
        """What no window of a candidate exceeds: the best one without its words, and the most that these can add."""
        own = set(self.words[a:b]) - self.question
        size = min(len(self.question) + len(own), len(self.weights))
        if size not in self._without:
            self._without[size] = float((self._sums[size:] - self._sums[:-size]).max())
        return self._without[size] + sum(map(self._adds, own))

    def _adds(self, word: str) -> float:
        """The weight of a word, as often as it stands in one window of the largest size."""
        if word not in self._most:
            places = np.asarray(self.places[word])
            behind = np.searchsorted(places, places + len(self.question) + MOST_WORDS)
            self._most[word] = float((behind - np.arange(len(places))).max() * self.weights[places[0]])
        return self._most[word]

    def __call__(self, a: int, b: int) -> float:
        own = frozenset(self.words[a:b])
        if own not in self._found:
            inside = np.zeros(len(self.weights), dtype=bool)
            inside[self.asked] = True
            inside[[place for word in own for place in self.places[word]]] = True
            size = min(len(self.question | own), len(self.weights))
            sums = np.concatenate([[0.0], np.cumsum(self.weights * inside)])
            self._found[own] = float((sums[size:] - sums[:-size]).max())
        return self._found[own]


def _distance(a: int, b: int, asked: Sequence[int], words: int) -> float:
    """Of the candidate to the nearest of the question's words (places, ascending) outside of it, as share of the
    context; 1 without one."""
    before, behind = bisect_left(asked, a), bisect_left(asked, b)
    apart = [a - asked[before - 1]] if before else []
    apart += [asked[behind] - (b - 1)] if behind < len(asked) else []
    return min(apart) / words if apart else 1.0


def by_overlap(data: Data) -> Predictions:
    """The sliding window; how common words are is counted in all contexts of the train split, drawn or not."""
    baseline = SlidingWindow(context for _, context in data.inputs)
    dev, scoring = data.dev, data.scoring

    def of_each(found: list[Answer]) -> NDArray[np.float64]:
        return scoring.scores(scoring.statistics(dev.fields, dev.targets, found).toarray())[scoring.main]

    baseline.fit(dev.fields, of_each)
    answers = {"dev": baseline.answers(dev.fields), "test": baseline.answers(data.test.fields)}
    return Predictions(answers, {"threshold": baseline.threshold})


QUESTIONS = Systems({"sliding-window": by_overlap})
