"""How contextual are contextualised representations (Ethayarajh 2019, section 3), and do they know the order of words?

contextuality    per layer of an encoder, the self-similarity of a word: the mean over pairs of its occurrences of
                 cos(x_i, x_j). In an anisotropic space all vectors are similar. The measure is therefore adjusted by
                 the mean cosine of two randomly sampled words (the anisotropy).
                 The senses of a word: its occurrences in two clusters; and pseudo-words (Schuetze 1998), which need no
                 labels: in the sentences of two words both are replaced by the first of them, the vectors at these
                 places are divided by 2-means, and the purity of the clusters is compared with that of a random
                 assignment.
word_order       a logistic regression on the mean of a layer's word vectors tells a sentence from the same words in a
                 random order. For static vectors half of the answers are right.

Shape suffixes: M words of all sentences, N occurrences or sentences, D width.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from components.core.errors import DataError
from components.models.encoder import Encoder
from components.studies.frame import Corpus, Outputs, Parts, Row, Rows, Sheet, over
from components.studies.words import Floats, Sentence, evenly, of_letters, plain, sample, search, word_vectors

#: Minimum number of sentences with a measured word (5 in Ethayarajh 2019), maximum number of them that are used, number
#: of words, and number of randomly sampled occurrences for the anisotropy.
LEAST, MOST, WORDS, RANDOM = 5, 50, 400, 1000
#: Minimum and maximum number of occurrences of the word with two senses, and number of examples of each.
OCCURRENCES, SEARCHED, EXAMPLES = 10, 200, 3
#: Number of pseudo-words, and of random assignments to their clusters.
PSEUDO, ASSIGNED = 20, 100
#: Inverse strength of the regression's penalty; share of the sentences whose answers are counted.
C, TESTED = 0.01, 0.5

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


def contextuality(
    outputs: Outputs, *, encoder: str = "", word: str = "", corpus: Corpus = "domain", sentences: int = 1500
) -> Parts:
    """The measures for each layer of one or several encoders, and the senses of pseudo-words and of a word."""
    layers, moved, merged, senses = Rows(), Rows(), Rows(), Rows()
    directory = outputs.of("corpus", corpus)
    for name, loaded in outputs.encoders(encoder).items():
        read, rng = sample(directory, loaded.tokenizer.segmentation, count=sentences), np.random.default_rng(0)
        positions, (vectors, starts) = positions_of_words(read, rng), word_vectors(loaded, read)
        words = [np.asarray([starts[number] + index for number, index in at]) for at in positions.values()]
        random = np.sort(rng.choice(len(vectors[0]), min(RANDOM, len(vectors[0])), replace=False))
        values, named = list[dict[str, Floats]](), {"encoder": name}
        for layer, vectors_MD in enumerate(vectors):
            # One value for each random occurrence, and for each word.
            cone, similar = likeness(vectors_MD[random]), np.asarray([likeness(vectors_MD[of]).mean() for of in words])
            of = {"anisotropy": cone, "self-similarity": similar, "self-similarity, adjusted": similar - cone.mean()}
            layers.append(named | {"layer": layer} | {key: over(each) for key, each in of.items()})
            values.append(of)
        change = {key: over(values[-1][key] - first) for key, first in values[0].items()}
        moved.append(named | {"layers": len(values) - 1} | change)
        merged.append(named | pseudo_words(loaded, read, positions))
        senses += [named | of for of in senses_of(loaded, directory, word)] if word else []
    yield Sheet(layers, "By layer; 0 is the embedding", value="anisotropy", x="layer")
    adjusted = "self-similarity, adjusted"
    yield Sheet(moved, "Change from the embedding to the last layer", value=adjusted, reference=0.0)
    yield Sheet(merged, "Pseudo-words: purity of two clusters in the last layer", value="gain", reference=0.0)
    yield Sheet(senses, f"Sentences with {word!r} nearest to the centre of each cluster")


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
        words_N, at = np.repeat([0, 1], [len(words[first]), len(words[second])]), [*words[first], *words[second]]
        written = [[*sentences[number][:index], first, *sentences[number][index + 1 :]] for number, index in at]
        clusters_N, _ = two_senses(last_vectors(encoder, [*zip(written, (index for _, index in at), strict=True)]))
        chance = np.mean([purity(clusters_N, rng.permutation(words_N)) for _ in range(ASSIGNED)])
        pairs.append((purity(clusters_N, words_N), float(chance)))
    means = np.mean(pairs, 0).tolist() if pairs else [None, None]
    gain = over([of - chance for of, chance in pairs]) if pairs[1:] else None
    return {"pseudo-words": len(pairs), "purity": means[0], "chance": means[1], "gain": gain}


def senses_of(encoder: Encoder, corpus: Path, word: str) -> Rows:
    """Rows of examples of the occurrences of a word in the last layer, in two clusters."""
    occurrences, rows = search(corpus, encoder.tokenizer.segmentation, word, count=SEARCHED), Rows()
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


def word_order(
    outputs: Outputs, *, encoder: str = "", corpus: Corpus = "domain", sentences: int = 2000, seeds: int = 3
) -> Parts:
    """The accuracy by layer of one or several encoders."""
    directory, rows = outputs.of("corpus", corpus), Rows()
    for name, loaded in outputs.encoders(encoder).items():
        read = sample(directory, loaded.tokenizer.segmentation, count=sentences)
        # Without marks and capitals, which show where a sentence begins and ends.
        words = [[*filter(None, map(plain, of))] for of in read]
        ordered = means(loaded, words)
        by_layer = zip(*(accuracies(loaded, words, ordered, seed) for seed in range(seeds)), strict=True)
        values = enumerate(over(of, within=(0.0, 1.0)) for of in by_layer)
        rows += [{"encoder": name, "layer": layer, "accuracy": of} for layer, of in values]
    yield Sheet(rows, f"{corpus} text; 0 is the embedding", value="accuracy", x="layer")


def accuracies(encoder: Encoder, read: Sequence[Sentence], ordered: Sequence[Floats], seed: int) -> list[float]:
    """By layer: the accuracy on the sentences that are not learned; `ordered` are the `means` of the sentences."""
    rng, labels, results = np.random.default_rng(seed), np.repeat([1, 0], len(read)), []
    shuffled = means(encoder, [rng.permutation(np.asarray(words, dtype=object)).tolist() for words in read])
    tested = np.tile(rng.permutation(len(read)) < max(1, round(TESTED * len(read))), 2)
    for layer in map(np.concatenate, zip(ordered, shuffled, strict=True)):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
        results.append(model.fit(layer[~tested], labels[~tested]).score(layer[tested], labels[tested]))
    return results


def means(encoder: Encoder, read: Sequence[Sentence]) -> list[Floats]:
    """(N, D_l) mean of the vectors of the words of each sentence, by layer. The sum is computed in float64, so that it
    does not depend on the order of static vectors."""
    layers, starts = word_vectors(encoder, read)
    lengths = np.asarray([*map(len, read)])[:, None]
    return [(np.add.reduceat(of.astype(np.float64), starts) / lengths).astype(np.float32) for of in layers]
