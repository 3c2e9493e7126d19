"""How contextual are contextualised representations (Ethayarajh 2019, section 3), and do they know the order of words?

contextuality    per layer of an encoder, the self-similarity of a word: the mean over pairs of its occurrences of
                 cos(x_i, x_j). In an anisotropic space all vectors are similar. The measure is therefore adjusted by
                 the mean cosine of two randomly sampled words (the anisotropy).
                 Senses: pseudo-words (Schuetze 1998) need no labels. In the sentences of two words both are replaced by
                 the first of them, the vectors at these places are divided by 2-means, and the purity of the clusters
                 is compared with that of a random assignment.
word_order       a logistic regression on the mean of a layer's word vectors tells a sentence from the same words in a
                 random order. For static vectors half of the answers are right.

A sentence is a list of words as they are written between spaces, with the marks beside them (in Thai, as its dictionary
separates them). Shape suffixes: M words of all sentences or vectors of all rows, N occurrences or sentences, D width.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import regex
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.cluster import contingency_matrix
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from components.core.errors import DataError
from components.data.formats.corpus import read_documents, shards
from components.data.formats.words import words_of
from components.data.segmenters import SEGMENTERS, Segmentation
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.models.encoder import Encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.studies.frame import Corpus, Outputs, Parts, Row, Rows, Sheet, over
from components.tokenization.store import measure
from components.tokenization.tokenize import sentence_starts

#: Minimum and maximum number of words of a sentence; longer ones are usually lists or tables.
LEAST_WORDS, MOST_WORDS = 5, 60
#: Minimum number of sentences with a measured word (5 in Ethayarajh 2019), maximum number of them that are used, number
#: of words, and number of randomly sampled occurrences for the anisotropy.
LEAST, MOST, WORDS, RANDOM = 5, 50, 400, 1000
#: Number of pseudo-words, and of random assignments to their clusters.
PSEUDO, ASSIGNED = 20, 100
#: Inverse strength of the regression's penalty; share of the sentences whose answers are counted.
C, TESTED = 0.01, 0.5
#: How sentences are read; the other settings of fine-tuning do not apply.
READING = FinetuneSettings(training=Training(rate=1.0, batch_size=1), max_length=256).model_copy(
    update={"method": "features", "layers": "all", "pooling": "mean"}
)
_MARKS = regex.compile(r"^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$")
_LETTERS = regex.compile(r"[\p{L}\p{M}]*\p{L}[\p{L}\p{M}]*")

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
Sentence = list[str]
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]
Item = TypeVar("Item")


def plain(word: str) -> str:
    """A word without the marks beside it, case-folded; empty for marks alone."""
    return str(_MARKS.sub("", word)).casefold()


def of_letters(word: str) -> bool:
    """Whether a word consists of letters and combining marks, which are common in Thai or Hindi."""
    return _LETTERS.fullmatch(word) is not None


def sentences_of(text: str, segmentation: Segmentation) -> Iterator[Sentence]:
    """The sentences of a document with an allowed number of words, in order."""
    thai = segmentation.choose(text) is SEGMENTERS["thai"]
    for start, end in pairwise([*sentence_starts(text, thai=thai), len(text)]):
        part = text[start:end]
        words = [part[slice(*span)] for span in words_of(part, segmentation, marks="joined")]
        if LEAST_WORDS <= sum(map(bool, map(plain, words))) <= MOST_WORDS:
            yield words


def sample(corpus: Path, segmentation: Segmentation, *, count: int) -> list[Sentence]:
    """At most `count` sentences of different documents, evenly spread over the corpus."""
    # Twice as many documents, because some have no such sentence.
    documents = evenly(range(sum(measure(shard).documents for shard in shards(corpus))), 2 * count)
    chosen, texts = set(documents), enumerate(read_documents(corpus))
    firsts = (next(sentences_of(text, segmentation), []) for number, text in texts if number in chosen)
    if not (sampled := [*filter(None, firsts)]):
        raise DataError(f"{corpus}: contains no sentence of {LEAST_WORDS} to {MOST_WORDS} words")
    return evenly(sampled, count)


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items, evenly spaced, in order."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def word_vectors(encoder: Encoder, sentences: Sequence[Sentence]) -> tuple[list[Floats], Ints]:
    """(M, D_l) float32 vectors of all words in the embedding and each layer, lowest first (`unit_states`), and the
    number of the first word of each sentence. Sentences beyond the model's positions are read in windows."""
    model = TaskModel(encoder.model, task=find_task("tagging"), settings=READING, labels=["no", "yes"]).eval()
    read = Predictor(model).read(model.encode([*map(tuple, sentences)], encoder.tokenizer))
    joined = np.concatenate([*chain(*(row.vectors for row in read))])
    vectors = np.split(joined, np.cumsum(model.features.widths)[:-1], axis=1)
    return vectors, np.cumsum([0, *map(len, sentences)])[:-1]


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


def contextuality(outputs: Outputs, *, encoder: str = "", corpus: Corpus = "domain", sentences: int = 1500) -> Parts:
    """The measures for each layer of one or several encoders, and the senses of pseudo-words."""
    layers, moved, merged = Rows(), Rows(), Rows()
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
    yield Sheet(layers, "By layer; 0 is the embedding", value="anisotropy", x="layer")
    adjusted = "self-similarity, adjusted"
    yield Sheet(moved, "Change from the embedding to the last layer", value=adjusted, reference=0.0)
    yield Sheet(merged, "Pseudo-words: purity of two clusters in the last layer", value="gain", reference=0.0)


def two_clusters(vectors_ND: Floats) -> Ints:
    """(N,) cluster of each vector by 2-means on the normalised vectors; equal vectors are one cluster."""
    directions_ND = normalize(vectors_ND)
    if len(np.unique(directions_ND.round(5), axis=0)) < 2:
        return np.zeros(len(vectors_ND), dtype=np.int64)
    return KMeans(2, n_init=5, random_state=0).fit_predict(directions_ND).astype(np.int64)


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
        layers, starts = word_vectors(encoder, written)
        clusters_N = two_clusters(layers[-1][starts + [index for _, index in at]])
        chance = np.mean([purity(clusters_N, rng.permutation(words_N)) for _ in range(ASSIGNED)])
        pairs.append((purity(clusters_N, words_N), float(chance)))
    means = np.mean(pairs, 0).tolist() if pairs else [None, None]
    gain = over([of - chance for of, chance in pairs]) if pairs[1:] else None
    return {"pseudo-words": len(pairs), "purity": means[0], "chance": means[1], "gain": gain}


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
