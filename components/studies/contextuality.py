"""How contextual are contextualised representations? (Ethayarajh 2019)

`components.studies.similarity` defines the measures. The study also shows the senses of one word
(`components.studies.senses`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.studies.frame import Corpus, EncoderName, Outputs, Study
from components.studies.occurrences import sample, search
from components.studies.senses import add_senses, two_senses
from components.studies.similarity import measured

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

Floats = NDArray[np.float32]


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
            curves = {name: Line(*_curve(entry["layers"], key)) for name, entry in numbers.items()}
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


def _curve(layers: Sequence[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    return [float(number) for number in range(len(layers))], [layer[key] for layer in layers]


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


STUDY = Study("contextuality", "How much does a word's vector depend on its context, in each layer?", run)
