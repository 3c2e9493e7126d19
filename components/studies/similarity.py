"""The measures of contextuality of Ethayarajh 2019, section 3, per layer of an encoder.

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)
    intra-sentence similarity         mean over the words of a sentence of cos(x_i, mean of x)
    maximum explainable variance      s_1^2 / sum_i s_i^2 of the singular values of the matrix of a word's occurrences

In an anisotropic space all vectors are similar, also for unrelated words. Each measure is therefore adjusted by
its value for randomly sampled words: both similarities by the mean cosine of two of them (the anisotropy), the variance
by the variance of equally many of them.

Shape suffixes: N occurrences, U words of a sentence, D width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.models.encoder import Encoder
from components.studies.occurrences import Sentence, evenly, of_letters, states

#: Minimum number of sentences with a word (5 in Ethayarajh 2019), and maximum number of them that are used.
LEAST, MOST = 5, 50
#: Number of measured words, and of randomly sampled occurrences for the anisotropy.
WORDS, RANDOM = 400, 1000

Floats = NDArray[np.float32]
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]


def self_similarity(vectors_ND: Floats) -> float:
    """(N, D) with N at least 2 -> mean cosine over all pairs of different rows; 0 for a zero vector."""
    directions_ND, count = normalize(vectors_ND).astype(np.float64), len(vectors_ND)
    total = float(np.square(directions_ND.sum(0)).sum() - np.square(directions_ND).sum())
    return total / (count * (count - 1))


def intra_sentence_similarity(vectors_ND: Floats) -> float:
    """(N, D) -> mean cosine between the rows and their mean."""
    return float((normalize(vectors_ND) @ normalize(vectors_ND.mean(0, keepdims=True))[0]).mean())


def explainable_variance(vectors_ND: Floats) -> float:
    """(N, D) -> fraction of the sum of squares along the first principal axis (not centred, as in the paper); 1 if all
    vectors are zero."""
    squares = np.square(np.linalg.svd(vectors_ND, compute_uv=False).astype(np.float64))
    return float(squares[0] / squares.sum()) if squares.any() else 1.0


def measured(encoder: Encoder, sentences: Sequence[Sentence]) -> tuple[list[dict[str, float]], dict[str, Floats]]:
    """The measures of every layer, in one pass over the sentences, and word -> (N, D) its vectors in the last layer."""
    rng = np.random.default_rng(0)
    chosen = _chosen(sentences, rng)
    everywhere = [(number, index) for number, of in enumerate(sentences) for index in range(len(of.spans))]
    random = [everywhere[row] for row in np.sort(rng.choice(len(everywhere), min(RANDOM, len(everywhere)), False))]
    needed = {position for positions in chosen.values() for position in positions} | set(random)
    # By layer: the vectors at the needed positions, and the similarity of every sentence.
    vectors: list[dict[Position, Floats]] = []
    intra: list[list[float]] = []
    for number, indices, layers in states(encoder, sentences):
        vectors, intra = vectors or [{} for _ in layers], intra or [[] for _ in layers]
        for kept, similarities, layer_UD in zip(vectors, intra, layers, strict=True):
            similarities += [intra_sentence_similarity(layer_UD)] if len(indices) > 1 else []
            positions = ((number, index) for index in indices)
            kept |= {position: row for position, row in zip(positions, layer_UD, strict=True) if position in needed}
    # A model with few positions does not read the ends of long sentences.
    within = {word: [position for position in of if position in vectors[0]] for word, of in chosen.items()}
    within = {word: positions for word, positions in within.items() if len(positions) >= LEAST}
    random = [position for position in random if position in vectors[0]]
    if not within:
        raise DataError(
            f"{encoder.family}: no word occurs in {LEAST} of the {len(sentences)} sentences within the model's "
            "positions; raise --sentences"
        )
    measures = []
    for number, (kept, similarities) in enumerate(zip(vectors, intra, strict=True)):
        rng = np.random.default_rng(0)
        random_ND = np.stack([kept[position] for position in random])
        words = {word: np.stack([kept[position] for position in positions]) for word, positions in within.items()}
        like = [random_ND[rng.choice(len(random_ND), len(word_ND), replace=False)] for word_ND in words.values()]
        layer = {
            "anisotropy": self_similarity(random_ND),
            "self_similarity": float(np.mean([self_similarity(word_ND) for word_ND in words.values()])),
            "intra_sentence_similarity": float(np.mean(similarities)),
            "explainable_variance": float(np.mean([explainable_variance(word_ND) for word_ND in words.values()])),
            "random_variance": float(np.mean([explainable_variance(like_ND) for like_ND in like])),
        }
        layer |= {f"adjusted_{key}": layer[key] - layer["anisotropy"] for key in layer if "similarity" in key}
        layer["adjusted_explainable_variance"] = layer["explainable_variance"] - layer["random_variance"]
        measures.append({"layer": number} | layer)
    return measures, words


def _chosen(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Position]]:
    """At most `WORDS` words of letters in at least `LEAST` sentences: word -> one position in each of up to `MOST`."""
    positions: dict[str, dict[int, Position]] = defaultdict(dict)
    for number, sentence in enumerate(sentences):
        for index in range(len(sentence.spans)):
            if of_letters(word := sentence.word(index)):
                positions[word].setdefault(number, (number, index))
    frequent = {word: list(of.values()) for word, of in sorted(positions.items()) if len(of) >= LEAST}
    if not frequent:
        raise DataError(f"no word occurs in {LEAST} of the {len(sentences)} sentences; raise --sentences")
    names = list(frequent)
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[index]: evenly(frequent[names[index]], MOST) for index in kept}
