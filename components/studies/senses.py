"""The senses of a word: its occurrences in two clusters; and pseudo-words (Schuetze 1998), which need no labels: in the
sentences of two words both are replaced by the first of them, the vectors at these places are divided by 2-means, and
the purity of the clusters is compared with that of a random assignment.

Shape suffixes: N occurrences, D width.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.data.scoring.intervals import CONFIDENCE, interval
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Cloud
from components.reporting.findings import Drawing
from components.studies.frame import Row
from components.studies.occurrences import Floats, Position, Sentence, planar, search, states, two_senses

#: Minimum number of occurrences of the word with two senses, minimum fraction of them in each, maximum plotted, and
#: number of examples of each sense.
LEAST, SHARE, PLOTTED, EXAMPLES = 10, 0.2, 200, 3
#: Number of pseudo-words, and of random assignments to their clusters.
PSEUDO, ASSIGNED = 20, 100


def purity(clusters_N: NDArray[np.int64], words_N: NDArray[np.int64]) -> float:
    """Share of the occurrences that belong to the most frequent word of their cluster."""
    counts = np.zeros((2, 2))
    np.add.at(counts, (clusters_N, words_N), 1)
    return float(counts.max(1).sum() / len(words_N))


def last_states(encoder: Encoder, places: Sequence[tuple[Sentence, int]]) -> tuple[list[int], Floats]:
    """The numbers of the places (sentence, word) within the model's positions, and (N, D) their last states."""
    read = [
        (number, layers[-1][indices.index(places[number][1])])
        for number, indices, layers in states(encoder, [sentence for sentence, _ in places])
        if places[number][1] in indices
    ]
    return [number for number, _ in read], np.stack([state for _, state in read]) if read else np.zeros(
        (0, 1), dtype=np.float32
    )


def pseudo_words(
    encoder: Encoder, sentences: Sequence[Sentence], words: Mapping[str, Sequence[Position]]
) -> dict[str, Any]:
    """The mean purity of the two clusters of pseudo-words in the last layer, that of random assignments, and the gain
    with its interval over pseudo-words. Each is made of two words with similar numbers of occurrences."""
    rng, pairs = np.random.default_rng(0), list[tuple[float, float]]()
    by_count = sorted(words, key=lambda word: (-len(words[word]), word))
    for first, second in list(pairwise(by_count))[: 2 * PSEUDO : 2]:
        positions = [*words[first], *words[second]]
        places = [(sentences[number].replaced(index, first), index) for number, index in positions]
        kept, vectors_ND = last_states(encoder, places)
        words_N = (np.asarray(kept) >= len(words[first])).astype(np.int64)
        if np.ptp(words_N):
            clusters_N = two_senses(vectors_ND)[0]
            chance = np.mean([purity(clusters_N, rng.permutation(words_N)) for _ in range(ASSIGNED)])
            pairs.append((purity(clusters_N, words_N), float(chance)))
    means = np.mean(pairs, 0).tolist() if pairs else [None, None]
    gain = interval(np.asarray([of - chance for of, chance in pairs]), confidence=CONFIDENCE) if pairs[1:] else None
    return {"pseudo-words": len(pairs), "purity": means[0], "chance": means[1], "gain": gain}


def senses_of(encoder: Encoder, corpus: Path, word: str, name: str) -> tuple[list[Row], Drawing, float]:
    """The occurrences of a word in the last layer: rows of examples, a map, and the silhouette of two clusters."""
    occurrences = search(corpus, encoder.tokenizer.segmentation, word, count=PLOTTED)
    kept, vectors_ND = last_states(encoder, occurrences)
    if len(kept) < LEAST:
        within = f", {len(kept)} of them within the positions of {name}" if occurrences else ""
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus{within}; at least {LEAST} are needed")
    directions_ND = normalize(vectors_ND)
    clusters_N, silhouette = two_senses(directions_ND)
    positions_N2 = planar(directions_ND)
    rows, clouds = list[Row](), {}
    for cluster in np.unique(clusters_N):
        members = np.flatnonzero(clusters_N == cluster)
        nearest = members[np.argsort(-(directions_ND[members] @ directions_ND[members].mean(0)), kind="stable")]
        label = f"{'AB'[cluster]} ({len(members)})"
        examples = (occurrences[kept[row]] for row in nearest[:EXAMPLES])
        rows += [{"encoder": name, "cluster": label, "sentence": of.snippet(index)} for of, index in examples]
        clouds[label] = Cloud(*positions_N2[members].T.tolist())
    caption = f"{name}: occurrences of {word!r}, last layer, two principal components."
    return rows, Drawing(figures.scatter(clouds), caption), silhouette


def clearest(words: Mapping[str, Floats]) -> str:
    """The word whose occurrences (N, D) form the clearest two clusters."""
    best = ("", -1.0)
    for word, vectors_ND in words.items():
        if len(vectors_ND) >= 2 * LEAST and len(word) >= 3:
            clusters_N, silhouette = two_senses(vectors_ND)
            if silhouette > best[1] and clusters_N.mean() >= SHARE:
                best = (word, silhouette)
    # In a small sample no word may be frequent enough.
    return best[0] or max(words, key=lambda word: len(words[word]))
