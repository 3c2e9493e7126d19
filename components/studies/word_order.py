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
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import Corpus, EncoderName, Outputs, band, bounds
from components.studies.frozen import PENALTIES, normalised, regressed
from components.studies.occurrences import BATCH, Sentence, sample

#: Strength of the regression's penalty; share of the sentences whose answers are counted.
PENALTY, TESTED = PENALTIES[1], 0.5
#: Minimum number of words: shorter sentences have few orders.
LEAST = 5

#: The pieces of each word of a sentence.
Words = list[list[int]]


def run(
    outputs: Outputs,
    *,
    encoder: EncoderName = "",
    corpus: Corpus = "domain",
    sentences: Annotated[int, typer.Option(help="Number of sentences.", min=20)] = 2000,
    seeds: Annotated[int, typer.Option(help="Random orders of every sentence.", min=2)] = 3,
) -> Findings:
    """The accuracy by layer of one or several encoders."""
    directory = outputs.corpus(corpus)
    scores: dict[str, list[list[float]]] = {}
    for block, start in outputs.chosen(encoder):
        loaded = outputs.encoder(block, start)
        read = words_of(loaded, sample(directory, loaded.tokenizer.segmentation, count=sentences))
        if len(read) < 2:
            raise DataError(f"{directory}: no {LEAST} words of a sentence are in {block}'s positions")
        ordered = means(loaded, read)
        by_seed = [accuracies(loaded, read, ordered=ordered, seed=seed) for seed in range(seeds)]
        scores[f"{block}-{start}"] = [list(of) for of in zip(*by_seed, strict=True)]
    intervals = {
        name: [interval(np.asarray(of), confidence=CONFIDENCE, within=(0, 1)) for of in layers]
        for name, layers in scores.items()
    }
    chapter = Chapter("Word order")
    for name, layers in intervals.items():
        best = max(range(len(layers)), key=lambda number: layers[number].mean)
        chapter.lead.append(f"{name} tells {bounds(layers[best])} of the sentences from their words in a random order.")
    rows = [[name, str(number), bounds(of)] for name, layers in intervals.items() for number, of in enumerate(layers)]
    chapter.tables.append(Table(["encoder", "layer", "accuracy"], rows, f"{corpus} text; 0 is the embedding"))
    curves = {name: band([float(number) for number in range(len(of))], of) for name, of in intervals.items()}
    svg = figures.lines(curves, x_label="layer", y_label="accuracy", ticks=True)
    chapter.figures.append(Drawing(svg, "Sentences told from their words in a random order, by layer."))
    chapter.text.append(
        "Logistic regression on the mean of a frozen encoder's states over the words of a sentence, without marks; "
        "guessing is right for 0.500. Half of the sentences are learned, each in its order and in a random order, and "
        f"the others answered; intervals are over {seeds} random orders and divisions."
    )
    return Findings(chapter, {"encoders": scores, "sentences": sentences})


def words_of(encoder: Encoder, sentences: Sequence[Sentence]) -> list[Words]:
    """The pieces of the words of each sentence, as far as the encoder's positions reach; sentences with fewer than
    `LEAST` words are left out."""
    model, read = encoder.model, list[Words]()
    room = (model.max_tokens or 512) - len(model.special_tokens([]))
    for parsed in sentences:
        ids, offsets = encoder.tokenizer.encode_with_offsets(parsed.text)
        words: Words = []
        for start, end in parsed.spans:
            pieces = [piece for piece, (begin, stop) in zip(ids, offsets, strict=True) if begin < end and stop > start]
            if sum(map(len, words)) + len(pieces) > room:
                break
            words += [pieces] if pieces else []
        if len(words) >= LEAST:
            read.append(words)
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


@torch.inference_mode()
def means(encoder: Encoder, read: Sequence[Words]) -> list[Tensor]:
    """(N, D_l) mean of the states of the embedding and of each layer over the pieces of each sentence. The sum is
    computed in float64, so that it does not depend on the order of static vectors."""
    model = encoder.model
    rows = [model.special_tokens([piece for word in words for piece in word]) for words in read]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    parts: list[list[Tensor]] = []
    for start in range(0, len(order), BATCH):
        tokens = [torch.tensor(rows[row]) for row in order[start : start + BATCH]]
        lengths_B = torch.tensor([len(row) for row in tokens])
        tokens_BT = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        outside_BT1 = ~mask(lengths_B, tokens_BT.shape[1])[..., None]
        layers = (layer.double().masked_fill(outside_BT1, 0.0) for layer in model.hidden_states(tokens_BT, lengths_B))
        parts.append([(layer.sum(1) / lengths_B[:, None]).float() for layer in layers])
    back = torch.tensor(order).argsort()
    return [torch.cat(of)[back].clone() for of in zip(*parts, strict=True)]
