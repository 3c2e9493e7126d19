"""`headstart perplexity`: how well a model predicts the text of a file, in units that do not depend on its vocabulary.

The file is cut into documents and pieces as a corpus is, but nothing is cleaned or dropped. Every piece counts, and the
END of every document:

    perplexity per word = exp(nats / words)        bits per character = nats / characters / ln 2

Masked models have no probability of a text. Theirs is the pseudo-likelihood (Salazar et al. 2020), in which each piece
is said knowing all the others: comparable among masked models only, and it costs as many readings as there are pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from components.errors import ConfigError, DataError
from components.formats.lines import Reading
from components.inference.generate import require_output_layer
from components.inference.likelihood import pseudo, running_text
from components.ingestion.readers import read_texts
from components.models import family as family_named
from components.models.encoder import Encoder, load_encoder
from components.settings.data import CorpusSource
from components.tokenization import Tokenizer
from components.tokenization.special import END, UNK

#: Documents that are cut into pieces together.
TOGETHER = 64
#: Largest power of e that a float holds.
MOST_NATS = 709.0


@dataclass(frozen=True)
class Measured:
    """What was read, and how probable it was.

    Attributes:
        pieces: predicted, the END of each document among them (not of a masked model).
        unknown: of them those that the vocabulary does not know; where there are many, the figures say little.
        nats: negative log-likelihood.
    """

    documents: int
    words: int
    characters: int
    pieces: int
    unknown: int
    nats: float

    @property
    def per_word(self) -> float:
        """Perplexity per word (between spaces, or of the segmenter), whatever the pieces are."""
        return math.exp(min(self.nats / self.words, MOST_NATS))

    @property
    def per_piece(self) -> float:
        """Perplexity per piece."""
        return math.exp(min(self.nats / self.pieces, MOST_NATS))

    @property
    def bits_per_character(self) -> float:
        """White space counts."""
        return self.nats / self.characters / math.log(2)


def measure_file(directory: Path, file: Path, *, text: str = "text", most: int | None = None) -> Measured:
    """Measure an encoder on a file: txt, jsonl, csv, tsv or parquet, plain, .gz or .zst.

    Args:
        directory: of the encoder.
        text: column that holds the text, where there are columns.
        most: documents are taken, the first ones, until there are so many pieces; None: all.

    Raises:
        ArtifactError: no complete encoder there.
        ConfigError: the family predicts no pieces.
        DataError: the file cannot be read, or holds no text.
    """
    encoder = load_encoder(directory)
    if family_named(encoder.family).objective not in ("causal", "masked", "permuted"):
        raise ConfigError(f"the family {encoder.family!r} predicts no pieces: it gives a text no probability")
    found = (document for _, document, _ in read_texts(file, CorpusSource(path=str(file), text=text), Reading()))
    return measure_texts(encoder, (document for document in found if document.strip()), most=most, where=str(file))


def measure_texts(encoder: Encoder, texts: Iterable[str], *, most: int | None = None, where: str = "texts") -> Measured:
    """Measure an encoder on documents, of which no more are read than are needed; arguments as of `measure_file`.

    Raises:
        ConfigError: the family predicts no pieces.
        DataError: there is no piece of text.
    """
    model, tokenizer = encoder.model, encoder.tokenizer
    read, encoded = _first(tokenizer, texts, most=most)
    if not any(encoded):
        raise DataError(f"{where}: holds no text that the vocabulary has pieces for")
    if family_named(encoder.family).objective == "causal":
        stream = [piece for ids in encoded for piece in (*ids, END)]
        nats = -float(running_text(model, stream).sum())
        pieces = len(stream)
    else:
        require_output_layer(encoder)
        nats = -sum(float(pseudo(model, ids).sum()) for ids in encoded)
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
    """The first documents and their pieces, until there are `most` pieces."""
    read: list[str] = []
    encoded: list[list[int]] = []
    total = 0
    documents = iter(texts)
    while batch := list(islice(documents, TOGETHER)):
        for document, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            if most is not None and total >= most:
                return read, encoded
            read.append(document)
            encoded.append(ids.tolist())
            total += len(ids)
    return read, encoded
