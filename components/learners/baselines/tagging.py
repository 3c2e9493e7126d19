"""Baselines for tagging: the most frequent tag of each word, and a CRF on features of the words.

The linear-chain CRF (Lafferty et al. 2001) has the features of taggers before word vectors (Ratinov and Roth 2009;
Finkel et al. 2005): the word, its shape, prefixes and suffixes, and the same of its neighbours. Its weights, W (F, C)
for the features, A (C, C) for the transitions, a and b (C,) for the first and the last tag, minimise

    -sum log p(tags | words) + penalty / 2 * (|W|^2 + |A|^2 + |a|^2 + |b|^2)

by L-BFGS, from the strongest to the weakest penalty, each initialised with the weights of the previous one.

Shapes: N words of R sentences, F features, C tags.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.special import logsumexp

from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Answer, Fields, Split
from components.learners.base import Candidate, Rows
from components.learners.baselines.base import Function, Systems

#: Candidates for the strength of the L2 penalty, in order.
PENALTIES: Final = (3.0, 1.0, 0.3, 0.1)
#: Maximum number of L-BFGS iterations per penalty.
STEPS: Final = 60
#: Maximum length of prefix and suffix features, in characters.
AFFIX: Final = 4
#: Score of an illegal transition in decoding.
ILLEGAL: Final = -1e9

Floats = NDArray[np.float64]


def most_frequent_tags(train: Split, fields: Sequence[Fields]) -> list[Answer]:
    """The most frequent tag of each word in train (the lowest index at a tie), or of all words for unseen ones."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    overall: Counter[int] = Counter()
    for words, tags in zip(train.fields, train.targets, strict=True):
        for word, tag in zip(words, tags.astype(int).tolist(), strict=True):
            counts[word][tag] += 1
            overall[tag] += 1
    best = {word: _most(result) for word, result in counts.items()}
    usual = _most(overall)
    return [np.asarray([best.get(word, usual) for word in words], dtype=np.float32) for words in fields]


def _most(counts: Counter[int]) -> int:
    return min(counts, key=lambda tag: (-counts[tag], tag))


@dataclass
class FeatureTagger:
    """The CRF on features.

    Attributes:
        labels: C names of tags; they determine the legal transitions.
        numbers: F names of features -> their index.
        weights, transition, start, end: W (F, C), A (C, C), a (C,), b (C,).
    """

    labels: Sequence[str]
    numbers: Mapping[str, int]
    weights: Floats
    transition: Floats
    start: Floats
    end: Floats

    @classmethod
    def fit(cls, train: Split, labels: Sequence[str], *, penalties: Sequence[float] = PENALTIES) -> Iterator[Self]:
        """Train on R labelled sentences; yields the tagger of each penalty, in order."""
        result = [_features(words) for words in train.fields]
        present = sorted({name for sentence in result for names in sentence for name in names})
        numbers = {name: index for index, name in enumerate(present)}
        problem = _Likelihood(
            _matrix(result, numbers), [target.astype(np.int64) for target in train.targets], len(labels)
        )
        point = np.zeros(problem.size)
        for penalty in penalties:
            point = optimize.minimize(
                problem.value_and_gradient,
                point,
                args=(penalty,),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": STEPS, "maxcor": 6},
            ).x
            yield cls(labels, numbers, *problem.parts(point))

    def answers(self, fields: Sequence[Fields]) -> list[Answer]:
        """Tag indices of each sentence's words: the best legal sequence (Viterbi 1967), or one with the fewest illegal
        transitions if none of its length is legal."""
        legal = legal_transitions(self.labels)
        start, step, end = (
            scores + np.where(allowed, 0, ILLEGAL)
            for scores, allowed in zip((self.start, self.transition, self.end), legal, strict=True)
        )
        best_NC = np.asarray(_matrix([_features(words) for words in fields], self.numbers) @ self.weights)
        order = _Order([len(words) for words in fields])
        best_NC[order.first] += start
        from_NC = np.zeros(best_NC.shape, dtype=np.int64)
        for words in order.following:
            # [n, j, i]: from i to j.
            scores = best_NC[words - 1][:, None, :] + step.T
            from_NC[words] = scores.argmax(2)
            best_NC[words] += scores.max(2)
        tags_N = np.zeros(len(best_NC), dtype=np.int64)
        tags_N[order.last] = (best_NC[order.last] + end).argmax(1)
        for words in reversed(order.following):
            tags_N[words - 1] = from_NC[words, tags_N[words]]
        return np.split(tags_N.astype(np.float32), order.ends[:-1]) if fields else []

    def dump(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        arrays = {"weights": self.weights, "transition": self.transition, "start": self.start, "end": self.end}
        return {"form": "crf", "features": list(self.numbers)}, arrays

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, Floats], labels: Sequence[str]) -> Self:
        numbers = {name: index for index, name in enumerate(described["features"])}
        tags, parts = len(labels), tuple(arrays[name] for name in ("weights", "transition", "start", "end"))
        if [part.shape for part in parts] != [(len(numbers), tags), (tags, tags), (tags,), (tags,)]:
            raise ValueError(f"arrays that do not fit {len(numbers)} features and {tags} tags")
        return cls(labels, numbers, *parts)


