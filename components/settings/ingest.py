"""`ingest`: cleaning, deduplication and sharding of raw text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Fraction, Positive, Section


class NearDuplicates(Section):
    """MinHash over word n-grams; documents at least `threshold` alike (Jaccard, estimated) count as one."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    permutations: Positive = 64
    ngram: Positive = 5


class IngestSettings(Section):
    """Cleaning, dropping and sharding of raw text."""

    strip_markup: bool = True
    min_characters: int = 1
    near_duplicates: NearDuplicates | None = NearDuplicates()
    #: Share of documents set apart, by a hash of their text, to measure perplexity.
    heldout: Fraction = 0.01
    shard_megabytes: Positive = 32
