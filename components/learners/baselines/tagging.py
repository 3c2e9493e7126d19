"""Baselines for tagging: the most frequent tag of each word, and a CRF on features of the words.

The linear-chain CRF (Lafferty et al. 2001) has the features of taggers before word vectors (Ratinov and Roth 2009;
Finkel et al. 2005): the word, its shape, prefixes and suffixes, and the same of its neighbours. CRFsuite minimises

    -sum log p(tags | words) + penalty / 2 * (|W|^2 + |A|^2)

by L-BFGS over the weights W (F, C) of the features and A (C, C) of the transitions. A feature has a weight for the tags
that it is seen with; the others are 0. On 300 and 1000 sentences of WNUT17 this was better than weights for all tags.

Shapes: N words of R sentences, F features, C tags.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Answer, Fields, Split
from components.learners.base import Candidate, Rows
from components.learners.baselines.base import Function, Systems

#: Candidates for the strength of the L2 penalty, the strongest first.
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
        names = list(table)
        state = {(names[int(number)], tag): weight for (number, tag), weight in learned.state_features.items()}
        numbers = {name: index for index, name in enumerate(sorted({name for name, _ in state}))}
        weights, transition = np.zeros((len(numbers), len(labels))), np.zeros((len(labels), len(labels)))
        for (name, tag), weight in state.items():
            weights[numbers[name], int(tag)] = weight
        for (before, tag), weight in learned.transitions.items():
            transition[int(before), int(tag)] = weight
        return cls(labels, numbers, weights, transition, np.zeros(len(labels)), np.zeros(len(labels)))

    def answers(self, fields: Sequence[Fields]) -> list[Answer]:
        """Tag indices of each sentence's words: the best legal sequence (Viterbi 1967), or one with the fewest illegal
        transitions if none of its length is legal."""
        start, step, end = (
            scores + np.where(allowed, 0, ILLEGAL)
            for scores, allowed in zip((self.start, self.transition, self.end), self._legal, strict=True)
        )
        result = []
        for words in fields:
            rows = [[self.numbers[name] for name in names if name in self.numbers] for names in _features(words)]
            best_NC = np.asarray([self.weights[columns].sum(0) for columns in rows])
            best_NC = best_NC.reshape(len(words), len(self.labels))
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
            result.append(np.asarray(tags[::-1], dtype=np.float32))
        return result

    @cached_property
    def _legal(self) -> Any:
        return legal_transitions(self.labels)

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
    fit = partial(FeatureTagger.fit, training.labelled, training.labels)
    return [Candidate(partial(fit, penalty=penalty), {"penalty": penalty}) for penalty in PENALTIES]


TAGGING = Systems({"word-features-crf": by_features}, constant=usual_tags)
