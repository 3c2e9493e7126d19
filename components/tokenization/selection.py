"""Some documents of a token store, as a store of their own: the text of an increment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError
from components.tokenization.store import TokenStore


class Selection:
    """A view of chosen documents, with the interface of `components.training.windows.Tokens`; nothing is copied.

    Args:
        store: the documents.
        chosen: numbers of documents in `store`, in the order of the view.

    Attributes:
        documents, tokens, words, chars, predicted, vocab_size, offsets: of the view, as in `TokenStore`.
        chosen: numbers of the documents in the store.

    Raises:
        DataError: the chosen documents have no tokens.
    """

    def __init__(self, store: TokenStore, chosen: NDArray[np.int64]) -> None:
        self._store, self.chosen = store, chosen
        lengths = store.offsets[chosen + 1] - store.offsets[chosen]
        self.offsets: NDArray[np.int64] = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        self.documents = len(chosen)
        self.tokens = self.predicted = int(self.offsets[-1])
        self.words = int(store.words_per_document[chosen].sum(dtype=np.int64))
        self.chars = int(store.chars_per_document[chosen].sum(dtype=np.int64))
        self.vocab_size = store.vocab_size
        if not self.tokens:
            raise DataError(f"{store.directory}: the chosen documents have no tokens")

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """`length` tokens of the stream from position `start`, int64, wrapping around at its end."""
        out = np.empty(length, dtype=np.int64)
        filled, position = 0, start % self.tokens
        document = int(np.searchsorted(self.offsets, position, side="right")) - 1
        while filled < length:
            skipped = position - int(self.offsets[document])
            taken = min(length - filled, int(self.offsets[document + 1]) - position)
            if taken:
                first = int(self._store.offsets[self.chosen[document]]) + skipped
                out[filled : filled + taken] = self._store.span(first, taken)
            filled += taken
            document = (document + 1) % self.documents
            position = int(self.offsets[document])
        return out

    def another(self, document: int, chance: float) -> int:
        """Another document of the view, chosen by a number `chance` from [0, 1)."""
        return (document + 1 + int(chance * (self.documents - 1))) % self.documents

    def sentence_starts(self, document: int) -> NDArray[Any]:
        """Start positions of the sentences of a document of the view, ascending from 0."""
        return self._store.sentence_starts(int(self.chosen[document]))
