"""Criteria of encoders that need no fine-tuning, their ranks, and the correlation with the metrics of fine-tuning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from components.errors import ConfigError
from components.inference.perplexity import measure_texts
from components.models import family as family_named
from components.models.encoder import Encoder
from components.settings.finetune import FinetuneSettings
from components.studies.frozen import Labelled, layer_vectors, numbers_of
from components.studies.logme import logme
from components.studies.occurrences import evenly
from components.tasks.data import Split
from components.tokenization.train import count_words, report_on_words

#: Maximum number of vectors for LogME, of texts for the vocabulary, and of pieces for the cross-entropy.
VECTORS, TEXTS, PIECES = 4000, 3000, 5000

#: Maximum number of candidates for a permutation test; for more, the p value comes from the t distribution.
EXACT = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """The criteria of an encoder before fine-tuning, and its dev metric after fine-tuning.

    Attributes:
        name: `<block>-<start>`.
        objective: causal, masked ...
        logme: nats per row; higher is better.
        unknown_rate, pieces_per_word: on the task's texts.
        cross_entropy: nats per word on the task's texts; None if the encoder has no likelihood.
        score: dev metric of fine-tuning, mean over seeds; None if the encoder is not fine-tuned.
    """

    name: str
    objective: str
    logme: float
    unknown_rate: float
    pieces_per_word: float
    cross_entropy: float | None
    score: float | None


def measured(
    name: str, encoder: Encoder, data: Labelled, sample: Split, *, settings: FinetuneSettings, score: float | None
) -> Candidate:
    """The criteria of an encoder on a labelled sample of at least two labels, and on the texts of train."""
    numbers_M = numbers_of(sample)
    # Evenly spread, because files are often sorted by label.
    used = np.asarray(evenly(range(len(numbers_M)), VECTORS))
    vectors = torch.cat(layer_vectors(encoder, sample, kind=data.facts.kind, settings=settings), dim=1)
    evidence = logme(vectors[torch.from_numpy(used)].double().numpy(), np.eye(len(data.facts.labels))[numbers_M[used]])
    texts = [" ".join(parts) for parts in evenly(data.train.fields, TEXTS)]
    fit = report_on_words(encoder.tokenizer, count_words(map(encoder.tokenizer.segmentation.spaced, texts)))
    return Candidate(
        name,
        family_named(encoder.family).objective,
        evidence,
        fit["unknown_rate"],
        fit["pieces_per_word"],
        _nats_per_word(encoder, texts),
        score,
    )


def _nats_per_word(encoder: Encoder, texts: Sequence[str]) -> float | None:
    """None for word vectors, translators, and models that were imported without their output layer."""
    if family_named(encoder.family).objective in ("static", "translation"):
        return None
    try:
        measured = measure_texts(encoder, filter(str.strip, texts), most=PIECES)
    except ConfigError:
        return None
    return measured.nats / measured.words


def ranks(candidates: Sequence[Candidate]) -> dict[str, Floats]:
    """Criterion -> (K,) ranks, 1 for the best, with average ranks for ties; `combined` ranks their mean. `distance` is
    omitted if a candidate has no cross-entropy."""
    unknown = stats.rankdata([candidate.unknown_rate for candidate in candidates])
    pieces = stats.rankdata([candidate.pieces_per_word for candidate in candidates])
    ranked: dict[str, Floats] = {
        "LogME": stats.rankdata([-candidate.logme for candidate in candidates]),
        "vocabulary": stats.rankdata(unknown + pieces),
    }
    if all(candidate.cross_entropy is not None for candidate in candidates):
        # Relative rank, between 0 and 1, among the candidates with the same objective.
        relative = np.zeros(len(candidates))
        for objective in {candidate.objective for candidate in candidates}:
            rows = [row for row, candidate in enumerate(candidates) if candidate.objective == objective]
            relative[rows] = (stats.rankdata([candidates[row].cross_entropy for row in rows]) - 0.5) / len(rows)
        ranked["distance"] = stats.rankdata(relative)
    return ranked | {"combined": stats.rankdata(np.sum(list(ranked.values()), axis=0))}


def rank_correlations(candidates: Sequence[Candidate], ranked: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    """Criterion -> Spearman's correlation with the dev metrics, positive if better ranks have better metrics, and its p
    value. Empty with fewer than three fine-tuned candidates, or if all have the same dev metric."""
    rows = [row for row, candidate in enumerate(candidates) if candidate.score is not None]
    scores = np.asarray([candidates[row].score for row in rows], dtype=np.float64)
    if len(rows) < 3 or not np.ptp(scores):
        return {}
    pairs = {criterion: spearman(-of[rows], scores) for criterion, of in ranked.items() if np.ptp(of[rows])}
    return {name: {"spearman": rho, "spearman_p": p, "candidates": len(rows)} for name, (rho, p) in pairs.items()}


def spearman(x: Floats, y: Floats) -> tuple[float, float]:
    """Spearman's rho and its two-sided p value: from all permutations for up to `EXACT` values, otherwise from the t
    distribution."""
    rho, p = (float(value) for value in stats.spearmanr(x, y))
    if len(x) <= EXACT:
        ours, theirs = (stats.rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
        permuted = theirs[np.asarray(list(itertools.permutations(range(len(x)))))] @ ours
        p = float(np.mean(np.abs(permuted) >= abs(theirs @ ours) - 1e-9))
    return rho, p
