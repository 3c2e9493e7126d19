"""Words in sentences of a corpus, an encoder's hidden states at them, and the senses of a word: its occurrences in the
plane of the first two principal components, clustered by 2-means.

Shape suffixes: B sentences, N occurrences, T pieces, U words, D width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.data.formats.corpus import read_documents, shards
from components.data.formats.words import words_of
from components.data.segmenters import SEGMENTERS, Segmentation
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Chapter, Drawing, Table
from components.tokenization.store import measure
from components.tokenization.tokenize import sentence_starts

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
        start, end = self.spans[index]
        return self.text[start:end].casefold()

    @property
    def words(self) -> list[str]:
        """The words, case-folded."""
        return [self.word(index) for index in range(len(self.spans))]

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
    for number, parsed in enumerate(sentences):
        ids, offsets = tokenizer.encode_with_offsets(parsed.text)
        offsets = offsets[:room]
        indices, units = [], []
        for index, (start, end) in enumerate(parsed.spans):
            pieces = [piece for piece, (begin, stop) in enumerate(offsets) if begin < end and stop > start]
            # Truncated words are excluded.
            if pieces and offsets[pieces[-1]][1] >= end:
                indices.append(index)
                units.append((first + pieces[0], first + pieces[-1]))
        if indices:
            read.append((number, model.special_tokens(ids[:room].tolist()), indices, units))
    read.sort(key=lambda entry: len(entry[1]))
    for start in range(0, len(read), BATCH):
        numbers, tokens, indices_of, units_of = zip(*read[start : start + BATCH], strict=True)
        lengths = torch.tensor([len(row) for row in tokens])
        tokens_BT = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)
        padded = [torch.tensor(units) for units in units_of]
        units_BU2 = torch.nn.utils.rnn.pad_sequence(padded, batch_first=True, padding_value=-1)
        layers = [model.unit_states(layer, units_BU2).float() for layer in model.hidden_states(tokens_BT, lengths)]
        for row, (number, indices) in enumerate(zip(numbers, indices_of, strict=True)):
            yield number, indices, [layer[row, : len(indices)].numpy() for layer in layers]


#: Minimum number of occurrences of the word, and number of examples of each sense.
LEAST, EXAMPLES = 10, 3
#: Silhouette (between -1 and 1) below which the clusters do not count as two senses.
SEPARATE = 0.1


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


def add_senses(
    chapter: Chapter, encoder: Encoder, occurrences: Sequence[tuple[Sentence, int]], *, word: str, name: str
) -> dict[str, Any]:
    """Add the occurrences of a word in the last layer to a chapter; returns the numbers."""
    kept, vectors = [], []
    for number, indices, layers in states(encoder, [sentence for sentence, _ in occurrences]):
        if (index := occurrences[number][1]) in indices:
            kept.append(occurrences[number])
            vectors.append(layers[-1][indices.index(index)])
    if len(kept) < LEAST:
        within = f", {len(kept)} of them within the positions of {name}" if occurrences else ""
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus{within}; at least {LEAST} are needed")
    directions_ND = normalize(np.stack(vectors))
    clusters_N, silhouette = two_senses(directions_ND)
    positions_N2 = planar(directions_ND)
    clouds, rows, clusters = {}, [], []
    for cluster, letter in enumerate("AB"):
        members = np.flatnonzero(clusters_N == cluster)
        if not len(members):
            continue
        cosines = directions_ND[members] @ directions_ND[members].mean(0)
        nearest = members[np.argsort(-cosines, kind="stable")[:EXAMPLES]]
        snippets = [sentence.snippet(index) for sentence, index in (kept[row] for row in nearest)]
        clusters.append({"occurrences": len(members), "examples": snippets})
        heads = [[letter, str(len(members))], *[["", ""]] * EXAMPLES]
        rows += [[*head, snippet] for head, snippet in zip(heads, snippets, strict=False)]
        clouds[f"{letter} ({len(members)})"] = Cloud(
            positions_N2[members, 0].tolist(), positions_N2[members, 1].tolist()
        )
    verdict = "two clusters" if silhouette >= SEPARATE else "one cluster"
    sentence = (
        f"{name}: {len(kept)} occurrences of {word!r} form {verdict} in the last layer (silhouette {silhouette:.2f})."
    )
    chapter.lead.append(sentence)
    caption = f"{name}: occurrences of {word!r}, last layer, two principal components."
    chapter.figures.append(Drawing(figures.scatter(clouds), caption))
    columns = ["cluster", "occurrences", f"{name}: sentences with {word!r} nearest to the centre"]
    chapter.tables.append(Table(columns, rows))
    return {"word": word, "silhouette": silhouette, "clusters": clusters, "sentence": sentence}
