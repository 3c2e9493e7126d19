"""How contextual are contextualised representations? (Ethayarajh 2019, section 3; all cosines, layer by layer)

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)
    intra-sentence similarity         mean over the words of a sentence of cos(x_i, mean of x)
    maximum explainable variance      s_1^2 / sum_i s_i^2 of the singular values of a word's occurrences, one a row

Vectors that all point the same way are alike without meaning the same. So from each the same measure is taken off for
words drawn at random: for both similarities the mean cosine between two of them (the anisotropy), for the variance
that of as many of them. And the senses of one word, drawn apart: its occurrences in the plane of the two largest
principal components, divided in two by k-means.

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

#: Different sentences that a word must stand in, and most of them that are used (Ethayarajh 2019 asks for 5).
LEAST, MOST = 5, 50
#: Words that are measured, and occurrences drawn at random for the anisotropy.
WORDS, RANDOM = 400, 1000
#: A word of which the study chooses the senses itself has at least so many occurrences, this share in each sense.
SENSE_LEAST, SENSE_SHARE = 20, 0.2
#: Occurrences of the word whose senses are drawn, and examples of each sense.
DRAWN, EXAMPLES = 200, 3
#: Silhouette (between -1 and 1) below which two clusters are one cloud cut in two.
APART = 0.1

Floats = NDArray[np.float32]
Place = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    """Means over words (self-similarity, variance) or sentences (intra-sentence similarity) of one layer.

    Attributes:
        anisotropy: mean cosine between two random words.
        random_variance: maximum explainable variance of random words.
    """

    layer: int
    anisotropy: float
    self_similarity: float
    intra_sentence_similarity: float
    explainable_variance: float
    random_variance: float

    def as_dict(self) -> dict[str, float]:
        """For JSON, with what is left without the anisotropy."""
        return asdict(self) | {
            "adjusted_self_similarity": self.self_similarity - self.anisotropy,
            "adjusted_intra_sentence_similarity": self.intra_sentence_similarity - self.anisotropy,
            "adjusted_explainable_variance": self.explainable_variance - self.random_variance,
        }


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="Such as bert-adapted; one a family if not said.")] = "",
    word: Annotated[str, typer.Option(help="Whose senses are drawn; the clearest case if not said.")] = "",
    corpus: Annotated[Literal["domain", "general"], typer.Option(help="Whose texts.")] = "domain",
    sentences: Annotated[int, typer.Option(help="How many are read.", min=10)] = 1500,
) -> Findings:
    """The three measures by layer of one encoder or several, and the senses of a word.

    Raises:
        ConfigError: no such encoder.
        ArtifactError: a stage that it needs has not run.
        DataError: the texts hold no word often enough, or `word` fewer than ten times.
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
        # The same word for all, so that they can be compared.
        word = word or read.ambiguous()
        occurrences = search(directory, segmentation, word, count=DRAWN)
        senses[name], drawing, table = _senses(loaded, occurrences, word=word, name=name)
        chapter.figures.append(drawing)
        chapter.tables.append(table)
    chapter.lead = [_sentence(name, layers) for name, layers in found.items()]
    chapter.lead += [part["sentence"] for part in senses.values()]
    columns = ["encoder", "layer", "anisotropy", "self-similarity", "adjusted", "in a sentence", "adjusted"]
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
        "adjusted_intra_sentence_similarity": "similarity in a sentence, adjusted",
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
        "Self-similarity: how alike a word's vectors are in different sentences; the lower, the more the context "
        "decides. Variance: the share of a word's vectors that one fixed vector could explain. Adjusted: less the same "
        "of random words (Ethayarajh 2019)."
    )
    numbers = {
        name: {"layers": [layer.as_dict() for layer in layers], "senses": senses[name]}
        for name, layers in found.items()
    }
    return Findings(chapter, numbers)


