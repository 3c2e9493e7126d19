"""How contextual are contextualised representations? (Ethayarajh 2019, section 3; per layer)

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)
    intra-sentence similarity         mean over the words of a sentence of cos(x_i, mean of x)
    maximum explainable variance      s_1^2 / sum_i s_i^2 of the singular values of the matrix of a word's occurrences

In an anisotropic space all vectors are similar, also those of unrelated words. Each measure is therefore adjusted by
its value for randomly sampled words: both similarities by the mean cosine of two of them (the anisotropy), the variance
by that of equally many of them. The study also shows the senses of one word: its occurrences in the plane of the first
two principal components, clustered by 2-means.

Shape suffixes: N occurrences, D width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from components.errors import DataError
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Cloud, Line
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.neighbours import planar
from components.studies.occurrences import Sentence, evenly, of_letters, sample, search, states
from components.studies.outputs import Outputs

#: Minimum number of sentences with a word (5 in Ethayarajh 2019), and maximum number of them that are used.
LEAST, MOST = 5, 50
#: Number of measured words, and of randomly sampled occurrences for the anisotropy.
WORDS, RANDOM = 400, 1000
#: Minimum number of occurrences of the word with two senses, and minimum fraction of them in each sense.
SENSE_LEAST, SENSE_SHARE = 20, 0.2
#: Maximum number of plotted occurrences of that word, and examples of each sense.
PLOTTED, EXAMPLES = 200, 3
#: Silhouette (between -1 and 1) below which the clusters do not count as two senses.
SEPARATE = 0.1

Floats = NDArray[np.float32]
#: (number of the sentence, index of the word in it)
Position = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """Means over words (self-similarity, variance) or sentences (intra-sentence similarity) of one layer.

    Attributes:
        layer: number; 0 is the embedding.
        anisotropy: mean cosine of two random words.
        self_similarity: see above.
        intra_sentence_similarity: see above.
        explainable_variance: maximum explainable variance.
        random_variance: maximum explainable variance of random words.
    """

    layer: int
    anisotropy: float
    self_similarity: float
    intra_sentence_similarity: float
    explainable_variance: float
    random_variance: float

    def as_dict(self) -> dict[str, float]:
        """The measures and their adjusted values."""
        return asdict(self) | {
            "adjusted_self_similarity": self.self_similarity - self.anisotropy,
            "adjusted_intra_sentence_similarity": self.intra_sentence_similarity - self.anisotropy,
            "adjusted_explainable_variance": self.explainable_variance - self.random_variance,
        }


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="Encoder, such as bert-adapted; one per family by default.")] = "",
    word: Annotated[str, typer.Option(help="Word whose senses are shown; the clearest case by default.")] = "",
    corpus: Annotated[Literal["domain", "general"], typer.Option(help="Corpus of the sentences.")] = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=10)] = 1500,
) -> Findings:
    """The three measures for each layer of one or several encoders, and the senses of a word.

    Raises:
        ConfigError: unknown encoder.
        ArtifactError: a required stage has not run.
        DataError: no word is frequent enough, or `word` occurs fewer than ten times.
    """
    chapter = Chapter("How contextual are the representations?")
    directory = outputs.directory("corpus", corpus, stage=f"ingest --item {corpus}")
    found: dict[str, list[Layer]] = {}
    senses: dict[str, Any] = {}
    for block, start in outputs.chosen(encoder):
        name = f"{block}-{start}"
        loaded = outputs.encoder(block, start)
        segmentation = loaded.tokenizer.segmentation
        read = _Read.of(loaded, sample(directory, segmentation, count=sentences))
        found[name] = read.layers()
        # The same word for all encoders, for comparison.
        word = word or read.ambiguous()
        occurrences = search(directory, segmentation, word, count=PLOTTED)
        senses[name], drawing, table = _senses(loaded, occurrences, word=word, name=name)
        chapter.figures.append(drawing)
        chapter.tables.append(table)
    chapter.lead = [_sentence(name, layers) for name, layers in found.items()]
    chapter.lead += [part["sentence"] for part in senses.values()]
    columns = ["encoder", "layer", "anisotropy", "self-similarity", "adjusted", "within a sentence", "adjusted"]
    columns += ["variance", "adjusted"]
    rows = [
        [
            name,
            str(layer.layer),
            *(
                f"{entry[key]:.3f}"
                for key in (
                    "anisotropy",
                    "self_similarity",
                    "adjusted_self_similarity",
                    "intra_sentence_similarity",
                    "adjusted_intra_sentence_similarity",
                    "explainable_variance",
                    "adjusted_explainable_variance",
                )
            ),
        ]
        for name, layers in found.items()
        for layer in layers
        if (entry := layer.as_dict())
    ]
    chapter.tables.insert(0, Table(columns, rows, "By layer; 0 is the embedding"))
    labels = {
        "adjusted_self_similarity": "self-similarity, adjusted",
        "adjusted_intra_sentence_similarity": "intra-sentence similarity, adjusted",
        "adjusted_explainable_variance": "explainable variance, adjusted",
        "anisotropy": "anisotropy",
    }
    for number, (key, label) in enumerate(labels.items()):
        curves = {
            name: Line([layer.layer for layer in layers], [layer.as_dict()[key] for layer in layers])
            for name, layers in found.items()
        }
        svg = figures.lines(curves, x_label="layer", y_label=label, ticks=True)
        chapter.figures.insert(number, Drawing(svg, f"{label[0].upper()}{label[1:]}, by layer."))
    chapter.text.append(
        "Self-similarity: similarity of a word's vectors in different sentences; the lower it is, the more they depend "
        "on the context. Variance: fraction of the variance of a word's vectors that a single vector explains. "
        "Adjusted: minus the value for random words (Ethayarajh 2019)."
    )
    numbers = {
        name: {"layers": [layer.as_dict() for layer in layers], "senses": senses[name]}
        for name, layers in found.items()
    }
    return Findings(chapter, numbers)


def self_similarity(vectors_ND: Floats) -> float:
    """(N, D) with N at least 2 -> mean cosine over all pairs of different rows; 0 for a zero vector."""
    directions_ND, count = _directions(vectors_ND).astype(np.float64), len(vectors_ND)
    total = float(np.square(directions_ND.sum(0)).sum() - np.square(directions_ND).sum())
    return total / (count * (count - 1))


def intra_sentence_similarity(vectors_ND: Floats) -> float:
    """(N, D) -> mean cosine between the rows and their mean."""
    mean_D = _directions(vectors_ND.mean(0, keepdims=True))[0]
    return float((_directions(vectors_ND) @ mean_D).mean())


def explainable_variance(vectors_ND: Floats) -> float:
    """(N, D) -> fraction of the sum of squares along the first principal axis (not centred, as in the paper); 1 if all
    vectors are zero."""
    squares = np.square(np.linalg.svd(vectors_ND, compute_uv=False).astype(np.float64))
    return float(squares[0] / squares.sum()) if squares.any() else 1.0


def _directions(vectors_ND: Floats) -> Floats:
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    directions: Floats = vectors_ND / np.maximum(lengths_N1, 1e-12)
    return directions


@dataclass
class _Read:
    """Hidden states of an encoder for a sample of sentences.

    Attributes:
        words: word -> positions of its occurrences.
        random: positions of random words.
        vectors: for each layer, position -> (D,) state, for all positions in `words` and `random`.
        intra: for each layer, the intra-sentence similarity of every sentence.
    """

    words: dict[str, list[Position]]
    random: list[Position]
    vectors: list[dict[Position, Floats]]
    intra: list[list[float]]

    @classmethod
    def of(cls, encoder: Encoder, sentences: Sequence[Sentence]) -> _Read:
        """Compute the states in one pass over the sentences; only those that are needed are kept.

        Raises:
            DataError: no word occurs in enough sentences, within the model's positions.
        """
        rng = np.random.default_rng(0)
        words = _chosen(sentences, rng)
        everywhere = [(number, index) for number, one in enumerate(sentences) for index in range(len(one.spans))]
        picked = rng.choice(len(everywhere), min(RANDOM, len(everywhere)), replace=False)
        random = [everywhere[index] for index in np.sort(picked)]
        needed = {position for positions in words.values() for position in positions} | set(random)
        vectors: list[dict[Position, Floats]] = []
        intra: list[list[float]] = []
        for number, indices, layers in states(encoder, sentences):
            vectors = vectors or [{} for _ in layers]
            intra = intra or [[] for _ in layers]
            for kept, similarities, layer in zip(vectors, intra, layers, strict=True):
                if len(indices) > 1:
                    similarities.append(intra_sentence_similarity(layer))
                for row, index in enumerate(indices):
                    if (number, index) in needed:
                        kept[number, index] = layer[row]
        # A model with few positions does not read the ends of long sentences.
        read = vectors[0].keys()
        read_of = {word: [position for position in own if position in read] for word, own in words.items()}
        words = {word: own for word, own in read_of.items() if len(own) >= LEAST}
        if not words:
            raise DataError(
                f"{encoder.family}: no word occurs in {LEAST} of the {len(sentences)} sentences within the model's "
                "positions; raise --sentences"
            )
        return cls(words, [position for position in random if position in read], vectors, intra)

    def layers(self) -> list[Layer]:
        """The measures of every layer."""
        found = []
        for number, (vectors, intra) in enumerate(zip(self.vectors, self.intra, strict=True)):
            random_ND = np.stack([vectors[position] for position in self.random])
            rng = np.random.default_rng(0)
            of_words = [np.stack([vectors[position] for position in own]) for own in self.words.values()]
            sampled = [random_ND[rng.choice(len(random_ND), len(word_ND), replace=False)] for word_ND in of_words]
            found.append(
                Layer(
                    layer=number,
                    anisotropy=self_similarity(random_ND),
                    self_similarity=float(np.mean([self_similarity(word_ND) for word_ND in of_words])),
                    intra_sentence_similarity=float(np.mean(intra)),
                    explainable_variance=float(np.mean([explainable_variance(word_ND) for word_ND in of_words])),
                    random_variance=float(np.mean([explainable_variance(sampled_ND) for sampled_ND in sampled])),
                )
            )
        return found

    def ambiguous(self) -> str:
        """The word whose occurrences have the highest silhouette of two clusters in the last layer."""
        best = ("", -1.0)
        for word, positions in self.words.items():
            if len(positions) < SENSE_LEAST or len(word) < 3:
                continue
            clusters_N, silhouette = two_senses(np.stack([self.vectors[-1][position] for position in positions]))
            share = float(clusters_N.mean())
            if silhouette > best[1] and min(share, 1 - share) >= SENSE_SHARE:
                best = (word, silhouette)
        # In a small sample no word may be frequent enough.
        return best[0] or max(self.words, key=lambda word: len(self.words[word]))


def _chosen(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Position]]:
    """At most `WORDS` words of letters in at least `LEAST` sentences: word -> one position in each of up to `MOST`."""
    positions: dict[str, dict[int, Position]] = defaultdict(dict)
    for number, one in enumerate(sentences):
        for index in range(len(one.spans)):
            if of_letters(word := one.word(index)):
                positions[word].setdefault(number, (number, index))
    frequent = {word: list(found.values()) for word, found in sorted(positions.items()) if len(found) >= LEAST}
    if not frequent:
        raise DataError(f"no word occurs in {LEAST} of the {len(sentences)} sentences; raise --sentences")
    names = list(frequent)
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[index]: evenly(frequent[names[index]], MOST) for index in kept}


def two_senses(vectors_ND: Floats) -> tuple[NDArray[np.int64], float]:
    """2-means on the normalised vectors.

    Returns:
        (N,) cluster of each occurrence, 0 for the larger one; and the silhouette, 1 for clearly separated clusters.
    """
    directions_ND = _directions(vectors_ND)
    if len(np.unique(directions_ND.round(5), axis=0)) < 2:
        return np.zeros(len(vectors_ND), dtype=np.int64), 0.0
    clusters_N = KMeans(2, n_init=5, random_state=0).fit_predict(directions_ND).astype(np.int64)
    if clusters_N.mean() > 0.5:
        clusters_N = 1 - clusters_N
    return clusters_N, float(silhouette_score(directions_ND, clusters_N))


def _senses(
    encoder: Encoder, occurrences: list[tuple[Sentence, int]], *, word: str, name: str
) -> tuple[dict[str, Any], Drawing, Table]:
    """The occurrences of a word in the last layer, clustered into two senses.

    Raises:
        DataError: fewer than ten occurrences are within the model's positions.
    """
    kept, vectors = [], []
    for number, indices, layers in states(encoder, [one for one, _ in occurrences]):
        if (index := occurrences[number][1]) in indices:
            kept.append(number)
            vectors.append(layers[-1][indices.index(index)])
    if len(kept) < 10:
        read = f", {len(kept)} of them within the positions of {name}" if occurrences else ""
        raise DataError(f"{word!r}: occurs {len(occurrences)} times in the corpus{read}; at least 10 are needed")
    vectors_ND = np.stack(vectors)
    clusters_N, silhouette = two_senses(vectors_ND)
    positions_N2 = planar(_directions(vectors_ND))
    clouds, rows, examples = {}, [], []
    for cluster in (0, 1):
        members = np.flatnonzero(clusters_N == cluster)
        if not len(members):
            continue
        centre_D = _directions(vectors_ND[members]).mean(0)
        nearest = members[np.argsort(-(_directions(vectors_ND[members]) @ centre_D), kind="stable")[:EXAMPLES]]
        snippets = [occurrences[kept[row]][0].snippet(occurrences[kept[row]][1]) for row in nearest]
        examples.append({"occurrences": len(members), "examples": snippets})
        rows += [
            ["AB"[cluster] if not n else "", f"{len(members)}" if not n else "", snippet]
            for n, snippet in enumerate(snippets)
        ]
        clouds[f"{'AB'[cluster]} ({len(members)})"] = Cloud(
            positions_N2[members, 0].tolist(), positions_N2[members, 1].tolist()
        )
    verdict = "two clusters" if silhouette >= SEPARATE else "one cluster"
    sentence = (
        f"{name}: {len(kept)} occurrences of {word!r} form {verdict} in the last layer (silhouette {silhouette:.2f})."
    )
    numbers = {"word": word, "silhouette": silhouette, "clusters": examples, "sentence": sentence}
    drawing = Drawing(
        figures.scatter(clouds), f"{name}: occurrences of {word!r}, last layer, two principal components."
    )
    return (
        numbers,
        drawing,
        Table(["cluster", "occurrences", f"{name}: sentences with {word!r} nearest to the centre"], rows),
    )


def _sentence(name: str, layers: Sequence[Layer]) -> str:
    first, last = layers[0].as_dict(), layers[-1].as_dict()
    return (
        f"{name}: adjusted self-similarity changes from {first['adjusted_self_similarity']:.2f} in the embedding to "
        f"{last['adjusted_self_similarity']:.2f} in the last layer, where a single vector explains {_share(last)} of a "
        "word's variance."
    )


def _share(layer: Mapping[str, float]) -> str:
    return f"{max(0.0, layer['adjusted_explainable_variance']):.0%}"


STUDY = Study("contextuality", "How much does a word's vector depend on its context, in each layer?", run)
