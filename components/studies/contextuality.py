"""How contextual are contextualised representations? (Ethayarajh 2019, section 3), per layer of an encoder:

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)
    intra-sentence similarity         mean over the words of a sentence of cos(x_i, mean of x)
    maximum explainable variance      s_1^2 / sum_i s_i^2 of the singular values of the matrix of a word's occurrences

In an anisotropic space all vectors are similar. Each measure is therefore adjusted by its value for randomly sampled
words: both similarities by the mean cosine of two of them (the anisotropy), the variance by the variance of equally
many of them. The study also shows the senses of one word (`components.studies.occurrences`).

Shape suffixes: N occurrences, U words of a sentence, D width.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from components.core.errors import DataError
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import Corpus, EncoderName, Outputs
from components.studies.occurrences import Sentence, add_senses, evenly, of_letters, sample, search, states, two_senses

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


#: Minimum number of occurrences of the word with two senses, minimum fraction of them in each, maximum plotted.
SENSE_LEAST, SENSE_SHARE, PLOTTED = 20, 0.2, 200
#: Columns of the table -> measure.
MEASURES = {
    "anisotropy": "anisotropy",
    "self-similarity": "self_similarity",
    "self-similarity, adjusted": "adjusted_self_similarity",
    "within a sentence": "intra_sentence_similarity",
    "within a sentence, adjusted": "adjusted_intra_sentence_similarity",
    "variance": "explainable_variance",
    "variance, adjusted": "adjusted_explainable_variance",
}


def run(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    word: Annotated[str, typer.Option(help="Word whose senses are shown; the clearest case by default.")] = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=10)] = 1500,
) -> Findings:
    """The three measures for each layer of one or several encoders, and the senses of a word."""
    chapter, senses = Chapter("How contextual are the representations?"), Chapter("")
    directory = outputs.corpus(corpus)
    numbers: dict[str, Any] = {}
    for block, start in outputs.chosen(encoder):
        name, loaded = f"{block}-{start}", outputs.encoder(block, start)
        segmentation = loaded.tokenizer.segmentation
        layers, words = measured(loaded, sample(directory, segmentation, count=sentences))
        # The same word for all encoders, for comparison.
        word = word or _ambiguous(words)
        occurrences = search(directory, segmentation, word, count=PLOTTED)
        numbers[name] = {"layers": layers, "senses": add_senses(senses, loaded, occurrences, word=word, name=name)}
        first, last = layers[0], layers[-1]
        chapter.lead.append(
            f"{name}: adjusted self-similarity changes from {first['adjusted_self_similarity']:.2f} in the embedding "
            f"to {last['adjusted_self_similarity']:.2f} in the last layer, where a single vector explains "
            f"{max(0.0, last['adjusted_explainable_variance']):.0%} of a word's variance."
        )
    rows = [
        [name, str(number), *(f"{layer[key]:.3f}" for key in MEASURES.values())]
        for name, entry in numbers.items()
        for number, layer in enumerate(entry["layers"])
    ]
    table = Table(["encoder", "layer", *MEASURES], rows, "By layer; 0 is the embedding")
    for label, key in MEASURES.items():
        if key == "anisotropy" or "adjusted" in key:
            curves = {
                name: Line([*map(float, range(len(entry["layers"])))], [layer[key] for layer in entry["layers"]])
                for name, entry in numbers.items()
            }
            svg = figures.lines(curves, x_label="layer", y_label=label, ticks=True)
            chapter.figures.append(Drawing(svg, f"{label[0].upper()}{label[1:]}, by layer."))
    chapter.text.append(
        "Self-similarity: similarity of a word's vectors in different sentences; the lower it is, the more they depend "
        "on the context. Variance: fraction of the variance of a word's vectors that a single vector explains. "
        "Adjusted: minus the value for random words (Ethayarajh 2019)."
    )
    chapter.lead += senses.lead
    chapter.tables = [table, *senses.tables]
    chapter.figures += senses.figures
    return Findings(chapter, numbers)


def _ambiguous(words: Mapping[str, Floats]) -> str:
    best = ("", -1.0)
    for word, vectors_ND in words.items():
        if len(vectors_ND) >= SENSE_LEAST and len(word) >= 3:
            clusters_N, silhouette = two_senses(vectors_ND)
            share = float(clusters_N.mean())
            if silhouette > best[1] and min(share, 1 - share) >= SENSE_SHARE:
                best = (word, silhouette)
    # In a small sample no word may be frequent enough.
    return best[0] or max(words, key=lambda word: len(words[word]))
