"""Words in their sentences, and the states that an encoder has at them: what the studies of contextuality read.

Shape suffixes: B sentences, T pieces, U words, D width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray

from components.errors import DataError
from components.formats.corpus import read_documents, shards
from components.models.encoder import Encoder
from components.tokenization.measure import measure
from components.tokenization.segmenters import SEGMENTERS, Segmentation
from components.tokenization.sentences import sentence_starts

_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
#: Words of a sentence that is read: a shorter one says little, a longer one is a list or a table.
LEAST_WORDS, MOST_WORDS = 4, 60
#: Sentences that are read together.
BATCH = 32

Floats = NDArray[np.float32]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Sentence:
    """A text and the spans of characters of its words."""

    text: str
    spans: list[tuple[int, int]]

    def word(self, place: int) -> str:
        """A word as it is counted: without regard to case."""
        start, end = self.spans[place]
        return self.text[start:end].casefold()

    def snippet(self, place: int, *, around: int = 45) -> str:
        """The word between brackets with the characters around it."""
        start, end = self.spans[place]
        before = ("\u2026" if start > around else "") + self.text[max(0, start - around) : start]
        after = self.text[end : end + around] + ("\u2026" if end + around < len(self.text) else "")
        return " ".join(f"{before}[{self.text[start:end]}]{after}".split())


def sentence(text: str, segmentation: Segmentation) -> Sentence:
    """Find the words: letters, marks and digits between anything else, cut further where a language is written
    without spaces."""
    plain = text if text.isascii() else "".join("_" if _marks(letter) else letter for letter in text)
    spans = [match.span() for match in _WORD.finditer(plain)]
    segmenter = segmentation.choose(text)
    if segmenter is not None:
        cuts = sorted({*segmenter.cuts(text), *(edge for span in spans for edge in span)})
        inside = [(start, end) for start, end in pairwise(cuts) if text[start:end].strip()]
        spans = [span for span in inside if any(first <= span[0] and span[1] <= last for first, last in spans)]
    return Sentence(text, spans)


def of_letters(word: str) -> bool:
    """Whether a word has letters and the marks on them only; in many scripts (Thai, Hindi) most words have marks."""
    return any(map(str.isalpha, word)) and all(letter.isalpha() or _marks(letter) for letter in word)


def _marks(letter: str) -> bool:
    return category(letter)[0] == "M"


def sentences_of(text: str, segmentation: Segmentation) -> Iterator[Sentence]:
    """The sentences of a document that are neither too short nor too long, in order."""
    thai = segmentation.choose(text) is SEGMENTERS["thai"]
    starts = sentence_starts(text, thai=thai)
    for start, end in pairwise([*starts, len(text)]):
        found = sentence(text[start:end].strip(), segmentation)
        if LEAST_WORDS <= len(found.spans) <= MOST_WORDS:
            yield found


def sample(corpus: Path, segmentation: Segmentation, *, count: int) -> list[Sentence]:
    """At most `count` sentences of different documents, spread evenly over the corpus: the first fitting one of each.

    Raises:
        ArtifactError: the corpus is incomplete or damaged.
        DataError: it holds no sentence.
    """
    total = sum(measure(shard).documents for shard in shards(corpus))
    # Some documents hold no sentence that fits; so a few more are looked at.
    wanted = {place * total // (2 * count) for place in range(2 * count)}
    found = []
    for place, text in enumerate(read_documents(corpus)):
        if place in wanted and (first := next(sentences_of(text, segmentation), None)) is not None:
            found.append(first)
    if not found:
        raise DataError(f"{corpus}: holds no sentence of {LEAST_WORDS} to {MOST_WORDS} words")
    return evenly(found, count)


def search(corpus: Path, segmentation: Segmentation, word: str, *, count: int) -> list[tuple[Sentence, int]]:
    """At most `count` sentences that hold `word`, with its place, spread evenly over those of the corpus.

    Raises:
        ArtifactError: the corpus is incomplete or damaged.
    """
    word = word.casefold()
    found = []
    for text in read_documents(corpus):
        # Finding sentences and words costs much more than knowing that there are none.
        if word not in text.casefold():
            continue
        for one in sentences_of(text, segmentation):
            place = next((place for place in range(len(one.spans)) if one.word(place) == word), None)
            if place is not None:
                found.append((one, place))
    return evenly(found, count)


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the items, at even distances, in order."""
    if len(items) <= count:
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


@torch.inference_mode()
def states(encoder: Encoder, sentences: Sequence[Sentence]) -> Iterator[tuple[int, list[int], list[Floats]]]:
    """What an encoder makes of the words of each sentence.

    Yields:
        number of the sentence; the places of its words that were read (a model with few positions reads the first);
        for the embedding and each layer (U, D_l), the family's `unit_states` at these words.
    """
    model, tokenizer = encoder.model, encoder.tokenizer
    frame = model.special_tokens([-1])
    first, room = frame.index(-1), (model.max_tokens or 512) - len(frame) + 1
    read: list[tuple[int, list[int], list[int], list[tuple[int, int]]]] = []
    for number, one in enumerate(sentences):
        ids, offsets = tokenizer.encode_with_offsets(one.text)
        offsets = offsets[:room]
        places, units = [], []
        for place, (start, end) in enumerate(one.spans):
            own = [piece for piece, (begin, stop) in enumerate(offsets) if begin < end and stop > start]
            # A word is read as a whole or not at all.
            if own and (offsets[own[-1]][1] >= end):
                places.append(place)
                units.append((first + own[0], first + own[-1]))
        if places:
            read.append((number, model.special_tokens(ids[:room].tolist()), places, units))
    read.sort(key=lambda entry: len(entry[1]))
    for start in range(0, len(read), BATCH):
        part = read[start : start + BATCH]
        lengths = torch.tensor([len(tokens) for _, tokens, _, _ in part])
        tokens_BT = torch.zeros(len(part), int(lengths.max()), dtype=torch.int64)
        units_BU2 = torch.full((len(part), max(len(units) for *_, units in part), 2), -1)
        for row, (_, tokens, _, units) in enumerate(part):
            tokens_BT[row, : len(tokens)] = torch.tensor(tokens)
            units_BU2[row, : len(units)] = torch.tensor(units)
        layers = [model.unit_states(layer, units_BU2).float() for layer in model.hidden_states(tokens_BT, lengths)]
        for row, (number, _, places, _) in enumerate(part):
            yield number, places, [layer[row, : len(places)].numpy() for layer in layers]
