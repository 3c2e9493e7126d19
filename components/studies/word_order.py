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

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from components.errors import ConfigError, DataError
from components.inference.likelihood import pseudo_log_probs, text_log_probs
from components.models import family as family_named
from components.models.encoder import Encoder
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.occurrences import Sentence, evenly, of_letters, sample, sentence, states
from components.studies.outputs import Outputs

#: An example, and its words exchanged.
EXAMPLE = ("a mouse chases a cat", "a cat chases a mouse")
#: Number of most frequent words that may precede exchanged words, and of those that are not exchanged.
FRAMES, COMMON = 20, 100
#: Minimum number of sentences, folds of the probe, and sentences per exchanged one that are read from the corpus.
LEAST, FOLDS, READ = 20, 5, 12
#: Distance below which two vectors are equal but for rounding.
ROUNDING = 1e-6

Floats = NDArray[np.float64]


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="Encoder, such as bert-adapted; one per family by default.")] = "",
    corpus: Annotated[Literal["domain", "general"], typer.Option(help="Corpus of the sentences.")] = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences with exchanged words.", min=LEAST)] = 300,
) -> Findings:
    """Distance, probe and preference, for each layer of one or several encoders.

    Raises:
        ConfigError: unknown encoder.
        ArtifactError: a required stage has not run.
        DataError: the corpus has too few sentences in which two words can be exchanged.
    """
    directory = outputs.directory("corpus", corpus, stage=f"ingest --item {corpus}")
    chosen = outputs.chosen(encoder)
    segmentation = outputs.encoder(*chosen[0]).tokenizer.segmentation
    pairs = evenly(exchanged(sample(directory, segmentation, count=READ * sentences)), sentences)
    if len(pairs) < LEAST:
        raise DataError(
            f"{directory}: {len(pairs)} sentences in which two words can be exchanged, at least {LEAST} are needed; "
            "add text or choose the other --corpus"
        )
    example = tuple(sentence(text, segmentation) for text in EXAMPLE)
    found: dict[str, list[dict[str, float]]] = {"bag of words": [_bags(pairs)]}
    preferences: dict[str, float] = {}
    for block, start in chosen:
        name, loaded = f"{block}-{start}", outputs.encoder(block, start)
        originals, others = (text_vectors(loaded, versions) for versions in zip(*pairs, strict=True))
        shown = [text_vectors(loaded, [version]) for version in example]
        found[name] = [
            measures(first, second) | {"example": float(distances(one, other).mean())}
            for first, second, one, other in zip(originals, others, *shown, strict=True)
        ]
        if (preferred := preference(loaded, pairs)) is not None:
            preferences[name] = preferred
    return Findings(
        _chapter(found, preferences, pairs, corpus=corpus),
        {
            "corpus": corpus,
            "sentences": len(pairs),
            "examples": [[one.text for one in pair] for pair in pairs[:5]],
            "layers": found,
            "preference": preferences,
        },
    )


def exchanged(sentences: Sequence[Sentence]) -> list[tuple[Sentence, Sentence]]:
    """Sentences in which two words follow the same frequent word, each with the version in which they are exchanged."""
    counts = Counter(one.word(index) for one in sentences for index in range(len(one.spans)))
    ranked = [word for word, _ in counts.most_common(max(FRAMES, COMMON))]
    frames, common = set(ranked[:FRAMES]), set(ranked[:COMMON])

    def exchangeable(one: Sentence, index: int) -> bool:
        word = one.word(index)
        return one.word(index - 1) in frames and of_letters(word) and word not in common

    found = []
    for one in sentences:
        places = [index for index in range(1, len(one.spans)) if exchangeable(one, index)]
        options = (
            (first, second)
            for first in places
            for second in places
            if first < second and one.word(first - 1) == one.word(second - 1) and one.word(first) != one.word(second)
        )
        if (chosen := next(options, None)) is not None:
            found.append((one, _swapped(one, *chosen)))
    return found


def _swapped(one: Sentence, first: int, second: int) -> Sentence:
    (a, b), (c, d) = one.spans[first], one.spans[second]
    text = one.text[:a] + one.text[c:d] + one.text[b:c] + one.text[a:b] + one.text[d:]
    longer = (d - c) - (b - a)
    spans = [
        (a, b + longer)
        if index == first
        else (c + longer, d)
        if index == second
        else (start + longer, end + longer)
        if first < index < second
        else (start, end)
        for index, (start, end) in enumerate(one.spans)
    ]
    return Sentence(text, spans)


