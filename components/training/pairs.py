"""Sentence pairs with masked pieces: whether B follows A (BERT), and which of the two comes first (ALBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from components.errors import DataError
from components.models.base import Batch
from components.tokenization.special import END, START
from components.training.rows import RowSampler
from components.training.windows import Ids, Tokens

#: A cut between A and B that leaves either less than this share of the row is taken only where there is no other.
LEAST_SHARE = 1 / 8


class PairSampler(RowSampler):
    """[CLS] A [SEP] B [SEP]; A and B begin with a sentence and have `window` - 3 pieces together.

    Batch: that of `RowSampler` and `segments` (B, window), 0 for [CLS] A [SEP] and 1 for B [SEP].
    """

    frame = 3

    def _joined(self, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[Ids, Batch]:
        """Rows and segments of pairs (A, B)."""
        tokens = np.stack([np.concatenate(([START], a, [END], b, [END]), dtype=np.int64) for a, b in pairs])
        lengths = np.array([len(a) + 2 for a, _ in pairs])
        segments = (np.arange(self.window) >= lengths[:, None]).astype(np.int64)
        return tokens, {"segments": torch.from_numpy(segments)}

    def _cuts(self, start: int, document: int) -> tuple[Ids, Ids]:
        """Places where B may begin: a sentence inside a document; else a document's start; else the middle. And for
        each, where the sentence before it began."""
        end = min(start + self.text, self.store.tokens)
        begins, firsts = [], []
        while document < self.store.documents and (offset := int(self.store.offsets[document])) < end:
            begins.append(offset + np.asarray(self.store.sentence_starts(document), dtype=np.int64))
            firsts.append(np.arange(len(begins[-1])) == 0)
            document += 1
        places, first = np.concatenate(begins), np.concatenate(firsts)
        before = np.maximum(start, np.concatenate(([start], places[:-1])))
        margin = LEAST_SHARE * self.text
        for wanted, least in ((~first, margin), (~first, 0), (first, 0)):
            among = wanted & (places > start + least) & (places < end - least)
            if among.any():
                return places[among], before[among]
        middle = start + self.text // 2
        return np.array([middle]), np.array([middle - 1])


class SentencePairSampler(PairSampler):
    """In half the rows B is what follows A in the text, in the others it is drawn from another document (Devlin et al.
    2019, section 3.1 and appendix A.1 and A.2).

    Batch: that of `PairSampler` and `next_sentence` (B,), 0 where B follows A, 1 where it is random.

    Raises:
        DataError: the store holds only one document, so there is no other to draw from.
    """

    choices = 4

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        if store.documents < 2:
            raise DataError("next-sentence prediction needs at least two documents; the corpus holds one")

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        pairs = [self._pair(row, *choice) for row, choice in zip(rows, choices, strict=True)]
        tokens, batch = self._joined(pairs)
        return tokens, batch | {"next_sentence": torch.from_numpy((choices[:, 1] < 0.5).astype(np.int64))}

    def _pair(self, row: int, cut: float, coin: float, document: float, sentence: float) -> tuple[Ids, Ids]:
        offsets = self.store.offsets
        start, here = self._sentence(row)
        cuts, _ = self._cuts(start, here)
        second = int(cuts[int(cut * len(cuts))])
        length = second - start
        if coin < 0.5:
            # Any document but the one that A ends in.
            ends_in = int(np.searchsorted(offsets, min(second, self.store.tokens) - 1, side="right")) - 1
            other = (ends_in + 1 + int(document * (self.store.documents - 1))) % self.store.documents
            starts = self.store.sentence_starts(other)
            second = int(offsets[other]) + int(starts[int(sentence * len(starts))])
        return self.store.span(start, length), self.store.span(second, self.text - length)


class SentenceOrderSampler(PairSampler):
    """Two parts of the same text, swapped in half the rows (Lan et al. 2020, section 3.1).

    Where the row ends, its last sentence is cut in two. So that this does not tell which part comes later, the earlier
    part too ends anywhere in a sentence, and the later one begins with the sentence after it.

    Batch: that of `PairSampler` and `sentence_order` (B,), 0 where A comes first in the text, 1 where B does.
    """

    choices = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        swapped = choices[:, 1] < 0.5
        pairs = [self._parts(row, cut) for row, cut in zip(rows, choices[:, 0], strict=True)]
        ordered = [
            (later, earlier) if swap else (earlier, later)
            for (earlier, later), swap in zip(pairs, swapped, strict=True)
        ]
        tokens, batch = self._joined(ordered)
        return tokens, batch | {"sentence_order": torch.from_numpy(swapped.astype(np.int64))}

    def _parts(self, row: int, cut: float) -> tuple[Ids, Ids]:
        start, here = self._sentence(row)
        places, before = self._cuts(start, here)
        # Each piece that a cut may stand behind is as likely as any other.
        ends = np.cumsum(places - before)
        piece = int(cut * ends[-1])
        sentence = int(np.searchsorted(ends, piece, side="right"))
        length = int(places[sentence] - (ends[sentence] - piece - 1)) - start
        return self.store.span(start, length), self.store.span(int(places[sentence]), self.text - length)
