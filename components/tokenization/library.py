"""Base class of tokenizers whose pieces are found by the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from tokenizers import Tokenizer as Backend

from components.tokenization.base import Ids, Tokenizer, well_formed

VOCABULARY: Final = "tokenizer.json"
# Words per call: the library's result for a word is a hundred times larger than its ids.
_WORDS_PER_CALL: Final = 1 << 14


class LibraryTokenizer(Tokenizer):
    """Encodes with `backend`, a tokenizer of the library without added tokens."""

    backend: Backend

    def _encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word."""
        ids: list[list[int]] = []
        for start in range(0, len(words), _WORDS_PER_CALL):
            group = words[start : start + _WORDS_PER_CALL]
            ids += [encoding.ids for encoding in self.backend.encode_batch_fast(group, add_special_tokens=False)]
        return ids

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        spaced, inserted = self.segmentation.spaced_with_insertions(well_formed(text), self.separator)
        encoding = self.backend.encode(spaced, add_special_tokens=False)
        spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        # Subtract the number of separators that were inserted before each position.
        spans = spans - np.searchsorted(np.asarray(inserted, dtype=np.int64), spans)
        return np.asarray(encoding.ids, dtype=np.int32), [(start, end) for start, end in spans.tolist()]
