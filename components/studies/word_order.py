"""Does an encoder know the order of words? A logistic regression on the mean of a layer's word vectors tells a sentence
from the same words in a random order. For static vectors half of the answers are right."""

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from components.models.encoder import Encoder
from components.studies.frame import Corpus, Measured, Outputs, Row, Sheet, over
from components.studies.words import Floats, Sentence, plain, sample, word_vectors

#: Inverse strength of the regression's penalty; share of the sentences whose answers are counted.
C, TESTED = 0.01, 0.5


def measure(
    outputs: Outputs, *, encoder: str = "", corpus: Corpus = "domain", sentences: int = 2000, seeds: int = 3
) -> Measured:
    """The accuracy by layer of one or several encoders."""
    directory, rows = outputs.of("corpus", corpus), list[Row]()
    for name, loaded in outputs.encoders(encoder).items():
        read = sample(directory, loaded.tokenizer.segmentation, count=sentences)
        # Without marks and capitals, which show where a sentence begins and ends.
        words = [[word for word in map(plain, of) if word] for of in read]
        ordered = means(loaded, words)
        by_layer = zip(*(accuracies(loaded, words, ordered, seed) for seed in range(seeds)), strict=True)
        values = [over(of, within=(0.0, 1.0)) for of in by_layer]
        rows += [{"encoder": name, "layer": layer, "accuracy": of} for layer, of in enumerate(values)]
    return Measured([Sheet(rows, f"{corpus} text; 0 is the embedding", value="accuracy", x="layer")])


def accuracies(encoder: Encoder, read: Sequence[Sentence], ordered: Sequence[Floats], seed: int) -> list[float]:
    """By layer: the accuracy on the sentences that are not learned; `ordered` are the `means` of the sentences."""
    rng = np.random.default_rng(seed)
    shuffled = means(encoder, [rng.permutation(np.asarray(words, dtype=object)).tolist() for words in read])
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
