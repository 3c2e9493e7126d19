"""The promotion rule: whether a challenger replaces the champion.

`decide` is a pure function of measurements: it reads no file and changes no state. `components.registry.ledger` moves
the alias.

The comparison is a paired bootstrap (Efron & Tibshirani 1993, chapter 16; Koehn 2004 for text models): the test rows
are resampled with replacement, and the gain is computed on every sample from both systems' predictions of the same
rows. Every metric is a function of sums over rows (`components.scoring`), so all samples are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.scoring import Scoring, resampled
from components.settings.promote import PromotionRule

Verdict = Literal["promote", "reject", "inconclusive", "unchanged"]

#: Power of the advised number of test labels, if the true gain is the observed one.
POWER = 0.8


@dataclass(frozen=True)
class Scored:
    """A model version and its predictions of the test rows.

    Attributes:
        name: label of the version, such as `headstart-aws-type/3`.
        digest: content digest of the model.
        test_digest: digest of the test split of `statistics`.
        statistics: (N, K) statistics of the task's scoring; None if the model could not be scored.
        latency_ms: median latency of one row in milliseconds; None if not measured.
        problem: why `statistics` is None.
        rolled_back: whether a person rolled this version back.
    """

    name: str
    digest: str
    test_digest: str
    statistics: sparse.csr_array | None
    latency_ms: float | None = None
    problem: str = ""
    rolled_back: bool = False


@dataclass(frozen=True)
class TestRows:
    """The test split.

    Attributes:
        digest: digest of the split.
        scoring: scoring of the task.
        stand_in: (N, K) statistics of the constant prediction (`Scoring.constant`).
        slices: name of each row's slice, or None without slices.
    """

    __test__ = False  # pytest would collect it because of its name

    digest: str
    scoring: Scoring
    stand_in: sparse.csr_array
    slices: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return int(self.stand_in.shape[0])


@dataclass(frozen=True)
class SliceChange:
    """Scores of both systems on one slice. `beyond_chance`: the candidate is worse with the rule's confidence
    (bootstrap of the slice's rows, Bonferroni correction for the number of slices)."""

    name: str
    rows: int
    champion: float
    candidate: float
    beyond_chance: bool

    def __str__(self) -> str:
        return f"slice {self.name!r} ({self.rows} rows) falls from {self.champion:.3f} to {self.candidate:.3f}"


@dataclass(frozen=True)
class Decision:
    """The verdict and the measurements behind it.

    Attributes:
        metric: metric of the rule, or the task's primary metric.
        against: name of the champion; without a champion, name of the constant prediction ("most frequent class").
        reasons: sentences, the decisive ones first.
        candidate_score: score of the candidate; None without a comparison, as all fields below.
        champion_score: score of the champion or of the constant prediction.
        gain: candidate's score minus the other one.
        low: lower one-sided bootstrap bound of the gain.
        high: upper one-sided bootstrap bound of the gain.
        labels_needed: test labels at which an inconclusive comparison reaches 80% power at the observed gain.
        slices: scores on the slices with at least `slice_rows` rows.
    """

    verdict: Verdict
    metric: str
    against: str
    reasons: tuple[str, ...]
    candidate_score: float | None = None
    champion_score: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    labels_needed: int | None = None
    slices: tuple[SliceChange, ...] = ()


def decide(
    candidate: Scored, champion: Scored | None, rule: PromotionRule, *, rows: TestRows, seed: int = 0
) -> Decision:
    """Decide whether a challenger is promoted. The first row that applies gives the verdict:

    | situation                                                        | verdict      |
    |------------------------------------------------------------------|--------------|
    | candidate is the champion (same content)                         | unchanged    |
    | candidate was rolled back                                        | reject       |
    | candidate has no predictions, or none of this test version       | reject       |
    | candidate is slower than the limit, or its latency is unknown    | reject       |
    | champion has no predictions, or none of this test version        | inconclusive |
    | upper bound of the gain does not exceed the least gain           | reject       |
    | a slice of enough rows loses more than allowed, beyond chance    | reject       |
    | lower bound of the gain exceeds the least gain                   | promote      |
    | the bounds enclose the least gain                                | inconclusive |

    Of many small slices some decline by chance: with 16 slices of 50 to 200 rows, a challenger that is 3 points better
    on every slice would be rejected about half the time. A slice therefore leads to rejection only if its loss is
    significant; any other loss is listed among the reasons.

    Without a champion the candidate is compared with the best constant prediction (in classification the most frequent
    class), with a least gain of 0 and without slices.

    Args:
        candidate: the challenger.
        champion: the version that is served, or None.
        rule: `params.promote`.
        rows: the test split of both predictions.
        seed: seed of the bootstrap.

    Raises:
        ValueError: the numbers of predictions and rows differ (a defect of the caller).
    """
    against = champion.name if champion is not None else rows.scoring.constant_name
    metric = rule.metric or rows.scoring.main

    def verdict(outcome: Verdict, *reasons: str) -> Decision:
        return Decision(verdict=outcome, metric=metric, against=against, reasons=reasons)

    if champion is not None and candidate.digest == champion.digest:
        same = "is already the champion" if candidate.name == champion.name else f"has the content of {against}"
        return verdict("unchanged", f"{candidate.name} {same}")
    if candidate.rolled_back:
        return verdict("reject", f"{candidate.name} was rolled back; train a new one, or move the alias by hand")
    if candidate.statistics is None or len(rows) == 0:
        return verdict("reject", f"{candidate.name} has no {metric}: {candidate.problem or 'no test rows'}")
    if candidate.test_digest != rows.digest:
        return verdict(
            "reject", f"{candidate.name} was scored on test version {candidate.test_digest}, not {rows.digest}"
        )
    if too_slow := _too_slow(candidate, rule):
        return verdict("reject", too_slow)
    if champion is None:
        no_slices = replace(rows, slices=None)
        return _compare(candidate, rows.stand_in, against, rule.model_copy(update={"least_gain": 0.0}), no_slices, seed)
    if champion.statistics is None:
        return verdict("inconclusive", f"champion {champion.name} could not be scored: {champion.problem}")
    if champion.test_digest != rows.digest:
        return verdict(
            "inconclusive",
            f"champion {champion.name} was scored on test version {champion.test_digest}, not {rows.digest}: "
            "scores of different test versions are not comparable; score it again",
        )
    return _compare(candidate, champion.statistics, against, rule, rows, seed)


def _too_slow(candidate: Scored, rule: PromotionRule) -> str:
    if rule.latency_ms is None:
        return ""
    if candidate.latency_ms is None:
        return f"{candidate.name}: latency was not measured, and the rule limits it to {rule.latency_ms:g} ms"
    if candidate.latency_ms > rule.latency_ms:
        return f"{candidate.name} takes {candidate.latency_ms:.1f} ms per text, more than {rule.latency_ms:g} ms"
    return ""


def _compare(
    candidate: Scored, other: sparse.csr_array, against: str, rule: PromotionRule, rows: TestRows, seed: int
) -> Decision:
    own, scoring, metric = candidate.statistics, rows.scoring, rule.metric or rows.scoring.main
    assert own is not None
    if not len(rows) == own.shape[0] == other.shape[0]:
        raise ValueError(f"{len(rows)} rows, {own.shape[0]} and {other.shape[0]} predictions")
    score, other_score = (score_of(statistics, scoring, metric=metric) for statistics in (own, other))
    gain = score - other_score
    gains = paired_gains(other, own, scoring=scoring, metric=metric, resamples=rule.resamples, seed=seed)
    low, high = (float(bound) for bound in np.quantile(gains, [1 - rule.confidence, rule.confidence]))
    changes = _slice_changes(rows, other, own, rule, seed)
    losses = [change for change in changes if change.champion - change.candidate > rule.largest_slice_loss]
    reasons = [f"{change}, more than {rule.largest_slice_loss:g}" for change in losses if change.beyond_chance]
    insignificant = [f"{change}, which may be chance" for change in losses if not change.beyond_chance]
    measured = (
        f"{metric} {score:.4f} against {other_score:.4f} of {against}: gain {gain:+.4f}, "
        f"between {low:+.4f} and {high:+.4f} at one-sided {rule.confidence:.0%} on {len(rows)} test rows"
    )
    needed = None
    outcome: Verdict
    if high <= rule.least_gain:
        outcome = "reject"
        reasons.insert(0, f"not better by more than {rule.least_gain:g}")
    elif reasons:
        outcome = "reject"
    elif low > rule.least_gain:
        outcome = "promote"
    else:
        outcome = "inconclusive"
        needed = labels_needed(
            gain, float(gains.std()), len(rows), least_gain=rule.least_gain, confidence=rule.confidence
        )
        reasons = [
            f"{needed} test labels would decide it with {POWER:.0%} power at this gain (now {len(rows)})"
            if needed is not None
            else f"the gain is exactly the least gain of {rule.least_gain:g}: no number of test labels would decide it"
        ]
    return Decision(
        verdict=outcome,
        metric=metric,
        against=against,
        reasons=(*reasons, measured, *insignificant),
        candidate_score=score,
        champion_score=other_score,
        gain=gain,
        low=low,
        high=high,
        labels_needed=needed,
        slices=changes,
    )


def _slice_changes(
    rows: TestRows, other: sparse.csr_array, candidate: sparse.csr_array, rule: PromotionRule, seed: int
) -> tuple[SliceChange, ...]:
    if rows.slices is None:
        return ()
    scoring, metric = rows.scoring, rule.metric or rows.scoring.main
    of_row = np.array([name or "" for name in rows.slices])
    names, counts = np.unique(of_row[of_row != ""], return_counts=True)
    large = [str(name) for name, count in zip(names, counts, strict=True) if count >= rule.slice_rows]
    changes = []
    for name in large:
        inside = np.flatnonzero(of_row == name)
        before, after = other[inside], candidate[inside]
        gains = paired_gains(before, after, scoring=scoring, metric=metric, resamples=rule.resamples, seed=seed)
        highest = float(np.quantile(gains, 1 - (1 - rule.confidence) / len(large)))
        changes.append(
            SliceChange(
                name=name,
                rows=len(inside),
                champion=score_of(before, scoring, metric=metric),
                candidate=score_of(after, scoring, metric=metric),
                beyond_chance=highest < 0,
            )
        )
    return tuple(changes)


def labels_needed(gain: float, std: float, rows: int, *, least_gain: float, confidence: float) -> int | None:
    """Number of test rows at which a true gain of `gain` is decided with 80% power.

    The std of the gain is proportional to 1 / sqrt(rows). With s = std * sqrt(rows), the sample size of a one-sided z
    test is n = ((z_confidence + z_power) * s / |gain - least_gain|) ** 2.

    Args:
        gain: observed gain.
        std: bootstrap std of the gain on `rows` rows.
        rows: current number of test rows.
        least_gain: minimum gain of the rule.
        confidence: one-sided confidence of the rule.

    Returns:
        The number, at least `rows` + 1; None if the gain equals the least gain.
    """
    effect = abs(gain - least_gain)
    if effect < 1e-12:
        return None
    z = NormalDist().inv_cdf(confidence) + NormalDist().inv_cdf(POWER)
    return max(rows + 1, math.ceil(rows * (z * std / effect) ** 2))


def score_of(statistics: sparse.csr_array, scoring: Scoring, *, metric: str) -> float:
    """A metric of one system, from its (N, K) statistics."""
    return float(scoring.scores(np.asarray(statistics.sum(0), dtype=np.float64).ravel())[metric])


def paired_gains(
    champion: sparse.csr_array,
    candidate: sparse.csr_array,
    *,
    scoring: Scoring,
    metric: str,
    resamples: int,
    seed: int = 0,
) -> NDArray[np.float64]:
    """(resamples,) gains of the candidate over the champion on bootstrap samples of the rows."""
    before, after = resampled([champion, candidate], resamples=resamples, seed=seed)
    return np.asarray(scoring.scores(after)[metric] - scoring.scores(before)[metric])
