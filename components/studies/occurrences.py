"""Words in sentences, and an encoder's hidden states at them, for the study of contextuality.

Shape suffixes: B sentences, T pieces, U words, D width.
"""

from __future__ import annotations

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
from components.tasks.words import words_of
from components.tokenization.measure import measure
from components.tokenization.segmenters import SEGMENTERS, Segmentation
from components.tokenization.sentences import sentence_starts

#: Minimum and maximum number of words of a sentence; longer ones are usually lists or tables.
LEAST_WORDS, MOST_WORDS = 4, 60
#: Sentences per batch.
BATCH = 32

Floats = NDArray[np.float32]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Sentence:
    """A text and the character spans of its words."""

    text: str
    spans: list[tuple[int, int]]

    def word(self, index: int) -> str:
        """The case-folded word with this index."""
        start, end = self.spans[index]
        return self.text[start:end].casefold()

    def snippet(self, index: int, *, around: int = 45) -> str:
        """The word in brackets with `around` characters on each side."""
        start, end = self.spans[index]
        before = ("\u2026" if start > around else "") + self.text[max(0, start - around) : start]
        after = self.text[end : end + around] + ("\u2026" if end + around < len(self.text) else "")
        return " ".join(f"{before}[{self.text[start:end]}]{after}".split())


def sentence(text: str, segmentation: Segmentation) -> Sentence:
    """Find the words of a text (`words_of`); an apostrophe within a word belongs to it."""
    spans: list[tuple[int, int]] = []
    for start, end in words_of(text, segmentation, marks="none"):
        if spans and text[spans[-1][1] : start] in ("'", "\u2019"):
            start = spans.pop()[0]
        spans.append((start, end))
    return Sentence(text, spans)


def of_letters(word: str) -> bool:
    """Whether a word consists of letters and combining marks, which are common in Thai or Hindi."""
    return any(map(str.isalpha, word)) and all(letter.isalpha() or _marks(letter) for letter in word)


def _marks(letter: str) -> bool:
    return category(letter)[0] == "M"


def sentences_of(text: str, segmentation: Segmentation) -> Iterator[Sentence]:
    """The sentences of a document with an allowed number of words, in order."""
    thai = segmentation.choose(text) is SEGMENTERS["thai"]
    starts = sentence_starts(text, thai=thai)
    for start, end in pairwise([*starts, len(text)]):
        found = sentence(text[start:end].strip(), segmentation)
        if LEAST_WORDS <= len(found.spans) <= MOST_WORDS:
            yield found


def sample(corpus: Path, segmentation: Segmentation, *, count: int) -> list[Sentence]:
    """At most `count` sentences of different documents, evenly spread over the corpus.

    Raises:
        ArtifactError: the corpus is incomplete or damaged.
        DataError: the corpus has no sentence with an allowed number of words.
    """
    total = sum(measure(shard).documents for shard in shards(corpus))
    # Twice as many documents, because some have no such sentence.
    candidates = {number * total // (2 * count) for number in range(2 * count)}
    found = []
    for number, text in enumerate(read_documents(corpus)):
        if number in candidates and (first := next(sentences_of(text, segmentation), None)) is not None:
            found.append(first)
    if not found:
        raise DataError(f"{corpus}: contains no sentence of {LEAST_WORDS} to {MOST_WORDS} words")
    return evenly(found, count)


def search(corpus: Path, segmentation: Segmentation, word: str, *, count: int) -> list[tuple[Sentence, int]]:
    """At most `count` sentences that contain `word`, with its index, evenly spread over those of the corpus.

    Raises:
        ArtifactError: the corpus is incomplete or damaged.
    """
    word = word.casefold()
    found = []
    for text in read_documents(corpus):
        # Segmentation into sentences and words is much slower than a substring search.
        if word not in text.casefold():
            continue
        for one in sentences_of(text, segmentation):
            index = next((index for index in range(len(one.spans)) if one.word(index) == word), None)
            if index is not None:
                found.append((one, index))
    return evenly(found, count)


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items, evenly spaced, in order."""
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


@torch.inference_mode()
def states(encoder: Encoder, sentences: Sequence[Sentence]) -> Iterator[tuple[int, list[int], list[Floats]]]:
    """Hidden states of the words of each sentence.

    Yields:
        the number of the sentence; the indices of the U words within the model's positions; for the embedding and each
        layer the (U, D_l) `unit_states` of these words.
    """
    model, tokenizer = encoder.model, encoder.tokenizer
    frame = model.special_tokens([-1])
    first, room = frame.index(-1), (model.max_tokens or 512) - len(frame) + 1
    read: list[tuple[int, list[int], list[int], list[tuple[int, int]]]] = []
    for number, one in enumerate(sentences):
        ids, offsets = tokenizer.encode_with_offsets(one.text)
        offsets = offsets[:room]
        indices, units = [], []
        for index, (start, end) in enumerate(one.spans):
            own = [piece for piece, (begin, stop) in enumerate(offsets) if begin < end and stop > start]
            # Truncated words are excluded.
            if own and (offsets[own[-1]][1] >= end):
                indices.append(index)
                units.append((first + own[0], first + own[-1]))
        if indices:
            read.append((number, model.special_tokens(ids[:room].tolist()), indices, units))
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
        for row, (number, _, indices, _) in enumerate(part):
            yield number, indices, [layer[row, : len(indices)].numpy() for layer in layers]