def self_similarity(vectors_ND: Floats) -> float:
    """Mean cosine over all pairs of different rows, N at least 2; a zero vector's is 0."""
    directions_ND, count = _directions(vectors_ND).astype(np.float64), len(vectors_ND)
    total = float(np.square(directions_ND.sum(0)).sum() - np.square(directions_ND).sum())
    return total / (count * (count - 1))


def intra_sentence_similarity(vectors_ND: Floats) -> float:
    """Mean cosine of the rows to their mean."""
    mean_D = _directions(vectors_ND.mean(0, keepdims=True))[0]
    return float((_directions(vectors_ND) @ mean_D).mean())


def explainable_variance(vectors_ND: Floats) -> float:
    """Share of the sum of squares along the first principal axis of the rows (not centred, as in the paper); 1 of zero
    vectors, which any one vector explains."""
    squares = np.square(np.linalg.svd(vectors_ND, compute_uv=False).astype(np.float64))
    return float(squares[0] / squares.sum()) if squares.any() else 1.0


def _directions(vectors_ND: Floats) -> Floats:
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    directions: Floats = vectors_ND / np.maximum(lengths_N1, 1e-12)
    return directions


@dataclass
class _Read:
    """What an encoder made of a sample.

    Attributes:
        words: word -> places of its occurrences.
        vectors: layer -> place -> (D,), of all words' occurrences and of the random ones.
        intra: layer -> intra-sentence similarity of every sentence.
    """

    words: dict[str, list[Place]]
    random: list[Place]
    vectors: list[dict[Place, Floats]]
    intra: list[list[float]]

    @classmethod
    def of(cls, encoder: Encoder, sentences: Sequence[Sentence]) -> _Read:
        """Read the sentences once; only the occurrences that are needed are kept.

        Raises:
            DataError: no word stands in enough of them, or in what a model with few positions reads of them.
        """
        rng = np.random.default_rng(0)
        words = _chosen(sentences, rng)
        everywhere = [(number, place) for number, one in enumerate(sentences) for place in range(len(one.spans))]
        picked = rng.choice(len(everywhere), min(RANDOM, len(everywhere)), replace=False)
        random = [everywhere[place] for place in np.sort(picked)]
        wanted = {place for places in words.values() for place in places} | set(random)
        vectors: list[dict[Place, Floats]] = []
        intra: list[list[float]] = []
        for number, places, layers in states(encoder, sentences):
            vectors = vectors or [{} for _ in layers]
            intra = intra or [[] for _ in layers]
            for kept, similar, layer in zip(vectors, intra, layers, strict=True):
                if len(places) > 1:
                    similar.append(intra_sentence_similarity(layer))
                for row, place in enumerate(places):
                    if (number, place) in wanted:
                        kept[number, place] = layer[row]
        # A model with few positions has not read the ends of long sentences.
        read = vectors[0].keys()
        read_of = {word: [place for place in places if place in read] for word, places in words.items()}
        words = {word: places for word, places in read_of.items() if len(places) >= LEAST}
        if not words:
            raise DataError(
                f"{encoder.family}: reads the first pieces of a sentence only, and no word stands there in {LEAST} of "
                f"the {len(sentences)} sentences; give --sentences more"
            )
        return cls(words, [place for place in random if place in read], vectors, intra)

    def layers(self) -> list[Layer]:
        """The measures of every layer."""
        found = []
        for number, (vectors, intra) in enumerate(zip(self.vectors, self.intra, strict=True)):
            random_ND = np.stack([vectors[place] for place in self.random])
            rng = np.random.default_rng(0)
            of_words = [np.stack([vectors[place] for place in places]) for places in self.words.values()]
            drawn = [random_ND[rng.choice(len(random_ND), len(word_ND), replace=False)] for word_ND in of_words]
            found.append(
                Layer(
                    layer=number,
                    anisotropy=self_similarity(random_ND),
                    self_similarity=float(np.mean([self_similarity(word_ND) for word_ND in of_words])),
                    intra_sentence_similarity=float(np.mean(intra)),
                    explainable_variance=float(np.mean([explainable_variance(word_ND) for word_ND in of_words])),
                    random_variance=float(np.mean([explainable_variance(drawn_ND) for drawn_ND in drawn])),
                )
            )
        return found

    def ambiguous(self) -> str:
        """The word whose occurrences fall most clearly into two clusters in the last layer."""
        best = ("", -1.0)
        for word, places in self.words.items():
            if len(places) < SENSE_LEAST or len(word) < 3:
                continue
            clusters_N, apart = two_senses(np.stack([self.vectors[-1][place] for place in places]))
            share = float(clusters_N.mean())
            if apart > best[1] and min(share, 1 - share) >= SENSE_SHARE:
                best = (word, apart)
        # In a small sample no word may come often; then the most frequent one has to do.
        return best[0] or max(self.words, key=lambda word: len(self.words[word]))


