"""Sampling for word2vec and fastText: words, sizes of their contexts, and noise words."""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from components.core.errors import DataError
from components.models.base import Batch
from components.models.static import NegativeSamplingConfig
from components.models.word2vec import Word2VecConfig
from components.tokenization.special import END
from components.training.rng import counter_rng
from components.training.windows import Ids, Tokens, WindowSampler

#: Number of pieces that are counted at once.
CHUNK: Final = 1 << 20
#: Row lengths are rounded up to a multiple of this number of words, so that there are few different shapes.
STEP: Final = 8


def piece_counts(store: Tokens, vocabulary: int) -> Ids:
    """Frequency of each piece in the store: (V,)."""
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, store.tokens, CHUNK):
        counts += np.bincount(store.span(start, min(CHUNK, store.tokens - start)), minlength=vocabulary)
    return counts


def keep_probabilities(counts: Ids, threshold: float) -> NDArray[np.float64]:
    """Probability (V,) of keeping a word in sub-sampling: min(1, sqrt(t / f) + t / f), f its relative frequency; 1 for
    t = 0. As in word2vec.c; Mikolov et al. 2013b write sqrt(t / f), nearly the same for frequent words."""
    if threshold == 0:
        return np.ones(len(counts))
    ratio = threshold * counts.sum() / np.maximum(counts, 1)
    return np.minimum(1, np.sqrt(ratio) + ratio)


def noise_distribution(counts: Ids, power: float) -> NDArray[np.float64]:
    """P(n) ~ count(n)^power over the words of the corpus: (V,)."""
    weights = np.where(counts > 0, counts.astype(np.float64) ** power, 0)
    return np.asarray(weights / weights.sum())


class NegativeSampler(WindowSampler):
    """Skip-gram and CBOW with negative sampling, sub-sampling and a shrinking window (Mikolov et al. 2013a, b).

    A row is a segment of `window` pieces of the stream. An epoch visits all segments, in an order and with an offset of
    its own. Frequent words are dropped before contexts are formed, which then extend further. Contexts end at the
    boundaries of the document and of the row. END is never a centre, a context word or a noise word; UNK is a word.

    Batch, with T the number of words in the longest row, rounded up:
        tokens (B, T) the words that are kept, padded with 0;
        left, right (B, T) number of context words on each side, 0 for padding;
        noise (B, noise_words) sampled from P(n) ~ count(n)^power;
        pairs (B,) float64, the number of pairs of the global batch (at least 1) divided by B. A worker divides its
            summed loss by the sum over its rows, so that all pairs have the same weight on every worker.

    Raises:
        DataError: the store contains no words.
    """

    def __init__(self, store: Tokens, **options: Any) -> None:
        super().__init__(store, **options)
        assert isinstance(self.config, NegativeSamplingConfig)
        self.settings = self.config
        self.cbow = isinstance(self.config, Word2VecConfig) and self.config.architecture == "cbow"
        counts = piece_counts(store, self.vocabulary)
        counts[END] = 0
        if not counts.any():
            raise DataError("the corpus contains no words, only ends of documents; add text")
        self.keep = keep_probabilities(counts, self.settings.subsample)
        self.keep[END] = 0
        noise = np.cumsum(noise_distribution(counts, self.settings.power))
        self._noise = noise / noise[-1]
        self.slots = max(1, store.tokens // self.window)
        self._order: tuple[int, Ids, int] = (-1, np.empty(0, np.int64), 0)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        rows = self._rows(rank, world)
        # Sampled for the global batch: a row does not depend on the number of workers, and all have the same length.
        rng = counter_rng(self.seed, "words", step)
        shape = (self.batch_size, self.window)
        chances, reach = rng.random(shape), rng.integers(1, self.settings.context, shape, endpoint=True)
        noise = np.searchsorted(self._noise, rng.random((self.batch_size, self.settings.noise_words)), side="right")
        text = np.stack([self.store.span(self._start(step * shape[0] + row), self.window) for row in range(shape[0])])
        kept = chances < self.keep[text]
        left, right = self._sides(np.cumsum(text == END, axis=1), kept, reach)
        targets = (left + right > 0).sum() if self.cbow else (left + right).sum()
        pairs = np.full(shape[0], max(1, targets) / shape[0])
        share = slice(rows.start, rows.stop)
        columns = kept.cumsum(1) - 1
        length = -(-max(1, int(kept.sum(1).max())) // STEP) * STEP
        packed = {}
        for name, values in (("tokens", text), ("left", left), ("right", right)):
            packed[name] = np.zeros((len(rows), length), np.int64)
            at = kept[share].nonzero()
            packed[name][at[0], columns[share][at]] = values[share][at]
        packed |= {"noise": noise[share], "pairs": pairs[share]}
        return {name: torch.from_numpy(values) for name, values in packed.items()}

    @staticmethod
    def _sides(documents: Ids, kept: NDArray[np.bool_], reach: Ids) -> tuple[Ids, Ids]:
        """(B, W) number of context words to the left and right of every kept piece, 0 for the others."""
        count = kept.cumsum(1)
        before, after = count - kept, count[:, -1:] - count
        # Numbers of kept words before the beginning and after the end of the document.
        begins = np.zeros(documents.shape, bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        ends = np.roll(begins, -1, axis=1)
        earlier = np.maximum.accumulate(np.where(begins, before, 0), axis=1)
        later = np.maximum.accumulate(np.where(ends, after, 0)[:, ::-1], axis=1)[:, ::-1]
        left, right = np.minimum(before - earlier, reach), np.minimum(after - later, reach)
        return left * kept, right * kept

    def _start(self, row: int) -> int:
        epoch, index = divmod(row, self.slots)
        if self._order[0] != epoch:
            rng = counter_rng(self.seed, "stretches", epoch)
            self._order = epoch, rng.permutation(self.slots), int(rng.integers(self.window))
        return int(self._order[1][index]) * self.window + self._order[2]
