"""How contextual are contextualised representations? (Ethayarajh 2019, section 3), per layer of an encoder:

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)

In an anisotropic space all vectors are similar. The measure is therefore adjusted by the mean cosine of two randomly
sampled words (the anisotropy).

The senses of a word: its occurrences in two clusters; and pseudo-words (Schuetze 1998), which need no labels: in the
sentences of two words both are replaced by the first of them, the vectors at these places are divided by 2-means, and
the purity of the clusters is compared with that of a random assignment.

Shape suffixes: M words of all sentences, N occurrences, D width.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.data.scoring.intervals import CONFIDENCE, interval
from components.models.encoder import Encoder
from components.studies.frame import Corpus, EncoderName, Measured, Outputs, Row, Sheet
from components.studies.words import Floats, Sentence, evenly, of_letters, plain, sample, search, word_vectors

#: Minimum number of sentences with a measured word (5 in Ethayarajh 2019), maximum number of them that are used, number
#: of words, and number of randomly sampled occurrences for the anisotropy.
LEAST, MOST, WORDS, RANDOM = 5, 50, 400, 1000
#: Minimum and maximum number of occurrences of the word with two senses, and number of examples of each.
OCCURRENCES, SEARCHED, EXAMPLES = 10, 200, 3
#: Number of pseudo-words, and of random assignments to their clusters.
PSEUDO, ASSIGNED = 20, 100

Ints = NDArray[np.int64]
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]


def likeness(vectors_ND: Floats) -> Floats:
    """(N, D) with N at least 2 -> (N,) jackknife pseudo-values, whose mean is the mean cosine over all pairs of
    different rows; the cosine of a zero vector is 0."""
    directions_ND, count = normalize(vectors_ND).astype(np.float64), len(vectors_ND)
    others_N = (directions_ND @ directions_ND.sum(0) - np.square(directions_ND).sum(1)) / (count - 1)
    pseudo_N: Floats = 2 * others_N - others_N.mean()
    return pseudo_N


def of_layer(layer_MD: Floats, words: Sequence[Ints], random: Ints) -> dict[str, Floats]:
    """Measure -> its values: one for each random occurrence, and for each word. `words` and `random` are numbers of
    words in all sentences."""
    cone, own = likeness(layer_MD[random]), np.asarray([likeness(layer_MD[rows]).mean() for rows in words])
    return {"anisotropy": cone, "self-similarity": own, "self-similarity, adjusted": own - cone.mean()}


def positions_of_words(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Position]]:
    """At most `WORDS` words of letters in at least `LEAST` sentences: word -> one position in each of up to `MOST`."""
    positions = defaultdict[str, dict[int, int]](dict)
    for number, of in enumerate(sentences):
        for index, word in enumerate(map(plain, of)):
            positions[word].setdefault(number, index)
    names = sorted(word for word, of in positions.items() if len(of) >= LEAST and of_letters(word))
    if not names:
        raise DataError(f"no word occurs in {LEAST} of the {len(sentences)} sentences; raise --sentences")
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[at]: evenly([*positions[names[at]].items()], MOST) for at in kept}


def measure(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    word: Annotated[str, typer.Option(help="Word whose sentences are shown in two clusters.")] = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=10)] = 1500,
) -> Measured:
    """The measures for each layer of one or several encoders, and the senses of pseudo-words and of a word."""
    layers, moved, merged, senses = list[Row](), list[Row](), list[Row](), list[Row]()
    directory = outputs.of("corpus", corpus)
    for name, loaded in outputs.encoders(encoder).items():
        read = sample(directory, loaded.tokenizer.segmentation, count=sentences)
        rng = np.random.default_rng(0)
        positions = positions_of_words(read, rng)
        vectors, starts = word_vectors(loaded, read)
        words = [np.asarray([starts[number] + index for number, index in at]) for at in positions.values()]
        random = np.sort(rng.choice(len(vectors[0]), min(RANDOM, len(vectors[0])), replace=False))
        values = [of_layer(layer, words, random) for layer in vectors]
        layers += [{"encoder": name, "layer": number} | _intervals(of) for number, of in enumerate(values)]
        change = _intervals({key: values[-1][key] - values[0][key] for key in values[0]})
        moved.append({"encoder": name, "layers": len(values) - 1} | change)
        merged.append({"encoder": name} | pseudo_words(loaded, read, positions))
        senses += senses_of(loaded, directory, word, name) if word else []
    sheets = [
        Sheet(layers, "By layer; 0 is the embedding", value="anisotropy", x="layer"),
        Sheet(moved, "Change from the embedding to the last layer", value="self-similarity, adjusted", reference=0.0),
        Sheet(merged, "Pseudo-words: purity of two clusters in the last layer", value="gain", reference=0.0),
        *([Sheet(senses, f"Sentences with {word!r} nearest to the centre of each cluster")] if senses else []),
    ]
    text = (
        "Self-similarity: similarity of a word's vectors in different sentences; the lower it is, the more they depend "
        "on the context. Adjusted: minus the anisotropy, the similarity of random words (Ethayarajh 2019). Intervals "
        "are over words, and for the anisotropy random occurrences. Pseudo-words: two words are written as one, and "
        "the clusters of its vectors compared with the words; chance is a random assignment."
    )
    return Measured(sheets, [text])


def _intervals(values: Mapping[str, Floats]) -> Row:
    return {key: interval(of.astype(np.float64), confidence=CONFIDENCE) for key, of in values.items()}


def last_vectors(encoder: Encoder, places: Sequence[tuple[Sentence, int]]) -> Floats:
    """(N, D) vectors of the last layer at the places (sentence, word)."""
    layers, starts = word_vectors(encoder, [sentence for sentence, _ in places])
    last: Floats = layers[-1][starts + [index for _, index in places]]
    return last


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


def purity(clusters_N: Ints, words_N: Ints) -> float:
    """Share of the occurrences that belong to the most frequent word of their cluster."""
    return float(contingency_matrix(words_N, clusters_N).max(0).sum() / len(words_N))


def pseudo_words(
    encoder: Encoder, sentences: Sequence[Sentence], words: Mapping[str, Sequence[Position]]
) -> dict[str, Any]:
    """The mean purity of the two clusters of pseudo-words in the last layer, that of random assignments, and the gain
    with its interval over pseudo-words. Each is made of two words with similar numbers of occurrences."""
    rng, pairs = np.random.default_rng(0), list[tuple[float, float]]()
    by_count = sorted(words, key=lambda word: (-len(words[word]), word))
    for first, second in list(pairwise(by_count))[: 2 * PSEUDO : 2]:
        places = [
            ([*sentences[number][:index], first, *sentences[number][index + 1 :]], index)
            for number, index in (*words[first], *words[second])
        ]
        words_N = np.repeat([0, 1], [len(words[first]), len(words[second])])
        clusters_N = two_senses(last_vectors(encoder, places))[0]
        chance = np.mean([purity(clusters_N, rng.permutation(words_N)) for _ in range(ASSIGNED)])
        pairs.append((purity(clusters_N, words_N), float(chance)))
    means = np.mean(pairs, 0).tolist() if pairs else [None, None]
    gain = interval(np.asarray([of - chance for of, chance in pairs]), confidence=CONFIDENCE) if pairs[1:] else None
    return {"pseudo-words": len(pairs), "purity": means[0], "chance": means[1], "gain": gain}


def senses_of(encoder: Encoder, corpus: Path, word: str, name: str) -> list[Row]:
    """Rows of examples of the occurrences of a word in the last layer, in two clusters."""
    occurrences = search(corpus, encoder.tokenizer.segmentation, word, count=SEARCHED)
    if len(occurrences) < OCCURRENCES:
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus; at least {OCCURRENCES} are needed")
    directions_ND, rows = normalize(last_vectors(encoder, occurrences)), list[Row]()
    clusters_N, silhouette = two_senses(directions_ND)
    for cluster in np.unique(clusters_N):
        members = np.flatnonzero(clusters_N == cluster)
        nearest = members[np.argsort(-(directions_ND[members] @ directions_ND[members].mean(0)), kind="stable")]
        label = f"{'AB'[cluster]} ({len(members)})"
        for sentence, index in (occurrences[row] for row in nearest[:EXAMPLES]):
            shown = " ".join([*sentence[max(0, index - 8) : index], f"[{sentence[index]}]", *sentence[index + 1 :][:8]])
            rows.append({"encoder": name, "silhouette": silhouette, "cluster": label, "sentence": shown})
    return rows