def _matrix(sentences: Sequence[list[list[str]]], numbers: Mapping[str, int]) -> sparse.csr_array:
    """(N, F): the features of the words of all sentences."""
    rows = [[numbers[name] for name in names if name in numbers] for sentence in sentences for names in sentence]
    counts = np.cumsum([0, *map(len, rows)])
    columns = np.fromiter((column for row in rows for column in row), dtype=np.int64, count=int(counts[-1]))
    return sparse.csr_array((np.ones(len(columns)), columns, counts), shape=(len(rows), len(numbers)))


class _Order:
    """The order in which the N words of R sentences are read: all first words, all second words and so on.

    Attributes:
        ends: (R,) number of the word after each sentence.
        first, last: words of the sentences that are not empty.
        following: of each position but the first, the words, of the longest sentence first.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        sizes = np.asarray(lengths, dtype=np.int64)
        self.ends = np.cumsum(sizes)
        longest = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        starts, sizes = (self.ends - sizes)[longest], sizes[longest]
        self.first, self.last = starts, starts + sizes - 1
        self.following = [starts[sizes > place] + place for place in range(1, sizes.max(initial=1))]


class _Likelihood:
    """The objective on the training sentences, as a function of all weights in one vector: W, A, a, b."""

    def __init__(self, x_NF: sparse.csr_array, targets: Sequence[NDArray[np.int64]], tags: int) -> None:
        self.x_NF, self.turned_FN = x_NF, x_NF.T.tocsr()
        self.order = order = _Order([len(target) for target in targets])
        self.words = np.concatenate([*order.following, np.zeros(0, dtype=np.int64)])
        self.row_N = np.repeat(np.arange(len(targets)), [len(target) for target in targets])
        self.gold_NC = np.eye(tags)[np.concatenate(targets)]
        self.shapes = [(x_NF.shape[1], tags), (tags, tags), (tags,), (tags,)]
        self.size = sum(map(math.prod, self.shapes))

    def parts(self, point: Floats) -> list[Floats]:
        """W, A, a and b."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(point, ends[:-1]), self.shapes, strict=True)]

    def value_and_gradient(self, point: Floats, penalty: float) -> tuple[float, Floats]:
        weights, step, start, end = self.parts(point)
        order, words, gold_NC = self.order, self.words, self.gold_NC
        x_NC = np.asarray(self.x_NF @ weights)
        highest = step.max()
        factors = np.exp(step - highest)
        # The forward and the backward algorithm in the log domain, for all sentences at once.
        ahead_NC, back_NC = x_NC.copy(), np.empty_like(x_NC)
        ahead_NC[order.first] += start
        back_NC[order.last] = end
        for place in order.following:
            ahead_NC[place] += _log_product(ahead_NC[place - 1], factors) + highest
        for place in reversed(order.following):
            back_NC[place - 1] = _log_product(x_NC[place] + back_NC[place], factors.T) + highest
        log_R = np.zeros(len(order.ends))
        log_R[self.row_N[order.last]] = logsumexp(ahead_NC[order.last] + end, axis=1)
        share_NC = np.exp(ahead_NC + back_NC - log_R[self.row_N][:, None])
        before_MC, after_MC = ahead_NC[words - 1], x_NC[words] + back_NC[words]
        most_M1, other_M1 = before_MC.max(1, keepdims=True), after_MC.max(1, keepdims=True)
        scale_M1 = np.exp(most_M1 + other_M1 + highest - log_R[self.row_N[words]][:, None])
        pairs_CC = factors * ((np.exp(before_MC - most_M1) * scale_M1).T @ np.exp(after_MC - other_M1))
        gold_CC = gold_NC[words - 1].T @ gold_NC[words]
        gold_start, gold_end = gold_NC[order.first].sum(0), gold_NC[order.last].sum(0)
        score = (x_NC * gold_NC).sum() + (step * gold_CC).sum() + start @ gold_start + end @ gold_end
        pieces = [
            self.turned_FN @ (share_NC - gold_NC),
            pairs_CC - gold_CC,
            share_NC[order.first].sum(0) - gold_start,
            share_NC[order.last].sum(0) - gold_end,
        ]
        gradient = np.concatenate([piece.ravel() for piece in pieces]) + penalty * point
        return float(log_R.sum() - score) + penalty / 2 * float(point @ point), gradient


