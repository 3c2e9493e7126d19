"""`ingest`: cleaning, deduplication and sharding of raw text."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from components.settings.section import Fraction, Positive, Section

#: Maximum number of MinHash values in a band: four values of 16 bits fill a 64-bit key.
_MOST_ROWS = 4
#: Minimum number of values in a band: with one, unrelated documents share too many bands.
_LEAST_ROWS = 2
#: Share of the pairs at the threshold that have to share a band.
_RECALL = 0.99


class NearDuplicates(Section):
    """Near-duplicate removal by MinHash over word n-grams (Broder 1997) and locality-sensitive hashing.

    A signature of `permutations` values is split into bands of `rows` values; documents that agree in all values of a
    band are compared. At Jaccard similarity s, that is so with probability 1 - (1 - s^rows)^(permutations / rows)
    (Leskovec et al. 2014, section 3.4).
    """

    #: Estimated Jaccard similarity from which two documents are duplicates.
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    #: Number of hash permutations in a signature; a lower threshold needs more.
    permutations: Positive = 64
    #: Words in an n-gram.
    ngram: Positive = 5

    @property
    def rows(self) -> int:
        """MinHash values per band: the largest number (2 to 4) for which 99% of pairs at the threshold share one."""
        choices = range(_MOST_ROWS, _LEAST_ROWS - 1, -1)
        return next(rows for rows in choices if self._recall(rows) >= _RECALL)

    def _recall(self, rows: int) -> float:
        # Probability that a pair at the threshold shares a band of `rows` values.
        return float(1 - (1 - self.threshold**rows) ** (self.permutations // rows))

    @model_validator(mode="after")
    def _enough_permutations(self) -> Self:
        if self._recall(_LEAST_ROWS) < _RECALL:
            miss = 1 - self.threshold**_LEAST_ROWS
            bands = math.ceil(math.log(1 - _RECALL) / math.log(miss)) if 0 < miss < 1 else 1
            raise ValueError(
                f"{self.permutations} permutations cannot find 99% of the pairs at threshold {self.threshold:g}; "
                f"set permutations to at least {_LEAST_ROWS * bands}, or raise the threshold"
            )
        return self


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
