"""Sentence pairs with masked pieces: next-sentence prediction (BERT) and sentence-order prediction (ALBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from components.errors import DataError
from components.models.base import Batch
from components.pretraining.rows import RowSampler
from components.tokenization.special import END, START
from components.training.windows import Ids, Tokens

#: Label of a row whose text contains no pair: no sentence begins within a document. `cross_entropy` ignores it.
NO_PAIR = -100
#: Minimum fraction of the row for A and for B, if a sentence boundary allows it.
LEAST_SHARE = 1 / 8


class PairSampler(RowSampler):
    """[CLS] A [SEP] B [SEP]; A and B have `window` - 3 pieces together. If the row's text contains a pair, both begin
    with a sentence.

    Batch: that of `RowSampler` and `segments` (B, window), 0 for [CLS] A [SEP] and 1 for B [SEP].
    """

    frame = 3

    def _joined(self, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[Ids, Batch]:
        """Rows (B, window) and segments of pairs (A, B)."""
        tokens = np.stack([np.concatenate(([START], a, [END], b, [END]), dtype=np.int64) for a, b in pairs])
        lengths = np.array([len(a) + 2 for a, _ in pairs])
        segments = (np.arange(self.window) >= lengths[:, None]).astype(np.int64)
        return tokens, {"segments": torch.from_numpy(segments)}

    def _sentences(self, start: int, document: int) -> tuple[Ids, NDArray[np.bool_]]:
        """Sentences of the documents that the row's text overlaps: their positions in the stream, and whether each is
        the first of its document."""
        end = min(start + self.text, self.store.tokens)
        begins, firsts = [], []
        while document < self.store.documents and (offset := int(self.store.offsets[document])) < end:
            begins.append(offset + np.asarray(self.store.sentence_starts(document), dtype=np.int64))
            firsts.append(np.arange(len(begins[-1])) == 0)
            document += 1
        return np.concatenate(begins), np.concatenate(firsts)


class SentencePairSampler(PairSampler):
    """Rows for next-sentence prediction (Devlin et al. 2019, section 3.1 and appendices A.1 and A.2): with probability
    0.5 B follows A in the same document, otherwise it is from another, random document.

    Documents of one sentence contain no pair. A random B in all such rows would show the label by the form of A, so
    these rows train the masked pieces only.

    Batch: that of `PairSampler` and `next_sentence` (B,), 0 if B follows A, 1 if it is random, `NO_PAIR` otherwise.

    Raises:
        DataError: the store contains only one document.
    """

    choices = 4

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        if store.documents < 2:
            raise DataError("next-sentence prediction needs at least two documents; the corpus contains one")

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        pairs = [self._pair(row, *choice) for row, choice in zip(rows, choices, strict=True)]
        tokens, batch = self._joined([(a, b) for a, b, _ in pairs])
        return tokens, batch | {"next_sentence": torch.tensor([label for *_, label in pairs])}

    def _pair(self, row: int, cut: float, coin: float, document: float, sentence: float) -> tuple[Ids, Ids, int]:
        """A, B and the label."""
        offsets = self.store.offsets
        start, here = self._sentence(row)
        cuts = self._cuts(start, here)
        if not len(cuts):
            length = self.text // 2
            return self.store.span(start, length), self.store.span(start + length, self.text - length), NO_PAIR
        second = int(cuts[int(cut * len(cuts))])
        length = second - start
        is_random = coin < 0.5
        if is_random:
            # Any document except the one in which A ends.
            ends_in = int(np.searchsorted(offsets, min(second, self.store.tokens) - 1, side="right")) - 1
            other = self.store.another(ends_in, document)
            starts = self.store.sentence_starts(other)
            second = int(offsets[other]) + int(starts[int(sentence * len(starts))])
        return self.store.span(start, length), self.store.span(second, self.text - length), int(is_random)

    def _cuts(self, start: int, document: int) -> Ids:
        """Positions at which B may begin, possibly none: sentences other than the first of a document."""
        begins, first = self._sentences(start, document)
        end = min(start + self.text, self.store.tokens)
        margin = LEAST_SHARE * self.text
        inside = begins[~first & (begins > start) & (begins < end)]
        central = inside[(inside > start + margin) & (inside < end - margin)]
        return central if len(central) else inside


class SentenceOrderSampler(PairSampler):
    """Two parts of a text, one after the other, swapped with probability 0.5 (Lan et al. 2020, section 3.1).

    The form of the parts must not reveal their order: both begin with a sentence and have the same distribution of
    lengths. So the earlier part ends at a random position, and the later part begins with the next sentence of the same
    document; the pieces between them are skipped. Rows without a pair train the masked pieces only.

    Batch: that of `PairSampler` and `sentence_order` (B,), 0 if A is first in the text, 1 if B is, `NO_PAIR` otherwise.
    """

    choices = 2

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        pairs, labels = [], []
        for row, (cut, coin) in zip(rows, choices, strict=True):
            earlier, later, is_pair = self._parts(row, cut)
            swap = is_pair and coin < 0.5
            pairs.append((later, earlier) if swap else (earlier, later))
            labels.append(int(swap) if is_pair else NO_PAIR)
        tokens, batch = self._joined(pairs)
        return tokens, batch | {"sentence_order": torch.tensor(labels)}

    def _parts(self, row: int, cut: float) -> tuple[Ids, Ids, bool]:
        """The earlier and the later part of a row, and whether they are a pair; `cut` is uniform in [0, 1)."""
        start, here = self._sentence(row)
        begins, first = self._sentences(start, here)
        before = np.concatenate(([start], begins[:-1]))
        margin = int(LEAST_SHARE * self.text)
        for least in (margin, 1):
            # Before each sentence, the earlier part has `room` possible ends, from position `lowest`.
            lowest = np.maximum(before + 1, start + least)
            room = np.maximum(0, np.minimum(begins, start + self.text - least) - lowest + 1) * ~first
            if room.any():
                ends = np.cumsum(room)
                sampled = int(cut * ends[-1])
                sentence = int(np.searchsorted(ends, sampled, side="right"))
                length = int(lowest[sentence] + sampled - (ends[sentence] - room[sentence])) - start
                second = int(begins[sentence])
                return self.store.span(start, length), self.store.span(second, self.text - length), True
        length = self.text // 2
        return self.store.span(start, length), self.store.span(start + length, self.text - length), False
