"""Question answering by word overlap: the sliding window of Richardson, Burges and Renshaw 2013 (MCTest, section 4)
over spans, as in the SQuAD paper (Rajpurkar et al. 2016, section 5.1).

First, the candidates are filtered: only those are kept whose sentence, without the candidate, shares the most words and
word pairs with the question. Of these, the answer maximises

    max_j sum_{i = 1..|S|} IC(P_{j+i}) [P_{j+i} in S]  -  minimum distance of the candidate to a word of the question

P are the words of the context, S the words of question and candidate, IC(w) = log(1 + 1 / count of w in P); distances
are fractions of the context's length. Rajpurkar et al. use the constituents of a parse as candidates. Here a candidate
is a run of words between stop words or punctuation, not all of them words of the question: names, numbers, noun
phrases. The score of an answer is the number of shared words and pairs plus the maximum above.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, Self

import numpy as np
import regex
from numpy.typing import NDArray

from components.data.formats.words import CHARACTER, UNSPACED
from components.data.scoring.answers import NEVER, apply_threshold, best_threshold
from components.data.segmenters import Segmentation
from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Rows, per_row
from components.learners.baselines.base import Systems

#: Maximum number of words of a candidate; a longer run is reduced to its last words, which include the head of
#: an English noun phrase.
MOST_WORDS: Final = 8
#: Words in more than this share of the contexts are stop words, if there are at least `LEAST_CONTEXTS` contexts.
COMMON: Final = 0.1
LEAST_CONTEXTS: Final = 100
#: Scores with a smaller difference are equal.
ROUNDING: Final = 1e-9
_PUNCTUATION = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u3003\u3008-\u3011\u0e2f\u0e5a\u0e5b"
_WORD = regex.compile(rf"{CHARACTER}|[[^\s{_PUNCTUATION}]--{UNSPACED}]++|[{_PUNCTUATION}]", regex.VERSION1)
_MARK = re.compile(rf"[{_PUNCTUATION}]")
_ENDS = frozenset(".!?\u3002")


@dataclass(frozen=True)
class Words:
    """A text's words and punctuation marks.

    Attributes:
        words: P words, lower case.
        spans: P pairs of character offsets, end exclusive.
        sentences: P indices of the word's sentence.
    """

    words: list[str]
    spans: list[tuple[int, int]]
    sentences: list[int]


def words_of(text: str, segmentation: Segmentation) -> Words:
    """Words and punctuation marks of a text; languages without spaces are segmented."""
    spaced, inserted = segmentation.spaced_with_insertions(text)
    result = list(_WORD.finditer(spaced))
    starts = np.asarray([match.start() for match in result], dtype=np.int64)
    ends = np.asarray([match.end() for match in result], dtype=np.int64)
    # Offsets in the original text: without the spaces that were inserted before.
    added = np.asarray(inserted, dtype=np.int64)
    starts, ends = (offsets - np.searchsorted(added, offsets) for offsets in (starts, ends))
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    sentence, sentences = 0, []
    for index, match in enumerate(result):
        sentences.append(sentence)
        following = text[spans[index][1] : spans[index][1] + 1]
        # The points within "3.5" and "U.S." end no sentence.
        if match[0] in _ENDS and (not following or following.isspace()):
            sentence += 1
    return Words([unicodedata.normalize("NFC", match[0]).lower() for match in result], spans, sentences)


class SlidingWindow:
    """The baseline of question answering; the words `common` delimit candidates."""

    def __init__(self, common: frozenset[str], threshold: float = NEVER) -> None:
        self.segmentation = Segmentation("auto")
        self.common, self.threshold = common, threshold

    @classmethod
    def of(cls, contexts: Iterable[str]) -> Self:
        """Without a threshold; frequent words and English stop words are common."""
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        distinct = set(contexts)
        counts = Counter(word for text in distinct for word in set(words_of(text, Segmentation("auto")).words))
        frequent = {word for word, count in counts.items() if count > COMMON * len(distinct)}
        return cls(ENGLISH_STOP_WORDS | (frequent if len(distinct) >= LEAST_CONTEXTS else set()))

    def fit(self, fields: Sequence[Fields], score: Callable[[list[Answer]], NDArray[np.float64]]) -> None:
        """Select the minimum score of an answer; `score`: answers -> (N,) primary metric of each row."""
        self.threshold = NEVER
        raw = np.stack(self.answers(fields))
        refused = [np.asarray([0, 0, *row[2:]], dtype=np.float32) for row in raw]
        self.threshold = best_threshold(raw[:, 2].astype(np.float64), score(list(raw)), score(refused))

    def answers(self, fields: Sequence[Fields]) -> list[Answer]:
        """[start, end, score, threshold] of each question; start == end if the score is below the threshold."""
        contexts = {text: words_of(text, self.segmentation) for text in dict.fromkeys(text for _, text in fields)}
        result = [
            (
                *best_candidate(words_of(question, self.segmentation).words, contexts[context], self.common),
                self.threshold,
            )
            for question, context in fields
        ]
        return apply_threshold(np.asarray(result, dtype=np.float32).reshape(-1, 4))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        return {"form": "window", "common": sorted(self.common)}, {"threshold": np.asarray([self.threshold])}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        return cls(frozenset(described["common"]), float(arrays["threshold"][0]))


def best_candidate(question: Sequence[str], context: Words, common: frozenset[str]) -> tuple[int, int, float]:
    """Character offsets (end exclusive) and score of the best candidate; 0, 0, 0 if there is none."""
    words, query = context.words, {word for word in question if not _MARK.fullmatch(word)}
    pairs, candidates = set(pairwise(question)), candidates_of(context, common)
    candidates = [(a, b) for a, b in candidates if not query.issuperset(words[a:b])]
    if not candidates:
        return 0, 0, 0.0
    shared = [_shared(context, a, b, query, pairs) for a, b in candidates]
    most, counts = max(shared), Counter(words)
    weights = np.log1p([1 / counts[word] for word in words])
    places = np.flatnonzero([word in query for word in words])
    best, first = -np.inf, (0, 0)
    for (a, b), number in zip(candidates, shared, strict=True):
        if number < most:
            continue
        sought = query.union(words[a:b])
        size = min(len(sought), len(words))
        sums = np.cumsum([0.0, *(weights * [word in sought for word in words])])
        # To each word of the question; at most 0 inside of the candidate.
        apart = np.maximum(a - places, places - b + 1)
        distance = min(apart[apart > 0], default=len(words)) / len(words)
        score = (sums[size:] - sums[:-size]).max() - distance
        # At a tie the first candidate.
        if score > best + ROUNDING:
            best, first = score, (a, b)
    return context.spans[first[0]][0], context.spans[first[1] - 1][1], float(most + best)


def candidates_of(context: Words, common: frozenset[str]) -> list[tuple[int, int]]:
    """Runs of words of one sentence between stop words and marks: indices of the words, end exclusive."""
    runs: list[tuple[int, int]] = []
    begin = 0
    for index in range(len(context.words) + 1):
        over = index == len(context.words)
        ends = over or context.words[index] in common or _MARK.fullmatch(context.words[index]) is not None
        if ends or (index > begin and context.sentences[index] != context.sentences[index - 1]):
            if index > begin:
                runs.append((max(begin, index - MOST_WORDS), index))
            begin = index + 1 if ends else index
    return runs


def _shared(context: Words, a: int, b: int, query: set[str], pairs: set[tuple[str, str]]) -> int:
    """Number of distinct words and word pairs of the question in a candidate's sentence, without the candidate."""
    sentence = context.sentences[a]
    begin, end = bisect_left(context.sentences, sentence), bisect_right(context.sentences, sentence)
    parts = context.words[begin:a], context.words[b:end]
    return len(query.intersection(chain(*parts))) + len(pairs.intersection(chain(*map(pairwise, parts))))


def by_overlap(training: Rows) -> list[Candidate]:
    """The sliding window; stop words are counted in all contexts of the train split. Labels decide the threshold
    only."""
    baseline = SlidingWindow.of(context for _, context in training.texts)
    rows = training.dev if training.folds is None else training.labelled
    baseline.fit(rows.fields, per_row(training.scoring, rows))
    return [Candidate.of(baseline, {"threshold": baseline.threshold})]


QUESTIONS = Systems({"sliding-window": by_overlap})
