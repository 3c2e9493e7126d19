"""Words in sentences of a corpus, an encoder's hidden states at them, and vectors in two clusters or in a plane.

Shape suffixes: B sentences, N occurrences, T pieces, U words, D width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize
from torch import Tensor

from components.core.errors import DataError
from components.data.formats.corpus import read_documents, shards
from components.data.formats.words import words_of
from components.data.segmenters import SEGMENTERS, Segmentation
from components.models.encoder import Encoder
from components.tokenization.store import measure
from components.tokenization.tokenize import sentence_starts

#: Minimum and maximum number of words of a sentence; longer ones are usually lists or tables.
LEAST_WORDS, MOST_WORDS = 4, 60
#: Sentences per batch.
BATCH = 32

Floats = NDArray[np.float32]
Item = TypeVar("Item")
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]
#: Minimum number of sentences with a measured word (5 in Ethayarajh 2019), maximum number of them that are used, and
#: number of words.
LEAST, MOST, WORDS = 5, 50, 400


@dataclass(frozen=True)
class Sentence:
    """A text and the character spans of its words."""

    text: str
    spans: list[tuple[int, int]]

    def word(self, index: int) -> str:
        start, end = self.spans[index]
        return self.text[start:end].casefold()

    @property
    def words(self) -> list[str]:
        """The words, case-folded."""
        return [self.word(index) for index in range(len(self.spans))]

    def replaced(self, index: int, word: str) -> Sentence:
        """The sentence with another word at a place."""
        start, end = self.spans[index]
        shift = len(word) - (end - start)
        later = [(first + shift, last + shift) for first, last in self.spans[index + 1 :]]
        text = self.text[:start] + word + self.text[end:]
        return Sentence(text, [*self.spans[:index], (start, start + len(word)), *later])

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
    return any(map(str.isalpha, word)) and all(letter.isalpha() or category(letter)[0] == "M" for letter in word)


def sentences_of(text: str, segmentation: Segmentation) -> Iterator[Sentence]:
    """The sentences of a document with an allowed number of words, in order."""
    thai = segmentation.choose(text) is SEGMENTERS["thai"]
    for start, end in pairwise([*sentence_starts(text, thai=thai), len(text)]):
        parsed = sentence(text[start:end].strip(), segmentation)
        if LEAST_WORDS <= len(parsed.spans) <= MOST_WORDS:
            yield parsed


def sample(corpus: Path, segmentation: Segmentation, *, count: int) -> list[Sentence]:
    """At most `count` sentences of different documents, evenly spread over the corpus."""
    total = sum(measure(shard).documents for shard in shards(corpus))
    # Twice as many documents, because some have no such sentence.
    candidates = {number * total // (2 * count) for number in range(2 * count)}
    documents = (text for number, text in enumerate(read_documents(corpus)) if number in candidates)
    firsts = [next(sentences_of(text, segmentation), None) for text in documents]
    sampled = [first for first in firsts if first is not None]
    if not sampled:
        raise DataError(f"{corpus}: contains no sentence of {LEAST_WORDS} to {MOST_WORDS} words")
    return evenly(sampled, count)


def search(corpus: Path, segmentation: Segmentation, word: str, *, count: int) -> list[tuple[Sentence, int]]:
    """At most `count` sentences that contain `word`, with its index, evenly spread over the sentences of the corpus."""
    word = word.casefold()
    # Segmentation into sentences and words is much slower than a substring search.
    texts = (text for text in read_documents(corpus) if word in text.casefold())
    parsed = (sentence for text in texts for sentence in sentences_of(text, segmentation))
    return evenly([(of, of.words.index(word)) for of in parsed if word in of.words], count)


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items, evenly spaced, in order."""
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def pieces_of(encoder: Encoder, parsed: Sentence) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """The pieces of a sentence, and word -> its first and last piece."""
    ids, offsets = encoder.tokenizer.encode_with_offsets(parsed.text)
    units = {}
    for index, (start, end) in enumerate(parsed.spans):
        pieces = [piece for piece, (begin, stop) in enumerate(offsets) if begin < end and stop > start]
        if pieces:
            units[index] = (pieces[0], pieces[-1])
    return ids.tolist(), units


@torch.inference_mode()
def hidden(encoder: Encoder, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], list[Tensor], Tensor]]:
    """The numbers of B rows of pieces, the (B, T, D_l) states of the embedding and of each layer, and (B,) lengths."""
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        tokens = [torch.tensor(rows[number]) for number in numbers]
        lengths_B = torch.tensor(list(map(len, tokens)))
        padded_BT = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        yield numbers, list(encoder.model.hidden_states(padded_BT, lengths_B)), lengths_B


