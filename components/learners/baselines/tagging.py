"""Baselines for tagging: the most frequent tag of each word, and a CRF on features of the words.

The linear-chain CRF (Lafferty et al. 2001) has the features of taggers before word vectors (Ratinov and Roth 2009;
Finkel et al. 2005): the word, its shape, prefixes and suffixes, and the same of its neighbours. Its weights, W (F, C)
for the features, A (C, C) for the transitions, a and b (C,) for the first and the last tag, minimise

    -sum log p(tags | words) + penalty / 2 * (|W|^2 + |A|^2 + |a|^2 + |b|^2)

by L-BFGS, from the strongest to the weakest penalty, each initialised with the weights of the previous one.

Shapes: N words of R sentences, F features, C tags.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, sparse
from torch import Tensor

from components.data.tasks.data import Answer, Fields, Split
from components.data.tasks.selection import Candidate, Training
from components.learners.baselines.base import Function, Systems
from components.learners.task_models.taggers import legal_transitions
from components.models.layers.crf import LinearChainCRF

#: Candidates for the strength of the L2 penalty, in order.
PENALTIES: Final = (3.0, 1.0, 0.3, 0.1)
#: Maximum number of L-BFGS iterations per penalty.
STEPS: Final = 60
#: Maximum length of prefix and suffix features, in characters.
AFFIX: Final = 4
#: Maximum number of words of a batch, padding included.
BATCH_WORDS: Final = 8192

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


class FeatureTagger:
    """The CRF on features.

    Args:
        labels: C names of tags; they determine the legal transitions.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = labels
        self.crf = LinearChainCRF(len(labels), legal=legal_transitions(labels)).double()
        self.weights: Floats = np.zeros((0, len(labels)))
        self._number: dict[str, int] = {}

    def fit(self, train: Split, *, penalties: Sequence[float] = PENALTIES) -> Iterator[tuple[float, FeatureTagger]]:
        """Train on R labelled sentences; yields each penalty, in order, with the tagger that it gives."""
        result = [_features(words) for words in train.fields]
        present = sorted({name for sentence in result for names in sentence for name in names})
        self._number = {name: index for index, name in enumerate(present)}
        x_NF = self._matrix(result)
        problem = _Likelihood(self.crf, x_NF, [target.astype(np.int64) for target in train.targets])
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
            self.weights = problem.take(point)
            yield penalty, self._copy()

    def _copy(self) -> FeatureTagger:
        result = FeatureTagger(self.labels)
        result.crf.load_state_dict(self.crf.state_dict())
        result.weights, result._number = self.weights.copy(), self._number
        return result

    def answers(self, fields: Sequence[Fields]) -> list[Answer]:
        """Tag indices of each sentence's words."""
        x_NF = self._matrix([_features(words) for words in fields])
        lengths = np.asarray([len(words) for words in fields], dtype=np.int64)
        emissions = torch.from_numpy(x_NF @ self.weights)
        result: list[Answer] = [np.zeros(0, dtype=np.float32)] * len(fields)
        for rows, inside, words in _batches(lengths):
            tags = self.crf.decode(_padded(emissions, inside, words), inside.sum(1)).numpy().astype(np.float32)
            for row, sentence, length in zip(rows.tolist(), tags, lengths[rows].tolist(), strict=True):
                result[row] = sentence[:length]
        return result

    def _matrix(self, sentences: Sequence[list[list[str]]]) -> sparse.csr_array:
        number = self._number
        rows = [[number[name] for name in names if name in number] for sentence in sentences for names in sentence]
        counts = np.cumsum([0, *map(len, rows)])
        columns = np.fromiter((column for row in rows for column in row), dtype=np.int64, count=int(counts[-1]))
        return sparse.csr_array((np.ones(len(columns)), columns, counts), shape=(len(rows), len(number)))


class _Likelihood:
    """The objective on the training sentences, as a function of all weights in one vector: W, A, a, b."""

    def __init__(self, crf: LinearChainCRF, x_NF: sparse.csr_array, targets: list[NDArray[np.int64]]) -> None:
        self.crf, self.x_NF, self.turned_FN = crf, x_NF, x_NF.T.tocsr()
        lengths = np.asarray([len(target) for target in targets], dtype=np.int64)
        tags = torch.from_numpy(np.concatenate(targets))
        self.batches = [
            (inside, words, _padded(tags[:, None], inside, words)[..., 0]) for _, inside, words in _batches(lengths)
        ]
        self.parts = [crf.transition, crf.start, crf.end]
        self.shape = (x_NF.shape[1], crf.tags)
        self.size = self.shape[0] * self.shape[1] + sum(part.numel() for part in self.parts)

    def take(self, point: Floats) -> Floats:
        """Copy A, a, b into the CRF; returns W (F, C)."""
        ends = np.cumsum([self.shape[0] * self.shape[1], *(part.numel() for part in self.parts)])
        weights, *rest = np.split(point, ends[:-1])
        with torch.no_grad():
            for part, values in zip(self.parts, rest, strict=True):
                part.copy_(torch.from_numpy(values).view_as(part))
        return weights.reshape(self.shape)

    def value_and_gradient(self, point: Floats, penalty: float) -> tuple[float, Floats]:
        weights = self.take(point)
        x_NC = torch.from_numpy(self.x_NF @ weights).requires_grad_()
        self.crf.zero_grad()
        total = 0.0
        for inside, words, tags in self.batches:
            loss = -self.crf.log_likelihood(_padded(x_NC, inside, words), tags, inside.sum(1)).sum()
            loss.backward()
            total += loss.item()
        assert x_NC.grad is not None
        pieces = [self.turned_FN @ x_NC.grad.numpy()]
        # Zeros for a parameter that the loss does not use (transitions, in sentences of one word).
        pieces += [np.zeros(part.shape) if part.grad is None else part.grad.numpy() for part in self.parts]
        gradient = np.concatenate([piece.ravel() for piece in pieces]) + penalty * point
        return total + penalty / 2 * float(point @ point), gradient


def _batches(lengths: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], Tensor, Tensor]]:
    """Batches of sentences of similar length: their indices (B,), the mask (B, W) and the indices of their words."""
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    result = []
    first = 0
    for last in range(1, len(order) + 1):
        if last == len(order) or (last + 1 - first) * lengths[order[last]] > BATCH_WORDS:
            rows = order[first:last]
            columns = np.arange(lengths[rows].max())
            inside = columns < lengths[rows, None]
            result.append((rows, torch.from_numpy(inside), torch.from_numpy((starts[rows, None] + columns)[inside])))
            first = last
    return result


def _padded(values_NX: Tensor, inside: Tensor, words: Tensor) -> Tensor:
    laid_out = values_NX.new_zeros(*inside.shape, values_NX.shape[-1])
    laid_out[inside] = values_NX[words]
    return laid_out


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


def usual_tags(training: Training) -> list[Candidate]:
    """The most frequent tag of each word in the training rows."""
    return [Candidate.of(Function(partial(most_frequent_tags, training.rows)))]


def by_features(training: Training) -> list[Candidate]:
    result = FeatureTagger(training.labels).fit(training.rows)
    return [Candidate.of(tagger, {"penalty": penalty, "features": len(tagger.weights)}) for penalty, tagger in result]


TAGGING = Systems({"word-features-crf": by_features}, constant=usual_tags)