def text_vectors(encoder: Encoder, sentences: Sequence[Sentence]) -> list[Floats]:
    """The mean of the words' vectors of each of N sentences: for the embedding and each layer (N, D)."""
    found: dict[int, list[Floats]] = {}
    for number, _, layers in states(encoder, sentences):
        found[number] = [layer.astype(np.float64).mean(0) for layer in layers]
    zeros = [np.zeros_like(layer) for layer in next(iter(found.values()))]
    rows = [found.get(number, zeros) for number in range(len(sentences))]
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def distances(one: Floats, other: Floats) -> Floats:
    """(N,) 1 - cos of the rows; exactly 0 where they differ by rounding only."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found: Floats = 1 - (one * other).sum(1) / np.maximum(norms, 1e-12)
    return np.where((norms < 1e-12) | (found < ROUNDING), 0.0, found)


def measures(originals: Floats, others: Floats) -> dict[str, float]:
    """Distance, relative distance and accuracy of the probe, from (N, D) vectors of both versions."""
    distance = float(distances(originals, others).mean())
    between = float(distances(originals, np.roll(originals, 1, axis=0)).mean())
    return {
        "distance": distance,
        "relative": distance / between if between else 0.0,
        "probe": probe(originals, others) if distance else 0.5,
    }


def probe(originals: Floats, others: Floats) -> float:
    """Cross-validated accuracy of a logistic regression that tells the originals from the others."""
    x = np.concatenate([originals, others])
    y = np.repeat([1, 0], len(originals))
    groups = np.tile(np.arange(len(originals)), 2)
    right = 0
    for train, test in GroupKFold(FOLDS).split(x, y, groups):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x[train], y[train])
        right += int((model.predict(x[test]) == y[test]).sum())
    return right / len(y)


def preference(encoder: Encoder, pairs: Sequence[tuple[Sentence, Sentence]]) -> float | None:
    """Share of the pairs of which the language model gives the original the higher probability, half of them at a tie;
    None for encoders without probabilities. Of masked models the pseudo-likelihood is compared."""
    objective = family_named(encoder.family).objective
    if objective not in ("causal", "masked"):
        return None
    log_probs = text_log_probs if objective == "causal" else pseudo_log_probs
    better = 0.0
    try:
        for pair in pairs:
            ids = encoder.tokenizer.encode_batch([one.text for one in pair])
            original, other = (float(log_probs(encoder.model, pieces.tolist()).sum()) for pieces in ids)
            better += 0.5 if original == other else float(original > other)
    except ConfigError:
        # A model of both directions or of the backward one predicts no text.
        return None
    return better / len(pairs)


def _bags(pairs: Sequence[tuple[Sentence, Sentence]]) -> dict[str, float]:
    """The measures of counts of words."""
    counter = CountVectorizer(token_pattern=r"(?u)\S+")
    texts = [" ".join(one.word(index) for index in range(len(one.spans))) for pair in pairs for one in pair]
    counts = counter.fit_transform(texts).toarray().astype(np.float64)
    return measures(counts[0::2], counts[1::2]) | {"example": 0.0}


def _chapter(
    found: dict[str, list[dict[str, float]]],
    preferences: dict[str, float],
    pairs: Sequence[tuple[Sentence, Sentence]],
    *,
    corpus: str,
) -> Chapter:
    chapter = Chapter("Do the vectors depend on word order?")
    for name, layers in found.items():
        best = max(range(len(layers)), key=lambda layer: layers[layer]["probe"])
        text = f"{name}: the probe tells the original order with an accuracy of {layers[best]['probe']:.3f}"
        text += f" from layer {best} (of 0 to {len(layers) - 1})" if len(layers) > 1 else ""
        if name in preferences:
            text += f"; the language model prefers the original in {preferences[name]:.1%} of the sentences"
        chapter.lead.append(f"{text}.")
    chapter.text.append(
        f"{len(pairs)} sentences of the {corpus} corpus in which two words after the same frequent word are exchanged, "
        f"such as {pairs[0][0].text!r} and {pairs[0][1].text!r}. Distance: 1 - cosine of the mean word vectors; "
        "relative to that of two different sentences. Layer 0 is the embedding. Probe: accuracy of a logistic "
        "regression that tells both versions apart; 0.5 is chance, and what equal vectors give."
    )
    rows: list[list[str]] = [
        [
            name,
            str(number),
            f"{layer['example']:.4f}",
            f"{layer['distance']:.4f}",
            f"{layer['relative']:.3f}",
            f"{layer['probe']:.3f}",
        ]
        for name, layers in found.items()
        for number, layer in enumerate(layers)
    ]
    columns = ["vectors", "layer", f"{EXAMPLE[0]!r}, exchanged", "distance", "relative", "probe"]
    chapter.tables.append(Table(columns, rows, "Word order"))
    lines = {
        name: Line(list(range(len(layers))), [layer["probe"] for layer in layers])
        for name, layers in found.items()
        if len(layers) > 1
    }
    if lines:
        svg = figures.lines(lines, x_label="layer", y_label="accuracy of the probe", ticks=True)
        chapter.figures.append(Drawing(svg, "Accuracy with which the original order is told from the vectors."))
    return chapter


STUDY = Study("word-order", "Do the vectors of a text depend on the order of its words?", run)