def states(encoder: Encoder, sentences: Sequence[Sentence]) -> Iterator[tuple[int, list[int], list[Floats]]]:
    """Hidden states of the words of each sentence.

    Yields:
        the number of the sentence; the indices of the U words within the model's positions; for the embedding and each
        layer the (U, D_l) `unit_states` of these words.
    """
    model = encoder.model
    frame = model.special_tokens([-1])
    first, room = frame.index(-1), room_of(encoder)
    read = []
    for number, parsed in enumerate(sentences):
        ids, units = pieces_of(encoder, parsed)
        # Truncated words are excluded.
        if within := {index: pair for index, pair in units.items() if pair[1] < room}:
            read.append((number, model.special_tokens(ids[:room]), within))
    for rows, layers, _ in hidden(encoder, [tokens for _, tokens, _ in read]):
        places = [torch.tensor([(first + a, first + b) for a, b in read[row][2].values()]) for row in rows]
        units_BU2 = torch.nn.utils.rnn.pad_sequence(places, batch_first=True, padding_value=-1)
        vectors = [model.unit_states(layer, units_BU2).float() for layer in layers]
        for place, row in enumerate(rows):
            indices = list(read[row][2])
            yield read[row][0], indices, [layer[place, : len(indices)].numpy() for layer in vectors]


def positions_of_words(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Position]]:
    """At most `WORDS` words of letters in at least `LEAST` sentences: word -> one position in each of up to `MOST`."""
    positions: dict[str, dict[int, Position]] = defaultdict(dict)
    for number, parsed in enumerate(sentences):
        for index in range(len(parsed.spans)):
            if of_letters(word := parsed.word(index)):
                positions[word].setdefault(number, (number, index))
    frequent = {word: list(of.values()) for word, of in sorted(positions.items()) if len(of) >= LEAST}
    if not frequent:
        raise DataError(f"no word occurs in {LEAST} of the {len(sentences)} sentences; raise --sentences")
    names = list(frequent)
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[index]: evenly(frequent[names[index]], MOST) for index in kept}


def vectors_at(
    encoder: Encoder, sentences: Sequence[Sentence], words: Mapping[str, Sequence[Position]], others: Sequence[Position]
) -> tuple[dict[Position, list[Floats]], dict[str, list[Position]]]:
    """The vectors of every layer at the positions of words and others; and the positions of each word. A model with few
    positions does not read the ends of long sentences; words with fewer than `LEAST` places before are left out."""
    needed = {position for of in (*words.values(), others) for position in of}
    vectors = {
        (number, index): [layer[place] for layer in layers]
        for number, indices, layers in states(encoder, sentences)
        for place, index in enumerate(indices)
        if (number, index) in needed
    }
    read = {word: [position for position in of if position in vectors] for word, of in words.items()}
    read = {word: positions for word, positions in read.items() if len(positions) >= LEAST}
    if not read:
        raise DataError(
            f"{encoder.family}: no word occurs in {LEAST} of the {len(sentences)} sentences within the model's "
            "positions; raise --sentences"
        )
    return vectors, read


def room_of(encoder: Encoder) -> int:
    """Number of pieces of a text that fit the model's positions."""
    return (encoder.model.max_tokens or 512) - len(encoder.model.special_tokens([]))


def two_senses(vectors_ND: Floats) -> tuple[NDArray[np.int64], float]:
    """2-means on the normalised vectors.

    Returns:
        (N,) cluster of each occurrence, 0 for the larger one; and the silhouette, 1 for clearly separated clusters.
    """
    directions_ND = normalize(vectors_ND)
    if len(np.unique(directions_ND.round(5), axis=0)) < 2:
        return np.zeros(len(vectors_ND), dtype=np.int64), 0.0
    clusters_N = KMeans(2, n_init=5, random_state=0).fit_predict(directions_ND).astype(np.int64)
    if clusters_N.mean() > 0.5:
        clusters_N = 1 - clusters_N
    return clusters_N, float(silhouette_score(directions_ND, clusters_N))


def planar(vectors_ND: NDArray[np.floating]) -> NDArray[np.floating]:
    """(N, D) -> (N, 2), the first two principal components; the largest absolute value of each axis is positive."""
    if len(vectors_ND) < 3:
        raise DataError(f"{len(vectors_ND)} words are too few for a map; name at least three")
    positions: NDArray[np.floating] = PCA(2, svd_solver="full").fit_transform(vectors_ND)
    oriented: NDArray[np.floating] = positions * np.sign(positions[np.abs(positions).argmax(0), [0, 1]])
    return oriented
