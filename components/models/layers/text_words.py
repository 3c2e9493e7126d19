"""The words of a text of characters, as rows of a table of words.

Characters without white space between them are looked up as written, in lower case, then by their words and marks."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.tokenization.special import FIRST_ORDINARY, UNK

#: Maximum length of a word of the table, in bytes of UTF-8.
LONGEST: Final = 32
_RUNS: Final = re.compile(r"\S+")
_PARTS: Final = re.compile(r"\w+|[^\w\s]")


def packed(words: Sequence[str]) -> Tensor:
    """(N, LONGEST) uint8: words in UTF-8, padded with 0."""
    rows = np.array([word.encode() for word in words], dtype=f"S{LONGEST}")
    return torch.from_numpy(rows.view(np.uint8).reshape(len(words), LONGEST).copy())


class TextWords:
    """Looks up the words of texts.

    Args:
        table: (N, LONGEST) uint8 of `packed`; rows of zeros are unused.
        pieces: of a character vocabulary.
    """

    def __init__(self, table: Tensor, pieces: Sequence[str]) -> None:
        words = table.cpu().numpy().view(f"S{LONGEST}")[:, 0].tolist()
        self._row_of = {word: row for row, word in enumerate(words) if word}
        # Special pieces end a word; a character outside of the vocabulary is in no word of the table.
        self._characters = [" "] * FIRST_ORDINARY + list(pieces[FIRST_ORDINARY:])
        self._characters[UNK] = "\ufffd"

    def text(self, ids: Sequence[int]) -> str:
        return "".join([self._characters[id_] for id_ in ids])

    def words(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(begin, end, row) of each word of a text; row -1: the table lacks it."""
        for run in _RUNS.finditer(text):
            if (row := self._row(run[0])) >= 0:
                yield run.start(), run.end(), row
                continue
            for part in _PARTS.finditer(run[0]):
                yield run.start() + part.start(), run.start() + part.end(), self._row(part[0])

    def rows(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """(T,) for each piece the row of its word; -1: none."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        for begin, end, row in self.words(self.text(ids)):
            rows[begin:end] = row
        return rows

    def _row(self, word: str) -> int:
        row = self._row_of.get(word.encode(), -1)
        return row if row >= 0 else self._row_of.get(word.lower().encode(), -1)
