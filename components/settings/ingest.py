"""`ingest`: cleaning, deduplication and sharding of raw text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Fraction, Section


class NearDuplicates(Section):
    """Near-duplicate removal by MinHash over word n-grams (Broder 1997) and locality-sensitive hashing."""

    #: Estimated Jaccard similarity from which two documents are duplicates.
    threshold: Annotated[float, Field(ge=0.4, le=1)] = 0.8


class IngestSettings(Section):
    """Cleaning, deduplication and sharding of raw text."""

    #: Whether HTML is converted to plain text.
    strip_markup: bool = True
    #: Minimum number of characters of a document (of a pair: of its source text); shorter ones are dropped.
    min_characters: int = 1
    #: Near-duplicate removal; null keeps near duplicates. Exact duplicates are always dropped.
    near_duplicates: NearDuplicates | None = NearDuplicates()
    #: Fraction of the documents, chosen by a hash of their text, that is held out to measure perplexity.
    heldout: Fraction = 0.01
