"""Does an encoder know the order of words? A logistic regression on the mean of a layer's word vectors tells a sentence
from the same words in a random order. For static vectors half of the answers are right."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from components.evaluation.aggregates import Scores
from components.models.encoder import Encoder
from components.studies.frame import Corpus, EncoderName, Measured, Outputs, Sheet
from components.studies.words import Floats, Sentence, plain, sample, word_vectors

#: Inverse strength of the regression's penalty; share of the sentences whose answers are counted.
C, TESTED = 0.01, 0.5


def measure(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=20)] = 2000,
    seeds: Annotated[int, typer.Option(help="Random orders of every sentence.", min=2)] = 3,
) -> Measured:
    """The accuracy by layer of one or several encoders."""
    directory, rows = outputs.of("corpus", corpus), []
    for name, loaded in outputs.encoders(encoder).items():
        read = sample(directory, loaded.tokenizer.segmentation, count=sentences)
        # Without marks and capitals, which show where a sentence begins and ends.
        words = [[word for word in map(plain, of) if word] for of in read]
        ordered = means(loaded, words)
        by_seed = np.asarray([accuracies(loaded, words, ordered, seed) for seed in range(seeds)])
        scores = [Scores(range(seeds), of[:, None], within=(0.0, 1.0)) for of in by_seed.T]
        rows += [{"encoder": name, "layer": layer, "accuracy": of.interval()} for layer, of in enumerate(scores)]
    text = (
        "Logistic regression on the mean of a frozen encoder's vectors of the words of a sentence, without marks and "
        "capitals; guessing is right for 0.500. Half of the sentences are learned, each in its order and in a random "
        f"order, and the others answered; intervals are over {seeds} random orders and divisions."
    )
    return Measured([Sheet(rows, f"{corpus} text; 0 is the embedding", value="accuracy", x="layer")], [text])


def accuracies(encoder: Encoder, read: Sequence[Sentence], ordered: Sequence[Floats], seed: int) -> list[float]:
    """By layer: the accuracy on the sentences that are not learned; `ordered` are the `means` of the sentences."""
    rng = np.random.default_rng(seed)
    shuffled = means(encoder, [[words[place] for place in rng.permutation(len(words))] for words in read])
    tested = np.tile(rng.permutation(len(read)) < max(1, round(TESTED * len(read))), 2)
    labels = np.repeat([1, 0], len(read))
    results = []
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
