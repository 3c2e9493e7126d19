"""ROUGE-L, the score of a summary against a reference (Lin 2004, section 3.1): F1 of the longest common subsequence of
their words.

    P = LCS / words of the summary,  R = LCS / words of the reference,  F1 = 2 P R / (P + R)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    ids = {word: index for index, word in enumerate(dict.fromkeys([*first, *second]))}
    others = np.asarray([ids[word] for word in second], dtype=np.int64)
    best = np.zeros(len(second) + 1, dtype=np.int64)
    for word in first:
        # A match extends the diagonal; the running maximum takes the value on the left.
        best[1:] = np.maximum.accumulate(np.maximum(best[1:], np.where(others == ids[word], best[:-1] + 1, 0)))
    return int(best[-1])


def rouge_l(summary: Sequence[str], reference: Sequence[str]) -> float:
    """ROUGE-L of two sequences of words, between 0 and 1; 0 if one of them is empty."""
    shared = common_subsequence(summary, reference)
    return 2 * shared / (len(summary) + len(reference)) if shared else 0.0