def _log_product(scores_BC: Floats, factors_CC: Floats) -> Floats:
    """log(exp(scores) @ factors); the largest score is factored out, so that no exponential overflows."""
    most_B1 = scores_BC.max(1, keepdims=True)
    sums = np.exp(scores_BC - most_B1) @ factors_CC
    return np.asarray(np.log(np.maximum(sums, np.finfo(np.float64).tiny)) + most_B1)


def _features(words: Sequence[str]) -> list[list[str]]:
    features = [_of_word(word) for word in words]
    near = [_of_neighbour(word) for word in words]
    edge = ("edge",)
    result = []
    for index, names in enumerate(features):
        described = list(names)
        for distance in (-2, -1, 1, 2):
            other = index + distance
            seen = near[other] if 0 <= other < len(words) else edge
            # At distance 2 only the word itself.
            described += [f"{distance}:{name}" for name in (seen if abs(distance) == 1 else seen[:1])]
        result.append(described)
    return result


@lru_cache(maxsize=1 << 16)
def _of_word(word: str) -> tuple[str, ...]:
    lower = word.lower()
    most = min(AFFIX, len(lower))
    return (
        "bias",
        f"word={word}",
        f"lower={lower}",
        *_of_neighbour(word)[1:],
        *(f"begins={lower[:size]}" for size in range(1, most + 1)),
        *(f"ends={lower[-size:]}" for size in range(1, most + 1)),
    )


@lru_cache(maxsize=1 << 16)
def _of_neighbour(word: str) -> tuple[str, ...]:
    lower = word.lower()
    full = "".join(map(_kind, word))
    # Runs are collapsed: "Xxxxx" becomes "Xx".
    short = "".join(mark for index, mark in enumerate(full) if full[index - 1 : index] != mark)
    return f"near={lower}", f"shape={full[:8]}", f"short={short}", f"suffix={lower[-3:]}"


def _kind(character: str) -> str:
    if character.isdigit():
        return "9"
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return character


def usual_tags(training: Rows) -> list[Candidate]:
    """The most frequent tag of each word in the training rows."""
    return [Candidate.of(Function(partial(most_frequent_tags, training.labelled)))]


def by_features(training: Rows) -> list[Candidate]:
    result = FeatureTagger.fit(training.labelled, training.labels)
    return [
        Candidate.of(tagger, {"penalty": penalty, "features": len(tagger.weights)})
        for penalty, tagger in zip(PENALTIES, result, strict=True)
    ]


TAGGING = Systems({"word-features-crf": by_features}, constant=usual_tags)
