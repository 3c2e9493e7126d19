"""BLEU of translations (Papineni et al. 2002) as a function of sums over items, with the tokenization and smoothing of
sacrebleu (Post 2018, A Call for Clarity in Reporting BLEU Scores)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from components.core.errors import extras
from components.data.scoring.base import Floats

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU


def metric() -> BLEU:
    with extras():
        from sacrebleu.metrics import BLEU
    return BLEU()


def statistics(translations: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """(N, 10) sums of N translations, each with its references: matches of 1- to 4-grams, their numbers, and the
    lengths of the translation and of the reference."""
    measure = metric()
    scores = [
        measure.corpus_score([text], [[reference] for reference in of])
        for text, of in zip(translations, references, strict=True)
    ]
    return np.asarray([[*of.counts, *of.totals, of.sys_len, of.ref_len] for of in scores], dtype=np.float64)


def bleu(sums: Floats) -> Floats:
    """BLEU / 100 from (..., 10) sums -> (...)."""
    measure = metric()

    def of_row(row: Floats) -> float:
        counts, totals, lengths = (part.astype(int).tolist() for part in np.split(row, [4, 8]))
        length, reference = lengths
        return measure.compute_bleu(counts, totals, length, reference, measure.smooth_method).score / 100

    return np.asarray(np.apply_along_axis(of_row, -1, sums))
