"""The senses of a word: its occurrences in two clusters; and pseudo-words (Schuetze 1998), which need no labels: in the
sentences of two words both are replaced by the first of them, the vectors at these places are divided by 2-means, and
the purity of the clusters is compared with that of a random assignment.

Shape suffixes: N occurrences, D width.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.models.encoder import Encoder
from components.studies.frame import Row, over
from components.studies.words import Floats, Sentence, search, word_vectors

#: Minimum and maximum number of occurrences of the word with two senses, and number of examples of each.
OCCURRENCES, SEARCHED, EXAMPLES = 10, 200, 3
#: Number of pseudo-words, and of random assignments to their clusters.
PSEUDO, ASSIGNED = 20, 100

Ints = NDArray[np.int64]
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]


def two_senses(vectors_ND: Floats) -> tuple[Ints, float]:
    """2-means on the normalised vectors.

    Returns:
        (N,) cluster of each occurrence, 0 for the larger one; and the silhouette, 1 for clearly separated clusters.
    """
    directions_ND = normalize(vectors_ND)
    if len(np.unique(directions_ND.round(5), axis=0)) < 2:
        return np.zeros(len(vectors_ND), dtype=np.int64), 0.0
    clusters_N = KMeans(2, n_init=5, random_state=0).fit_predict(directions_ND).astype(np.int64)
    return clusters_N ^ (clusters_N.mean() > 0.5), float(silhouette_score(directions_ND, clusters_N))


def last_vectors(encoder: Encoder, places: Sequence[tuple[Sentence, int]]) -> Floats:
    """(N, D) vectors of the last layer at the places (sentence, word)."""
    layers, starts = word_vectors(encoder, [sentence for sentence, _ in places])
    last: Floats = layers[-1][starts + [index for _, index in places]]
    return last


def purity(clusters_N: Ints, words_N: Ints) -> float:
    """Share of the occurrences that belong to the most frequent word of their cluster."""
    return float(contingency_matrix(words_N, clusters_N).max(0).sum() / len(words_N))


def pseudo_words(encoder: Encoder, sentences: Sequence[Sentence], words: Mapping[str, Sequence[Position]]) -> Row:
    """The mean purity of the two clusters of pseudo-words in the last layer, that of random assignments, and the gain
    with its interval over pseudo-words. Each is made of two words with similar numbers of occurrences."""
    rng, pairs = np.random.default_rng(0), list[tuple[float, float]]()
    by_count = sorted(words, key=lambda word: (-len(words[word]), word))[: 2 * PSEUDO]
    for first, second in zip(by_count[::2], by_count[1::2], strict=False):
        words_N, places = np.repeat([0, 1], [len(words[first]), len(words[second])]), []
        for number, index in (*words[first], *words[second]):
            of = sentences[number]
            places.append(([*of[:index], first, *of[index + 1 :]], index))
        clusters_N = two_senses(last_vectors(encoder, places))[0]
        chance = np.mean([purity(clusters_N, rng.permutation(words_N)) for _ in range(ASSIGNED)])
        pairs.append((purity(clusters_N, words_N), float(chance)))
    means = np.mean(pairs, 0).tolist() if pairs else [None, None]
    gain = over([of - chance for of, chance in pairs]) if pairs[1:] else None
    return {"pseudo-words": len(pairs), "purity": means[0], "chance": means[1], "gain": gain}


def senses_of(encoder: Encoder, corpus: Path, word: str) -> list[Row]:
    """Rows of examples of the occurrences of a word in the last layer, in two clusters."""
    occurrences, rows = search(corpus, encoder.tokenizer.segmentation, word, count=SEARCHED), list[Row]()
    if len(occurrences) < OCCURRENCES:
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus; at least {OCCURRENCES} are needed")
    directions_ND = normalize(last_vectors(encoder, occurrences))
    clusters_N, silhouette = two_senses(directions_ND)
    for cluster in np.unique(clusters_N):
        members = np.flatnonzero(clusters_N == cluster)
        nearest = members[np.argsort(-(directions_ND[members] @ directions_ND[members].mean(0)), kind="stable")]
        for sentence, index in (occurrences[row] for row in nearest[:EXAMPLES]):
            shown = " ".join([*sentence[max(0, index - 8) : index], f"[{sentence[index]}]", *sentence[index + 1 :][:8]])
            label = f"{'AB'[cluster]} ({len(members)})"
            rows.append({"silhouette": silhouette, "cluster": label, "sentence": shown})
    return rows