def _chosen(sentences: Sequence[Sentence], rng: np.random.Generator) -> dict[str, list[Place]]:
    """Words of letters that stand in enough sentences, once in each, at most `WORDS` of them and `MOST` times each."""
    places: dict[str, dict[int, Place]] = defaultdict(dict)
    for number, one in enumerate(sentences):
        for place in range(len(one.spans)):
            if of_letters(word := one.word(place)):
                places[word].setdefault(number, (number, place))
    often = {word: list(found.values()) for word, found in sorted(places.items()) if len(found) >= LEAST}
    if not often:
        raise DataError(f"no word stands in {LEAST} of the {len(sentences)} sentences; give --sentences more")
    names = list(often)
    kept = np.sort(rng.choice(len(names), min(WORDS, len(names)), replace=False))
    return {names[place]: evenly(often[names[place]], MOST) for place in kept}


def two_senses(vectors_ND: Floats) -> tuple[NDArray[np.int64], float]:
    """Each occurrence's cluster, 0 or 1, by 2-means on the vectors' directions, and the silhouette: 1 for clusters far
    apart, 0 for one cloud. The larger cluster is 0."""
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
    """The occurrences of a word in the last layer, divided in two.

    Raises:
        DataError: they are fewer than ten.
    """
    kept, vectors = [], []
    for number, places, layers in states(encoder, [one for one, _ in occurrences]):
        if (place := occurrences[number][1]) in places:
            kept.append(number)
            vectors.append(layers[-1][places.index(place)])
    if len(kept) < 10:
        read = f", {len(kept)} of which {name} has read" if occurrences else ""
        raise DataError(
            f"{word!r}: found {len(occurrences)} times in sentences of the corpus{read}; two senses need 10 or more"
        )
    vectors_ND = np.stack(vectors)
    clusters_N, apart = two_senses(vectors_ND)
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
    verdict = "two clusters" if apart >= APART else "one cloud, not two senses"
    said = f"{name}: {len(kept)} occurrences of {word!r} form {verdict} in the last layer (silhouette {apart:.2f})."
    numbers = {"word": word, "silhouette": apart, "clusters": examples, "sentence": said}
    drawing = Drawing(figures.scatter(clouds), f"{name}: {word!r} in its sentences, last layer, two components.")
    return (
        numbers,
        drawing,
        Table(["cluster", "occurrences", f"{name}: sentences with {word!r} nearest its centre"], rows),
    )


def _sentence(name: str, layers: Sequence[Layer]) -> str:
    first, last = layers[0].as_dict(), layers[-1].as_dict()
    return (
        f"{name}: from the embedding to the last layer self-similarity, adjusted, goes from "
        f"{first['adjusted_self_similarity']:.2f} to {last['adjusted_self_similarity']:.2f}; in the last layer one "
        f"fixed vector could explain {_share(last)} of a word's variance."
    )


def _share(layer: Mapping[str, float]) -> str:
    return f"{max(0.0, layer['adjusted_explainable_variance']):.0%}"


STUDY = Study("contextuality", "How much does the context decide a word's vector, layer by layer?", run)
