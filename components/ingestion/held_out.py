"""The texts of dev and test, and the search for their copies in text that models learn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from components.formats.textkey import text_key
from components.ingestion.cleaning import clean
from components.ingestion.dedup import Shingles
from components.ingestion.matching import TextSearch
from components.settings.ingest import NearDuplicates

#: Splits whose texts are left out.
HELD_OUT: Final = ("dev", "test")
#: Texts that are searched at once.
BATCH: Final = 4096


class HeldOut:
    """The texts of dev and test.

    Args:
        texts: their texts.
        threshold: estimated Jaccard similarity from which a text is a near copy (`leakage.threshold`).
    """

    def __init__(self, texts: Iterable[str], *, threshold: float) -> None:
        cleaned = list(dict.fromkeys(map(clean, texts)))
        form = NearDuplicates(threshold=threshold, permutations=128)
        self._shingles = Shingles(ngram=form.ngram, permutations=form.permutations)
        self._keys = set(map(text_key, cleaned))
        self._wanted = TextSearch(cleaned, shingles=self._shingles, rows=form.rows, threshold=threshold)

    def copies(self, texts: Sequence[str]) -> set[int]:
        """The indices of the texts that are copies or near copies of a held-out text, or that contain one, as the stage
        `leakage` counts them."""
        cleaned = [clean(text) for text in texts]
        copies = {index for index, text in enumerate(cleaned) if text_key(text) in self._keys}
        copies |= {index for index, _ in self._wanted.exact(cleaned)}
        return copies | {index for index, _, _ in self._wanted.near(self._shingles.sketches(cleaned))}
