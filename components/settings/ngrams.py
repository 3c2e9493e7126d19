"""`ngrams`: n-gram language models, with which the perplexity of every language model is compared."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import NO_EFFECT, Positive, Section


class NgramSettings(Section):
    """N-gram models with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999)."""

    #: Length of the longest n-grams, in pieces.
    order: Annotated[int, Field(ge=1, le=12)] = 5
    #: The same for vocabularies of characters.
    character_order: Annotated[int, Field(ge=1, le=12)] = 8
    #: Whether the models are kept, for `headstart perplexity --ngrams`: about 100 bytes per token of the corpus.
    keep: bool = False
    #: Memory for counting; more n-grams are counted on disk.
    memory_megabytes: Annotated[Positive, Field(json_schema_extra=NO_EFFECT)] = 512
