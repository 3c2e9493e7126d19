"""Rows of two consecutive segments with masked pieces, and the noise with which a generator samples replacements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from components.models.base import Batch
from components.pretraining.sentence_pairs import PairSampler
from components.tokenization.special import END, START
from components.training.windows import Ids, Tokens

#: Fraction of rows that are one segment, as a single text is later (ELECTRA's code, build_pretraining_dataset.py).
SINGLE = 0.1


class TwoSegmentsSampler(PairSampler):
    """[CLS] A [SEP] B [SEP] of consecutive sentences, without a label: the text of ELECTRA (Clark et al. 2020, appendix
    A; build_pretraining_dataset.py). B begins with the sentence that is nearest to the middle of the row. With
    probability 0.1, and if no other sentence begins within the row, the row is one segment, [CLS] A [SEP].

    Of the predicted pieces 85% become [MASK] and 15% stay, none is replaced (pretrain_helpers.py: mask).

    Batch: that of `PairSampler` and `noise` (B, K) float32, uniform in [0, 1), for the samples at the predicted pieces.
    """

    disguise = (0.85, 0.0)

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        self.choices = 1 + self.masking.predicted

    def _texts(self, rows: Sequence[int], choices: NDArray[np.float64]) -> tuple[Ids, Batch]:
        tokens = np.empty((len(rows), self.window), dtype=np.int64)
        segments = np.zeros_like(tokens)
        for index, (row, single) in enumerate(zip(rows, choices[:, 0], strict=True)):
            start, second = self._begins(row)
            if single < SINGLE or second is None:
                tokens[index] = [START, *self.store.span(start, self.text + 1), END]
            else:
                parts = self.store.span(start, second - start), self.store.span(second, self.text - (second - start))
                tokens[index] = [START, *parts[0], END, *parts[1], END]
                segments[index, second - start + 2 :] = 1
        noise = choices[:, 1:].astype(np.float32)
        return tokens, {"segments": torch.from_numpy(segments), "noise": torch.from_numpy(noise)}

    def _begins(self, row: int) -> tuple[int, int | None]:
        """Positions in the stream at which A and B begin; None if no other sentence begins within the row."""
        start, document = self._sentence(row)
        begins, _ = self._sentences(start, document)
        inside = begins[(begins > start) & (begins < min(start + self.text, self.store.tokens))]
        if not len(inside):
            return start, None
        return start, int(inside[np.abs(inside - start - self.text // 2).argmin()])
