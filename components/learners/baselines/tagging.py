"""Baselines for tagging: the most frequent tag of each word, and a CRF on features of the words.

The linear-chain CRF (Lafferty et al. 2001) has the features of taggers before word vectors (Ratinov and Roth 2009;
Finkel et al. 2005): the word, its shape, prefixes and suffixes, and the same of its neighbours. CRFsuite minimises

    -sum log p(tags | words) + penalty / 2 * (|W|^2 + |A|^2)

by L-BFGS over the weights W (F, C) of the features and A (C, C) of the transitions. A feature has a weight for the tags
that it is seen with; the others are 0. On 300 and 1000 sentences of WNUT17 this was better than weights for all tags.

Shapes: N words of R sentences, F features, C tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain, groupby
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Answer, Fields, Split
from components.learners.base import Candidate, Learner, Rows
from components.learners.baselines import Function
from components.settings.section import MOST_FREQUENT

#: Candidates for the strength of the L2 penalty, the strongest first.
PENALTIES: Final = (3.0, 1.0, 0.3, 0.1)
#: Maximum number of L-BFGS iterations per penalty.
STEPS: Final = 60
#: Maximum length of prefix and suffix features, in characters.
AFFIX: Final = 4
#: Score of an illegal transition in decoding.
ILLEGAL: Final = -1e9

_ARRAYS: Final = ("weights", "transition", "start", "end")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureTagger:
    """The CRF on features.

    Attributes:
        labels: C names of tags; they determine the legal transitions.
        features: F names.
        weights, transition, start, end: W (F, C), A (C, C), a (C,), b (C,).
    """

    labels: Sequence[str]
    features: Sequence[str]
    weights: Floats
    transition: Floats
    start: Floats
    end: Floats

    @classmethod
    def fit(cls, train: Split, labels: Sequence[str], *, penalty: float) -> Self:
        """Train on R labelled sentences."""
        import pycrfsuite

        settings = {"c1": 0.0, "c2": penalty / 2, "max_iterations": STEPS, "feature.possible_transitions": True}
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False, params=settings)
        # CRFsuite's text form of a model breaks at line breaks and arrows in names.
        table: dict[str, int] = {}
        for words, tags in zip(train.fields, train.targets, strict=True):
            if words:
                items = [[str(table.setdefault(name, len(table))) for name in names] for names in _features(words)]
                trainer.append(pycrfsuite.ItemSequence(items), [str(int(tag)) for tag in tags])
        with TemporaryDirectory() as folder:
            trainer.train(f"{folder}/model")
            tagger = pycrfsuite.Tagger()
            tagger.open(f"{folder}/model")
            learned = tagger.info()
            tagger.close()
        names, count = list(table), len(labels)
        # A feature may have no weight.
        order = sorted({int(number) for number, _ in learned.state_features}, key=names.__getitem__)
        rows = {number: row for row, number in enumerate(order)}
        weights, transition, none = np.zeros((len(order), count)), np.zeros((count, count)), np.zeros(count)
        for (number, tag), weight in learned.state_features.items():
            weights[rows[int(number)], int(tag)] = weight
        for (before, tag), weight in learned.transitions.items():
            transition[int(before), int(tag)] = weight
        return cls(labels, [names[number] for number in order], weights, transition, none, none)

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Tag indices of each sentence's words: the best legal sequence (Viterbi 1967), or one with the fewest illegal
        transitions if none of its length is legal."""
        return [self._best(words) for words in rows]

    def _best(self, words: Fields) -> Answer:
        start, step, end = self._scores
        ids = [[self._ids[name] for name in names if name in self._ids] for names in _features(words)]
        best_NC = np.asarray([self.weights[columns].sum(0) for columns in ids]).reshape(len(words), len(self.labels))
        best_NC[:1] += start
        best_NC[-1:] += end
        before = np.zeros(best_NC.shape, dtype=np.int64)
        for word in range(1, len(words)):
            scores = best_NC[word - 1][:, None] + step
            before[word] = scores.argmax(0)
            best_NC[word] += scores.max(0)
        tags = [int(best_NC[-1].argmax())] if words else []
        for word in range(len(words) - 1, 0, -1):
            tags.append(int(before[word, tags[-1]]))
        return np.asarray(tags[::-1], dtype=np.float32)

    @cached_property
    def _ids(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.features)}

    @cached_property
    def _scores(self) -> list[Floats]:
        """Of start, transition and end, with `ILLEGAL` where it is not allowed."""
        scores = (self.start, self.transition, self.end)
        return [
            s + np.where(legal, 0, ILLEGAL) for s, legal in zip(scores, legal_transitions(self.labels), strict=True)
        ]

    def dump(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        return {"form": "crf", "features": list(self.features)}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, Floats], labels: Sequence[str]) -> Self:
        features, tags, parts = described["features"], len(labels), [arrays[name] for name in _ARRAYS]
        if [part.shape for part in parts] != [(len(features), tags), (tags, tags), (tags,), (tags,)]:
            raise ValueError(f"arrays that do not fit {len(features)} features and {tags} tags")
        return cls(labels, features, *parts)


def _features(words: Sequence[str]) -> list[list[str]]:
    edge = [("edge",)] * 2
    near = [*edge, *map(_of_neighbour, words), *edge]
    # At distance 2 only the word itself.
    places = ((-2, 1), (-1, None), (1, None), (2, 1))
    return [
        [*_of_word(word), *(f"{place}:{name}" for place, most in places for name in near[index + 2 + place][:most])]
        for index, word in enumerate(words)
    ]


@lru_cache(maxsize=1 << 16)
def _of_word(word: str) -> tuple[str, ...]:
    lower = word.lower()
    sizes = range(1, min(AFFIX, len(lower)) + 1)
    affixes = (*(f"begins={lower[:size]}" for size in sizes), *(f"ends={lower[-size:]}" for size in sizes))
    return "bias", f"word={word}", f"lower={lower}", *_of_neighbour(word)[1:], *affixes


@lru_cache(maxsize=1 << 16)
def _of_neighbour(word: str) -> tuple[str, ...]:
    lower, full = word.lower(), "".join(map(_kind, word))
    # Runs are collapsed: "Xxxxx" becomes "Xx".
    short = "".join(mark for mark, _ in groupby(full))
    return f"near={lower}", f"shape={full[:8]}", f"short={short}", f"suffix={lower[-3:]}"


def _kind(character: str) -> str:
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return "9" if character.isdigit() else character


def usual_tags(training: Rows) -> list[Candidate]:
    """The most frequent tag of each word in the training rows (the lowest index at a tie), or of all words for unseen
    ones."""
    pairs = zip(training.labelled.fields, training.labelled.targets, strict=True)
    counts = Counter(chain.from_iterable(zip(words, tags.tolist(), strict=True) for words, tags in pairs))
    tags = Counter(tag for _, tag in counts.elements())
    best = {word: tag for (word, tag), _ in sorted(counts.items(), key=lambda entry: (entry[1], -entry[0][1]))}
    usual = min(tags, key=lambda tag: (-tags[tag], tag))

    def answers(rows: Sequence[Fields]) -> list[Answer]:
        return [np.asarray([best.get(word, usual) for word in words], dtype=np.float32) for words in rows]

    return [Candidate.of(Function(answers))]


def by_features(training: Rows) -> list[Candidate]:
    fit = partial(FeatureTagger.fit, training.labelled, training.labels)
    return [Candidate(partial(fit, penalty=penalty), {"penalty": penalty}) for penalty in PENALTIES]


TAGGING: Final[Mapping[str, Learner]] = {"word-features-crf": by_features, MOST_FREQUENT: usual_tags}
