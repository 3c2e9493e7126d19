"""`static.<name>`: word vectors that are computed from an encoder, without training."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section


class StaticSettings(Section):
    """Word vectors from an encoder: every piece of its vocabulary, encoded alone, reduced by principal components and
    weighted by its frequency (model2vec: Tulkens and van Dongen 2024), then fitted to the encoder's means of passages
    of the domain. The block has the initialisations of the encoder: `adapted` are the vectors of the adapted one."""

    #: Block of `pretrain`: the encoder, trained or imported.
    teacher: str
    #: Number of principal components that are kept; at most the width of the encoder.
    width: Positive = 256
    #: Number of frequent words of the domain corpus that get vectors of their own. They are added to the pieces of a
    #: WordPiece vocabulary; with other tokenizers they are the vocabulary.
    words: Annotated[int, Field(ge=0)] = 0
