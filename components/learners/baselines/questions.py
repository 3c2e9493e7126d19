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

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from components.data.formats import words as text_words
from components.data.scoring.answers import NEVER, apply_threshold, best_threshold
from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Learner, Rows, per_row

#: Maximum number of words of a candidate; a longer run is reduced to its last words, which include the head of
#: an English noun phrase.
MOST_WORDS: Final = 8
#: Words in more than this share of the contexts are stop words, if there are at least `LEAST_CONTEXTS` contexts.
COMMON: Final = 0.1
LEAST_CONTEXTS: Final = 100
#: Scores with a smaller difference are equal.
ROUNDING: Final = 1e-9


class Words(NamedTuple):
    """A text's P words and punctuation marks, lower case, their character offsets, end exclusive, and their
    sentences by index."""

    words: list[str]
    spans: list[tuple[int, int]]
    sentences: list[int]


def words_of(text: str) -> Words:
    """Words and punctuation marks of a text; languages without spaces are segmented."""
    spans = text_words.words_of(text)
    words = [unicodedata.normalize("NFC", text[start:end]).lower() for start, end in spans]
    # The points within "3.5" and "U.S." end no sentence.
    ends = [
        word in ".!?\u3002" and not text[end : end + 1].strip() for word, (_, end) in zip(words, spans, strict=True)
    ]
    return Words(words, spans, list(accumulate(ends, initial=0))[:-1])


def is_mark(word: str) -> bool:
    return not text_words.words(word)


def common_words(contexts: Iterable[str]) -> frozenset[str]:
    """Frequent words and English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    distinct = set(contexts)
    counts = Counter(chain.from_iterable(set(words_of(text).words) for text in distinct))
    frequent = {word for word, count in counts.items() if count > COMMON * len(distinct)}
    return ENGLISH_STOP_WORDS | (frequent if len(distinct) >= LEAST_CONTEXTS else set())


@dataclass(frozen=True)
class SlidingWindow:
    """The baseline of question answering; the words `common` delimit candidates."""

    common: frozenset[str]
    threshold: float = NEVER

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """[start, end, score, threshold] of each question; start == end if the score is below the threshold."""
        contexts = {text: words_of(text) for text in dict.fromkeys(text for _, text in rows)}
        best = [best_candidate(words_of(question).words, contexts[text], self.common) for question, text in rows]
        result = np.asarray([(*answer, self.threshold) for answer in best], dtype=np.float32)
        return apply_threshold(result.reshape(-1, 4))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        return {"form": "window", "common": sorted(self.common)}, {"threshold": np.asarray([self.threshold])}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        return cls(frozenset(described["common"]), float(arrays["threshold"][0]))


def best_candidate(question: Sequence[str], context: Words, common: frozenset[str]) -> tuple[int, int, float]:
    """Character offsets (end exclusive) and score of the best candidate; 0, 0, 0 if there is none."""
    words, sentences = context.words, np.asarray(context.sentences)
    query, pairs = {word for word in question if not is_mark(word)}, set(pairwise(question))
    shared: dict[tuple[int, int], int] = {}
    for a, b in candidates_of(context, common):
        if not query.issuperset(words[a:b]):
            begin, end = np.searchsorted(sentences, [sentences[a], sentences[a] + 1])
            parts = words[begin:a], words[b:end]
            of_pairs = pairs.intersection(chain(*map(pairwise, parts)))
            shared[a, b] = len(query.intersection(chain(*parts))) + len(of_pairs)
    if not shared:
        return 0, 0, 0.0
    most, counts = max(shared.values()), Counter(words)
    weights = np.log1p([1 / counts[word] for word in words])
    places = np.flatnonzero([word in query for word in words])
    best, first = -np.inf, (0, 0)
    for (a, b), number in shared.items():
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
    inside = [word not in common and not is_mark(word) for word in context.words]
    runs: list[tuple[int, int]] = []
    for index in np.flatnonzero(inside).tolist():
        start, end = runs[-1] if runs else (0, -1)
        joins = end == index and context.sentences[start] == context.sentences[index]
        runs[len(runs) - joins :] = [(start if joins else index, index + 1)]
    return [(max(start, end - MOST_WORDS), end) for start, end in runs]


def by_overlap(training: Rows) -> list[Candidate]:
    """The sliding window; stop words are counted in all contexts of the train split. Labels decide the threshold
    only, the minimum score of an answer."""
    window, rows = SlidingWindow(common_words(context for _, context in training.texts)), training.dev
    rows = rows if training.folds is None else training.labelled
    score, raw = per_row(training.scoring, rows), np.stack(window.answers(rows.fields))
    refused = raw * np.asarray([0, 0, 1, 1], dtype=np.float32)
    threshold = best_threshold(raw[:, 2].astype(np.float64), score(list(raw)), score(list(refused)))
    return [Candidate.of(replace(window, threshold=threshold), {"threshold": threshold})]


QUESTIONS: Final[Mapping[str, Learner]] = {"sliding-window": by_overlap}
