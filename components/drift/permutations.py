"""Exact tests by permutation, stopped early (Besag and Clifford 1991, Sequential Monte Carlo p-values)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: After so many permutations with a statistic at least as large as the observed one, no more are drawn.
ENOUGH = 10
#: Permutations per chunk: first few, because without a difference a hundred are enough.
CHUNKS = (200, 2000)
#: Frequencies of the random features, and the seed of everything that is random here.
FREQUENCIES, SEED = 64, 5


def sequential(observed: float, draw: Callable[[int], Floats], *, most: int) -> float:
    """The p-value of a statistic: valid for every number of permutations, P(p <= x) <= x without a difference.

    Args:
        observed: the statistic.
        draw: number of permutations -> their statistics.
        most: maximum number of permutations; the smallest possible p-value is 1 / (most + 1).
    """
    limit = observed - 1e-9 * abs(observed)  # equal values may differ in their last bits
    drawn = reached = 0
    while drawn < most:
        count = min(CHUNKS[0] if not drawn else CHUNKS[1], most - drawn)
        hits = np.flatnonzero(draw(count) >= limit)
        if reached + len(hits) >= ENOUGH:
            return ENOUGH / (drawn + int(hits[ENOUGH - reached - 1]) + 1)
        drawn, reached = drawn + count, reached + len(hits)
    return (reached + 1) / (most + 1)


def _generator(*samples: NDArray[Any]) -> np.random.Generator:
    """Depends on the samples: repeatable, and yet repeated checks do not share their permutations."""
    return np.random.default_rng([SEED, *(zlib.crc32(np.ascontiguousarray(sample).tobytes()) for sample in samples)])


def chi_square(old: NDArray[np.int64], new: NDArray[np.int64], *, most: int) -> float:
    """p-value of Pearson's chi-square statistic of two rows of counts (C,), given both margins: permutations of the
    rows between the samples are draws from the multivariate hypergeometric distribution, so small counts are exact."""
    total = old + new
    kept = total > 0
    total, new, size = total[kept], new[kept], int(new.sum())
    expected = total * (size / total.sum())
    rng = _generator(old, new)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        # The chi-square of both rows is proportional to that of one of them.
        found: Floats = ((counts - expected) ** 2 / expected).sum(-1)
        return found

    return sequential(
        float(statistic(new)),
        lambda count: statistic(rng.multivariate_hypergeometric(total, size, size=count, method="marginals")),
        most=most,
    )


def random_features(vectors: Floats) -> Floats:
    """(N, K) -> (N, 2 FREQUENCIES): inner products approximate a Gaussian kernel (Rahimi and Recht 2007) whose width is
    the expected distance of two rows after every column is divided by its standard deviation. The features are centred.

    Mean and deviation are those of all N rows, so they do not change if rows are permuted.
    """
    scaled = (vectors - vectors.mean(0)) / np.maximum(vectors.std(0), 1e-6)
    size = vectors.shape[1]
    frequencies = np.random.default_rng(SEED).standard_normal((size, FREQUENCIES)) / np.sqrt(2 * size)
    angles = scaled @ frequencies
    found = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(FREQUENCIES)
    return found - found.mean(0)


def mean_discrepancy(old: Floats, new: Floats, *, most: int) -> float:
    """p-value of the maximum mean discrepancy (Gretton et al. 2012) between (M, K) and (N, K) vectors."""
    features = random_features(np.concatenate([old, new])).astype(np.float32)
    size, total = len(new), len(features)
    rng = _generator(old, new)

    def draw(count: int) -> Floats:
        statistics = []
        for start in range(0, count, 200):
            part = min(200, count - start)
            chosen = np.argpartition(rng.random((part, total), dtype=np.float32), size, axis=1)[:, :size]
            inside = np.zeros((part, total), dtype=np.float32)
            np.put_along_axis(inside, chosen, 1.0, axis=1)
            statistics.append(np.square(inside @ features).sum(1))
        return np.concatenate(statistics).astype(np.float64)

    # The features are centred, so the difference of the means is proportional to the sum over one sample.
    return sequential(float(np.square(features[len(old) :].sum(0)).sum()), draw, most=most)


def told_apart(old: Floats, new: Floats) -> float:
    """AUC with which ridge regression on the random features tells new from old vectors: 0.5 if they are alike. Each
    half is scored by the regression on the other half."""
    features = random_features(np.concatenate([old, new]))
    isnew = np.repeat([0.0, 1.0], [len(old), len(new)])
    half = np.concatenate([np.arange(len(old)) % 2, np.arange(len(new)) % 2]).astype(bool)
    areas = []
    for fitted in (half, ~half):
        x, y = features[fitted], isnew[fitted] - isnew[fitted].mean()
        weights = np.linalg.solve(x.T @ x + 0.01 * len(x) * np.eye(x.shape[1]), x.T @ y)
        scores, label = features[~fitted] @ weights, isnew[~fitted] > 0
        order = scores.argsort(kind="stable")
        ranks = np.empty(len(order))
        ranks[order] = np.arange(1, len(order) + 1)
        positives = int(label.sum())
        area = (ranks[label].sum() - positives * (positives + 1) / 2) / max(1, positives * (len(label) - positives))
        areas.append(float(area))
    return float(np.mean(areas))
