"""`static.<name>` and `stacked.<name>`: encoders that are computed from other encoders, without training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.settings.section import Positive, Section


class StaticSettings(Section):
    """Word vectors from an encoder: every piece of its vocabulary, encoded alone, reduced by principal components and
    weighted by its frequency (model2vec: Tulkens and van Dongen 2024). The initialisations of the block are those of
    the encoder: `adapted` are the vectors of the adapted encoder."""

    #: Block of `pretrain`: the encoder, trained or imported.
    teacher: str
    #: Number of principal components that are kept; at most the width of the encoder.
    width: Positive = 256
    #: Weight of a piece: `sif` is a / (a + p), p its relative frequency in the domain corpus (Arora et al. 2017);
    #: `zipf` the same with p of Zipf's law for the rank of the piece in the vocabulary; `none` is 1.
    weights: Literal["sif", "zipf", "none"] = "sif"
    #: a of the weights. Arora et al. use 1e-3 to 1e-4 for vectors that are compared as they are; a trained head also
    #: uses what frequent words say.
    smoothing: Annotated[float, Field(gt=0)] = 1e-2
    #: Number of frequent words of the domain corpus that get vectors of their own. They are added to the pieces of a
    #: WordPiece vocabulary; with other tokenizers they are the vocabulary.
    words: Annotated[int, Field(ge=0)] = 0


class StackedSettings(Section):
    """The states of two encoders at each word, concatenated (stacked embeddings: Akbik et al. 2018), such as FLAIR and
    word vectors. A stack of three is a stack of a stack and an encoder. The initialisations of the block are those of
    its parts."""

    #: The two blocks: of `pretrain`, `static` or `stacked`.
    of: Annotated[list[str], Field(min_length=2, max_length=2)]
    #: Hidden states of each part: those of the last layer (FLAIR, BERT), or of all layers and the embedding (ELMo).
    layers: Literal["last", "all"] = "last"
