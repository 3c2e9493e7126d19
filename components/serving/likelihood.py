"""Log-probabilities of texts under language models, causal and masked; and `headstart try --file`: the perplexity of a
file, in units that do not depend on the model's vocabulary.

The file is read and tokenized like a corpus, but not cleaned or filtered. The likelihood covers every piece and the END
of every document:

    perplexity per word = exp(nats / words)        bits per character = nats / characters / ln 2

Masked models define no probability of a text. They are measured by the pseudo-likelihood (Salazar et al. 2020), which
predicts each piece from all others: comparable among masked models only, at one pass per piece.

Shape suffixes: B rows, T positions, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.core.errors import ConfigError, DataError
from components.data.formats.lines import Reading
from components.data.ingestion.readers import read_documents
from components.models import family as family_named
from components.models.base import Carry, LanguageModel
from components.models.encoder import Encoder, load_encoder
from components.serving.generation import require_output_layer
from components.settings.data import CorpusSource
from components.tokenization import Tokenizer
from components.tokenization.special import END, MASK, UNK

#: Maximum number of logits of a batch: 128 MiB in float32.
LOGITS: Final = 1 << 25
#: Pieces per forward pass of a model that carries its state.
SEGMENT: Final = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """An input and the positions whose pieces are scored; `pieces`: ids of the whole input, special pieces included."""

    pieces: Sequence[int]
    positions: Sequence[int]


@torch.no_grad()
def causal_log_probs(model: LanguageModel, inputs: Sequence[Gap]) -> list[Floats]:
    """log p(piece | all pieces before it) in nats, of the scored pieces of each input. For causal families."""
    return _scored(model, inputs, shift=1)


@torch.no_grad()
def masked_log_probs(model: LanguageModel, inputs: Sequence[Gap]) -> list[Floats]:
    """log p(piece | the input with [MASK] at all scored positions) in nats, of the scored pieces of each input. For
    masked families (Petroni et al. 2019, Language Models as Knowledge Bases; several masks: Schick and Schütze 2021).
    """
    return _scored(model, inputs, shift=0)


def _scored(model: LanguageModel, inputs: Sequence[Gap], *, shift: int) -> list[Floats]:
    model.eval()
    collected: list[Floats] = [np.zeros(0)] * len(inputs)
    for rows in _batches([len(entry.pieces) for entry in inputs], model.config.vocabulary):
        tokens = np.asarray([inputs[row].pieces for row in rows], dtype=np.int64)
        if not shift:
            for line, row in zip(tokens, rows, strict=True):
                line[list(inputs[row].positions)] = MASK
        # A causal model predicts a piece at the position before it, so that the last one is not read.
        read = torch.from_numpy(tokens[:, : -shift or None])
        logits_BTV, _ = model.predict(read.to(next(model.parameters()).device))
        for row, logits_TV in zip(rows, logits_BTV, strict=True):
            gap = inputs[row]
            logits = logits_TV[torch.tensor(gap.positions) - shift]
            collected[row] = _of_pieces(model, logits, [gap.pieces[position] for position in gap.positions])
    return collected


def _batches(lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Batches of inputs of equal length with at most LOGITS logits: `predict` takes no padding."""
    by_length: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        by_length.setdefault(length, []).append(row)
    for length, rows in sorted(by_length.items()):
        most = max(1, LOGITS // (length * vocabulary))
        for start in range(0, len(rows), most):
            yield rows[start : start + most]


def _of_pieces(model: LanguageModel, logits_TV: Tensor, pieces: Sequence[int]) -> Floats:
    """(T,) log-probabilities of T pieces."""
    # Pieces of an open vocabulary beyond the output layer are unknown.
    known = torch.tensor([[piece if piece < model.config.vocabulary else UNK] for piece in pieces])
    return logits_TV.double().log_softmax(-1).cpu().gather(1, known).squeeze(1).numpy()


@torch.no_grad()
def text_log_probs(model: LanguageModel, pieces: Sequence[int]) -> Floats:
    """log p(piece | the pieces before it) of every piece of a text, (len(pieces),) in nats. For causal families. END
    precedes the text. A model with limited positions reads windows that overlap by half."""
    tokens = [END, *pieces]
    model.eval()
    if model.max_tokens is None:
        parts = []
        carry: Carry = ()
        device = next(model.parameters()).device
        for start in range(0, len(pieces), SEGMENT):
            segment = torch.tensor([tokens[start : start + min(SEGMENT, len(pieces) - start)]], device=device)
            logits_1TV, carry = model.predict(segment, carry)
            parts.append(_of_pieces(model, logits_1TV[0], pieces[start : start + SEGMENT]))
        return np.concatenate([*parts, np.zeros(0)])
    inputs = []
    done = 1
    while done < len(tokens):
        start = 0 if done == 1 else max(0, done - model.max_tokens // 2)
        end = min(len(tokens), start + model.max_tokens)
        inputs.append(Gap(tokens[start:end], range(done - start, end - start)))
        done = end
    return np.concatenate([*causal_log_probs(model, inputs), np.zeros(0)])


def pseudo_log_probs(model: LanguageModel, pieces: Sequence[int]) -> Floats:
    """log p(piece | all other pieces) of every piece of a text, (len(pieces),) in nats, one [MASK] at a time (Salazar
    et al. 2020). For masked families. A text that exceeds the model's positions is split into segments."""
    around = len(model.special_tokens([]))
    room = len(pieces) if model.max_tokens is None else model.max_tokens - around
    lead = model.special_tokens([-1]).index(-1)
    collected = [np.zeros(0)]
    for start in range(0, len(pieces), max(1, room)):
        segment = list(pieces[start : start + room])
        tokens = model.special_tokens(segment)
        collected += masked_log_probs(model, [Gap(tokens, [lead + index]) for index in range(len(segment))])
    return np.concatenate(collected)


def gap_between(
    model: LanguageModel, before: Sequence[int], answer: Sequence[int], after: Sequence[int], *, causal: bool
) -> Gap:
    """An answer between two texts as an input in which the answer's pieces are scored. For a causal model the pieces of
    `after` are scored, too, since they depend on the answer.

    To fit the model's positions, `after` is truncated at its end, then `before` at its beginning.

    Raises:
        DataError: the answer has no piece, or more pieces than the model has positions.
        ConfigError: the model is causal and nothing precedes the answer.
    """
    specials = len(model.special_tokens([]))
    room = None if model.max_tokens is None else model.max_tokens - specials - len(answer)
    if not answer:
        raise DataError("the answer has no piece of the vocabulary; rephrase it")
    if room is not None and room < 0:
        raise DataError(f"an answer of {len(answer)} pieces exceeds the model's positions; shorten it")
    if room is not None:
        after = after[:room]
        before = before[len(before) - min(len(before), room - len(after)) :]
    whole = model.special_tokens([*before, *answer, *after])
    lead = model.special_tokens([-1]).index(-1)
    first = lead + len(before)
    if causal and first == 0:
        raise ConfigError(f"{type(model).__name__} has no special piece before a text; begin the prompt with a text")
    last = first + len(answer) + (len(after) if causal else 0)
    return Gap(whole, range(first, last))


#: Number of documents per call of the tokenizer.
BATCH = 64
#: Largest exponent of e that a float can represent.
MOST_NATS = 709.0


@dataclass(frozen=True)
class Measured:
    """The measured texts and their likelihood. `pieces`: number of predicted pieces, for causal models with the END of
    each document. `unknown`: number of unknown pieces among them; if there are many, the likelihood is not
    meaningful."""

    documents: int
    words: int
    characters: int
    pieces: int
    unknown: int
    nats: float

    @property
    def per_word(self) -> float:
        """Perplexity per word, independent of the pieces. Words are separated by spaces or by the segmenter."""
        return math.exp(min(self.nats / self.words, MOST_NATS))

    @property
    def per_piece(self) -> float:
        return math.exp(min(self.nats / self.pieces, MOST_NATS))

    @property
    def bits_per_character(self) -> float:
        """Bits per character, white space included."""
        return self.nats / self.characters / math.log(2)


def measure_file(directory: Path, file: Path, *, text: str = "text", most: int | None = None) -> Measured:
    """Measure an encoder on a file: txt, jsonl, csv, tsv or parquet, uncompressed, .gz or .zst."""
    encoder = load_encoder(directory)
    if family_named(encoder.family).objective not in ("causal", "masked", "permuted"):
        raise ConfigError(f"the family {encoder.family!r} has no language model, so texts have no probability")
    read = read_documents(file, CorpusSource(path=str(file), text=text), Reading())
    documents = (document for _, (document,), _ in read if document.strip())
    return measure_texts(encoder, documents, most=most, where=str(file))


def measure_texts(encoder: Encoder, texts: Iterable[str], *, most: int | None = None, where: str = "texts") -> Measured:
    """Measure an encoder on documents; see `measure_file`. No more documents than needed are read."""
    require_output_layer(encoder)
    model, tokenizer = encoder.model, encoder.tokenizer
    read, encoded = _first(tokenizer, texts, most=most)
    if not any(encoded):
        raise DataError(f"{where}: contains no text that the vocabulary covers")
    stream = [piece for ids in encoded for piece in (*ids, END)]
    if family_named(encoder.family).objective == "causal":
        nats = -float(text_log_probs(model, stream).sum())
        pieces = len(stream)
    else:
        nats = -sum(float(pseudo_log_probs(model, ids).sum()) for ids in encoded)
        pieces = sum(map(len, encoded))
    return Measured(
        documents=len(read),
        words=max(1, sum(len(tokenizer.segmentation.spaced(document).split()) for document in read)),
        characters=max(1, sum(map(len, read))),
        pieces=pieces,
        unknown=sum(id_ == UNK or id_ >= tokenizer.vocab_size for ids in encoded for id_ in ids),
        nats=nats,
    )


def _first(tokenizer: Tokenizer, texts: Iterable[str], *, most: int | None) -> tuple[list[str], list[list[int]]]:
    """The first documents that have at least `most` pieces in total, and their pieces."""
    read: list[str] = []
    encoded: list[list[int]] = []
    total = 0
    documents = iter(texts)
    while batch := list(islice(documents, BATCH)):
        for document, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            if most is not None and total >= most:
                return read, encoded
            read.append(document)
            encoded.append(ids.tolist())
            total += len(ids)
    return read, encoded
