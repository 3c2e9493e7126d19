"""How contextual are contextualised representations? (Ethayarajh 2019, section 3), per layer of an encoder:

    self-similarity of a word         mean over pairs of its occurrences of cos(x_i, x_j)
    intra-sentence similarity         mean over the words of a sentence of cos(x_i, mean of x)
    maximum explainable variance      s_1^2 / sum_i s_i^2 of the singular values of the matrix of a word's occurrences

In an anisotropic space all vectors are similar. Each measure is therefore adjusted by its value for randomly sampled
words: both similarities by the mean cosine of two of them (the anisotropy), the variance by the variance of equally
many of them. The study also shows the senses of words (`components.studies.senses`).

Shape suffixes: N occurrences, U words of a sentence, D width.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from components.data.scoring.intervals import CONFIDENCE, interval
from components.models.encoder import Encoder
from components.studies.frame import Corpus, EncoderName, Measured, Outputs, Row, Sheet, cell, curves
from components.studies.occurrences import Position, Sentence, positions_of_words, sample, states, vectors_at
from components.studies.senses import clearest, pseudo_words, senses_of

#: Number of randomly sampled occurrences for the anisotropy.
RANDOM = 1000

Floats = NDArray[np.floating]


def likeness(vectors_ND: Floats) -> Floats:
    """(N, D) with N at least 2 -> (N,) jackknife pseudo-values, whose mean is the mean cosine over all pairs of
    different rows; the cosine of a zero vector is 0."""
    directions_ND, count = normalize(vectors_ND).astype(np.float64), len(vectors_ND)
    others_N = (directions_ND @ directions_ND.sum(0) - np.square(directions_ND).sum(1)) / (count - 1)
    pseudo_N: Floats = 2 * others_N - others_N.mean()
    return pseudo_N


def intra_sentence_similarity(vectors_ND: Floats) -> float:
    """(N, D) -> mean cosine between the rows and their mean."""
    return float((normalize(vectors_ND) @ normalize(vectors_ND.mean(0, keepdims=True))[0]).mean())


def explainable_variance(vectors_ND: Floats) -> float:
    """(N, D) -> fraction of the sum of squares along the first principal axis (not centred, as in the paper); 1 if all
    vectors are zero."""
    squares = np.square(np.linalg.svd(vectors_ND, compute_uv=False).astype(np.float64))
    return float(squares[0] / squares.sum()) if squares.any() else 1.0


def by_layer(
    encoder: Encoder,
    sentences: Sequence[Sentence],
    words: Mapping[str, Sequence[Position]],
    vectors: Mapping[Position, Sequence[Floats]],
    random: Sequence[Position],
) -> list[dict[str, Floats]]:
    """Measure -> its values of every layer: one for each random occurrence, word, sentence and word."""
    similar = [
        [intra_sentence_similarity(layer_UD) for layer_UD in layers]
        for _, indices, layers in states(encoder, sentences)
        if len(indices) > 1
    ]
    measures = []
    for layer, similar_of in enumerate(np.asarray(similar).T):
        rng = np.random.default_rng(0)
        random_ND, *words_ND = (
            np.stack([vectors[position][layer] for position in of]) for of in (random, *words.values())
        )
        like = [random_ND[rng.choice(len(random_ND), len(word_ND), replace=False)] for word_ND in words_ND]
        cone, own = likeness(random_ND), np.asarray([likeness(word_ND).mean() for word_ND in words_ND])
        variance, of_random = (np.asarray([explainable_variance(of) for of in each]) for each in (words_ND, like))
        measures.append(
            {
                "anisotropy": cone,
                "self-similarity": own,
                "self-similarity, adjusted": own - cone.mean(),
                "within a sentence": similar_of,
                "within a sentence, adjusted": similar_of - cone.mean(),
                "variance": variance,
                "variance, adjusted": variance - of_random,
            }
        )
    return measures


def measure(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    word: Annotated[str, typer.Option(help="Word whose senses are shown; the clearest case by default.")] = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=10)] = 1500,
) -> Measured:
    """The three measures for each layer of one or several encoders, and the senses of a word and of pseudo-words."""
    layers, moved, merged, senses = list[Row](), list[Row](), list[Row](), list[Row]()
    directory, maps, lead = outputs.corpus(corpus), [], []
    for name, loaded in outputs.encoders(encoder).items():
        read = sample(directory, loaded.tokenizer.segmentation, count=sentences)
        rng = np.random.default_rng(0)
        chosen = positions_of_words(read, rng)
        everywhere = [(number, index) for number, of in enumerate(read) for index in range(len(of.spans))]
        random = [everywhere[row] for row in np.sort(rng.choice(len(everywhere), min(RANDOM, len(everywhere)), False))]
        vectors, words = vectors_at(loaded, read, chosen, random)
        values = by_layer(loaded, read, words, vectors, [position for position in random if position in vectors])
        layers += [{"encoder": name, "layer": number} | _intervals(of) for number, of in enumerate(values)]
        change = _intervals({key: values[-1][key] - values[0][key] for key in values[0]})
        moved.append({"encoder": name, "layers": len(values) - 1} | change)
        merged.append({"encoder": name} | pseudo_words(loaded, read, words))
        # The same word for all encoders, for comparison.
        word = word or clearest({word: np.stack([vectors[at][-1] for at in of]) for word, of in words.items()})
        rows, drawing, silhouette = senses_of(loaded, directory, word, name)
        senses += rows
        maps.append(drawing)
        lead.append(
            f"{name}: from the embedding to the last layer, adjusted self-similarity changes by "
            f"{cell(change['self-similarity, adjusted'])} and anisotropy by {cell(change['anisotropy'])}; the "
            f"silhouette of two clusters of {word!r} is {silhouette:.2f}."
        )
    sheets = [
        Sheet(moved, "Change from the embedding to the last layer"),
        Sheet(layers, "By layer; 0 is the embedding"),
        Sheet(merged, "Pseudo-words: purity of two clusters in the last layer"),
        Sheet(senses, f"Sentences with {word!r} nearest to the centre of each cluster"),
    ]
    shown = [key for key in layers[0] if key == "anisotropy" or "adjusted" in key]
    drawn = [curves(layers, f"{key}, by layer.", x="layer", y=key, by="encoder") for key in shown]
    text = (
        "Self-similarity: similarity of a word's vectors in different sentences; the lower it is, the more they depend "
        "on the context. Variance: fraction of the variance of a word's vectors that a single vector explains. "
        "Adjusted: minus the value for random words (Ethayarajh 2019). Intervals are over words, sentences, and for "
        "the anisotropy random occurrences. Pseudo-words: two words are written as one, and the clusters of its "
        "vectors compared with the words; chance is a random assignment."
    )
    return Measured(sheets, lead, [text], [*drawn, *maps])


def _intervals(values: Mapping[str, Floats]) -> Row:
    return {key: interval(of.astype(np.float64), confidence=CONFIDENCE) for key, of in values.items()}
