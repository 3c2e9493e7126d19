"""Does a text's vector depend on the order of its words? ("a mouse chases a cat", "a cat chases a mouse")

In sentences of the corpus two words that follow the same frequent word are exchanged ("the X ... the Y" becomes "the Y
... the X"), which keeps the bag of words and usually the grammar. A text's vector is the mean of its words' vectors.

    distance    mean over sentences of 1 - cos(v, v'), v' the vector with the words exchanged; and the same relative to
                the mean distance of two different sentences
    probe       accuracy of a logistic regression that tells the original from the exchanged version, cross-validated
                over sentences; 0.5 is chance
    preference  share of the sentences of which the language model gives the original the higher probability

A bag of words has distance 0 and accuracy 0.5, because both versions have the same vector; a contextual layer may have
other values (Conneau et al. 2018, What you can cram into a single vector: the task bigram shift).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.feature_extraction.text import CountVectorizer

from components.errors import ConfigError, DataError
from components.inference.likelihood import pseudo_log_probs, text_log_probs
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.studies.exchange import distances, exchanged, measures, text_vectors
from components.studies.frame import Corpus, EncoderName, Outputs, Study
from components.studies.occurrences import Sentence, evenly, sample, sentence

#: An example, and its words exchanged.
EXAMPLE = ("a mouse chases a cat", "a cat chases a mouse")
#: Minimum number of sentences, and sentences per exchanged one that are read from the corpus.
LEAST, READ = 20, 12
#: Columns of the table -> (measure, format).
COLUMNS = {
    f"{EXAMPLE[0]!r}, exchanged": ("example", ".4f"),
    "distance": ("distance", ".4f"),
    "relative": ("relative", ".3f"),
    "probe": ("probe", ".3f"),
}

Pair = tuple[Sentence, Sentence]


def run(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences with exchanged words.", min=LEAST)] = 300,
) -> Findings:
    """Distance, probe and preference, for each layer of one or several encoders.

    Raises:
        DataError: the corpus has too few sentences in which two words can be exchanged.
    """
    directory = outputs.corpus(corpus)
    chosen = outputs.chosen(encoder)
    segmentation = outputs.encoder(*chosen[0]).tokenizer.segmentation
    pairs = evenly(exchanged(sample(directory, segmentation, count=READ * sentences)), sentences)
    if len(pairs) < LEAST:
        raise DataError(
            f"{directory}: {len(pairs)} sentences in which two words can be exchanged, at least {LEAST} are needed; "
            "add text or choose the other --corpus"
        )
    example = [sentence(text, segmentation) for text in EXAMPLE]
    counter = CountVectorizer(token_pattern=r"(?u)\S+")
    counts = counter.fit_transform([" ".join(of.words) for pair in pairs for of in pair]).toarray().astype(np.float64)
    layers: dict[str, list[dict[str, float]]] = {
        "bag of words": [measures(counts[0::2], counts[1::2]) | {"example": 0.0}]
    }
    preferences: dict[str, float] = {}
    for block, start in chosen:
        name, loaded = f"{block}-{start}", outputs.encoder(block, start)
        versions = (text_vectors(loaded, version) for version in (*zip(*pairs, strict=True), *zip(example)))
        layers[name] = [
            measures(first, second) | {"example": float(distances(before, after).mean())}
            for first, second, before, after in zip(*versions, strict=True)
        ]
        if (preferred := preference(loaded, pairs)) is not None:
            preferences[name] = preferred
    examples = [[of.text for of in pair] for pair in pairs[:5]]
    numbers = {"corpus": corpus, "sentences": len(pairs), "examples": examples, "layers": layers}
    return Findings(_chapter(numbers, preferences), numbers | {"preference": preferences})


def preference(encoder: Encoder, pairs: Sequence[Pair]) -> float | None:
    """Share of the pairs of which the language model gives the original the higher probability, half of them at a tie;
    None for encoders without probabilities. Of masked models the pseudo-likelihood is compared."""
    objective = family_named(encoder.family).objective
    if objective not in ("causal", "masked"):
        return None
    log_probs = text_log_probs if objective == "causal" else pseudo_log_probs
    better = 0.0
    try:
        for pair in pairs:
            ids = encoder.tokenizer.encode_batch([of.text for of in pair])
            original, other = (float(log_probs(encoder.model, pieces.tolist()).sum()) for pieces in ids)
            better += 0.5 if original == other else float(original > other)
    except ConfigError:
        # A model of both directions or of the backward one predicts no text.
        return None
    return better / len(pairs)


def _chapter(numbers: Mapping[str, Any], preferences: Mapping[str, float]) -> Chapter:
    chapter = Chapter("Do the vectors depend on word order?")
    for name, layers in numbers["layers"].items():
        best = max(range(len(layers)), key=lambda layer: layers[layer]["probe"])
        text = f"{name}: the probe tells the original order with an accuracy of {layers[best]['probe']:.3f}"
        text += f" from layer {best} (of 0 to {len(layers) - 1})" if len(layers) > 1 else ""
        if name in preferences:
            text += f"; the language model prefers the original in {preferences[name]:.1%} of the sentences"
        chapter.lead.append(f"{text}.")
    original, other = numbers["examples"][0]
    chapter.text.append(
        f"{numbers['sentences']} sentences of the {numbers['corpus']} corpus in which two words after the same "
        f"frequent word are exchanged, such as {original!r} and {other!r}. Distance: 1 - cosine of the mean "
        "word vectors; relative to the distance of two different sentences. Layer 0 is the embedding. Probe: accuracy "
        "of a logistic regression that tells both versions apart; 0.5 is chance, and what equal vectors give."
    )
    rows = [
        [name, str(number), *(format(layer[key], form) for key, form in COLUMNS.values())]
        for name, layers in numbers["layers"].items()
        for number, layer in enumerate(layers)
    ]
    chapter.tables.append(Table(["vectors", "layer", *COLUMNS], rows, "Word order"))
    lines = {
        name: Line(list(range(len(layers))), [layer["probe"] for layer in layers])
        for name, layers in numbers["layers"].items()
        if len(layers) > 1
    }
    if lines:
        svg = figures.lines(lines, x_label="layer", y_label="accuracy of the probe", ticks=True)
        chapter.figures.append(Drawing(svg, "Accuracy with which the original order is told from the vectors."))
    return chapter


STUDY = Study("word-order", "Do the vectors of a text depend on the order of its words?", run)
