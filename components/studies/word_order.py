"""Does an encoder know the order of words? A logistic regression on the mean of a layer's states tells a sentence from
the same words in a random order. For static vectors half of the answers are right.

Shape suffixes: N sentences, B sentences of a batch, T pieces, D width.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from components.core.errors import DataError
from components.data.scoring.intervals import CONFIDENCE, interval
from components.learners.task_models.pooling import mask
from components.models.encoder import Encoder
from components.studies.frame import Corpus, EncoderName, Measured, Outputs, Sheet, bounds, curves
from components.studies.frozen import PENALTIES, normalised, regressed
from components.studies.occurrences import Sentence, hidden, pieces_of, room_of, sample

#: Strength of the regression's penalty; share of the sentences whose answers are counted.
PENALTY, TESTED = PENALTIES[1], 0.5
#: Minimum number of words: shorter sentences have few orders.
LEAST = 5

#: The pieces of each word of a sentence.
Words = list[list[int]]


def measure(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=20)] = 2000,
    seeds: Annotated[int, typer.Option(help="Random orders of every sentence.", min=2)] = 3,
) -> Measured:
    """The accuracy by layer of one or several encoders."""
    directory, rows, lead = outputs.corpus(corpus), [], []
    for name, loaded in outputs.encoders(encoder).items():
        read = words_of(loaded, sample(directory, loaded.tokenizer.segmentation, count=sentences))
        if len(read) < 2:
            raise DataError(f"{directory}: no {LEAST} words of a sentence are in {loaded.family}'s positions")
        ordered = means(loaded, read)
        by_seed = [accuracies(loaded, read, ordered=ordered, seed=seed) for seed in range(seeds)]
        layers = [interval(np.asarray(of), confidence=CONFIDENCE, within=(0, 1)) for of in zip(*by_seed, strict=True)]
        rows += [{"encoder": name, "layer": number, "accuracy": of} for number, of in enumerate(layers)]
        best = bounds(max(layers, key=lambda of: of.mean))
        lead.append(f"{name} tells {best} of the sentences from their words in a random order.")
    caption = "Sentences told from their words in a random order, by layer."
    drawing = curves(rows, caption, x="layer", y="accuracy", by="encoder")
    text = (
        "Logistic regression on the mean of a frozen encoder's states over the words of a sentence, without marks; "
        "guessing is right for 0.500. Half of the sentences are learned, each in its order and in a random order, and "
        f"the others answered; intervals are over {seeds} random orders and divisions."
    )
    return Measured([Sheet(rows, f"{corpus} text; 0 is the embedding")], lead, [text], [drawing])


def words_of(encoder: Encoder, sentences: Sequence[Sentence]) -> list[Words]:
    """The pieces of the words of each sentence, as far as the encoder's positions reach; sentences with fewer than
    `LEAST` words are left out."""
    read = list[Words]()
    for parsed in sentences:
        ids, units = pieces_of(encoder, parsed)
        words = [ids[first : last + 1] for first, last in units.values()]
        fits = int((np.cumsum([len(word) for word in words]) <= room_of(encoder)).sum())
        if fits >= LEAST:
            read.append(words[:fits])
    return read


def accuracies(encoder: Encoder, read: Sequence[Words], *, ordered: Sequence[Tensor], seed: int) -> list[float]:
    """By layer: the accuracy on the sentences that are not learned; `ordered` are the `means` of the sentences."""
    rng = np.random.default_rng(seed)
    shuffled = [[words[place] for place in rng.permutation(len(words))] for words in read]
    layers = [torch.cat(parts) for parts in zip(ordered, means(encoder, shuffled), strict=True)]
    tested = rng.permutation(len(read)) < max(1, round(TESTED * len(read)))
    tested = np.concatenate([tested, tested])
    labels = np.repeat([1, 0], len(read))
    results = []
    for layer in layers:
        x, answered = (part[0].numpy() for part in normalised(layer[None, ~tested], layer[None, tested]))
        predicted = regressed(x, labels[~tested], answered, classes=2)[PENALTIES.index(PENALTY)]
        results.append(float((predicted.argmax(1) == labels[tested]).mean()))
    return results


def means(encoder: Encoder, read: Sequence[Words]) -> list[Tensor]:
    """(N, D_l) mean of the states of the embedding and of each layer over the pieces of each sentence. The sum is
    computed in float64, so that it does not depend on the order of static vectors."""
    rows = [encoder.model.special_tokens([piece for word in words for piece in word]) for words in read]
    order, parts = list[int](), []
    for numbers, layers, lengths_B in hidden(encoder, rows):
        order += numbers
        outside_BT1 = ~mask(lengths_B, layers[0].shape[1])[..., None]
        sums = (layer.double().masked_fill(outside_BT1, 0.0).sum(1) for layer in layers)
        parts.append([(of / lengths_B[:, None]).float() for of in sums])
    back = torch.tensor(order).argsort()
    return [torch.cat(of)[back].clone() for of in zip(*parts, strict=True)]
