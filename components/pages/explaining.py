"""Which words support a prediction, by occlusion (Zeiler and Fergus 2014; Li, Monroe and Jurafsky 2016).

The weight of a word is the change of the predicted label's probability, or of the predicted number, without the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from components.data.tasks.data import Answer, Fields
from components.data.tasks.words import words_of
from components.learners.prediction import Classifier

#: Maximum number of predictions for one explanation; of longer texts, neighbouring words are removed together.
MOST: Final = 160
#: Kinds whose answers are probabilities of labels or a number.
KINDS: Final = ("classification", "pair", "multilabel", "similarity", "regression")


@dataclass(frozen=True)
class Piece:
    """A part of the text with its weight: positive if it supports the prediction. `weight` is None between words."""

    text: str
    weight: float | None = None


@dataclass(frozen=True)
class Explanation:
    """The pieces of each part of the input; joined, they are the text."""

    parts: Sequence[Sequence[Piece]]

    @property
    def largest(self) -> float:
        """The largest absolute weight; 0 without words."""
        return max((abs(piece.weight) for part in self.parts for piece in part if piece.weight is not None), default=0)


def explain(classifier: Classifier, fields: Fields, answer: Answer) -> Explanation | None:
    """The weights of the words for an answer; None for kinds with other answers, and for a text of one word."""
    units = [words_of(text, marks="joined") for text in fields]
    size = -(-sum(map(len, units)) // MOST)
    removed = [
        (part, group)
        for part, spans in enumerate(units)
        for start in range(0, len(spans), max(size, 1))
        if len(group := spans[start : start + size]) < len(spans)
    ]
    if classifier.kind not in KINDS or not removed:
        return None
    index = int(answer.argmax()) if len(answer) > 1 else 0
    answers = classifier.answer([_without(fields, part, group) for part, group in removed])
    weights: list[dict[tuple[int, int], float]] = [{} for _ in fields]
    for (part, group), changed in zip(removed, answers, strict=True):
        weights[part] |= dict.fromkeys(group, float(answer[index] - changed[index]))
    return Explanation([_pieces(text, weights_of) for text, weights_of in zip(fields, weights, strict=True)])


def _without(fields: Fields, part: int, spans: Sequence[tuple[int, int]]) -> Fields:
    text = fields[part]
    # The space after the word goes with it.
    return (*fields[:part], text[: spans[0][0]] + text[spans[-1][1] :].lstrip(), *fields[part + 1 :])


def _pieces(text: str, weights: dict[tuple[int, int], float]) -> list[Piece]:
    pieces, position = [], 0
    for (start, end), weight in sorted(weights.items()):
        if start > position:
            pieces.append(Piece(text[position:start]))
        pieces.append(Piece(text[start:end], weight))
        position = end
    return [*pieces, Piece(text[position:])] if position < len(text) else pieces
