"""`ingest`: cleaning, deduplication and sharding of raw text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Fraction, Positive, Section


class NearDuplicates(Section):
    """Near-duplicate removal by MinHash over word n-grams (Broder 1997)."""

    #: Estimated Jaccard similarity from which two documents are duplicates.
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    #: Number of hash permutations in a signature.
    permutations: Positive = 64
    #: Words in an n-gram.
    ngram: Positive = 5


class IngestSettings(Section):
    """Cleaning, deduplication and sharding of raw text."""

    #: Whether HTML is converted to plain text.
    strip_markup: bool = True
    #: Documents with fewer characters are dropped.
    min_characters: int = 1
    #: Near-duplicate removal; null keeps near duplicates. Exact duplicates are always dropped.
    near_duplicates: NearDuplicates | None = NearDuplicates()
    #: Fraction of the documents, chosen by a hash of their text, that is held out to measure perplexity.
    heldout: Fraction = 0.01
    #: Approximate size of a Parquet shard in megabytes.
    shard_megabytes: Positive = 32
