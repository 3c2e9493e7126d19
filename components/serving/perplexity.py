"""`headstart try --file`: perplexity of a model on a file, in units that do not depend on its vocabulary.

The file is read and tokenized like a corpus, but not cleaned or filtered. The likelihood covers every piece and the END
of every document:

    perplexity per word = exp(nats / words)        bits per character = nats / characters / ln 2

Masked models define no probability of a text. They are measured by the pseudo-likelihood (Salazar et al. 2020), which
predicts each piece from all others. It is comparable among masked models only and takes one pass per piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from components.core.errors import ConfigError, DataError
from components.data.formats.lines import Reading
from components.data.ingestion.readers import read_texts
from components.models import family as family_named
from components.models.encoder import Encoder, load_encoder
from components.serving.generation import require_output_layer
from components.serving.likelihood import pseudo_log_probs, text_log_probs
from components.settings.data import CorpusSource
from components.tokenization import Tokenizer
from components.tokenization.special import END, UNK

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
        """Perplexity per piece."""
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
    collected = (document for _, document, _ in read_texts(file, CorpusSource(path=str(file), text=text), Reading()))
    documents = (document for document in collected if document.strip())
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
