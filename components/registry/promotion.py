"""The promotion rule: does the challenger take the champion's place?

`decide` is a pure function of what was measured: it reads no file and changes nothing. The alias is moved elsewhere
(`components.registry.ledger`), so that the rule can be tested branch by branch.

The comparison is a paired bootstrap (Efron & Tibshirani 1993, chapter 16; Koehn 2004 for text models): both systems
labelled the same test rows, rows are drawn again with replacement, and the gain is computed on every draw. A draw of
rows is a multinomial draw over the distinct (label, champion's answer, challenger's answer) triples, so all draws are
one matrix product, whatever the number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.config import PromotionRule

Verdict = Literal["promote", "reject", "inconclusive", "unchanged"]
Labels = NDArray[np.integer[Any]]

#: Chance of a clear verdict that the advised number of test labels gives, should the true gain be the one observed.
POWER = 0.8


@dataclass(frozen=True)
class Scored:
    """One model version and what it said about the test rows.

    Attributes:
        name: shown in reasons, such as `headstart-aws-type/3`.
        digest: content digest of the model; the same content has the same digest.
        test_digest: digest of the test split that `predictions` belong to.
        predictions: (N,) label numbers, or None if the model could not be scored; then `problem` says why.
        latency_ms: median milliseconds for one text, or None if not measured.
        rolled_back: a person took this version back; it is not put up again by itself.
    """

    name: str
    digest: str
    test_digest: str
    predictions: Labels | None
    latency_ms: float | None = None
    problem: str = ""
    rolled_back: bool = False


@dataclass(frozen=True)
class TestRows:
    """The test split: labels (N,), and for each row the name of its slice (or None where there are no slices)."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    digest: str
    labels: Labels
    slices: tuple[str | None, ...] | None = None


@dataclass(frozen=True)
class SliceChange:
    """Scores of both systems on one slice; `beyond_chance` if the candidate is worse there with the rule's confidence
    (bootstrap of the slice's rows, Bonferroni's correction for the number of slices)."""

    name: str
    rows: int
    champion: float
    candidate: float
    beyond_chance: bool

    def __str__(self) -> str:
        return f"slice {self.name!r} ({self.rows} rows) falls from {self.champion:.3f} to {self.candidate:.3f}"


@dataclass(frozen=True)
class Decision:
    """The verdict and everything it rests on.

    Attributes:
        against: name of the champion, or "most frequent class" where there is none yet.
        gain: candidate's score minus the other's; `low` and `high` are its one-sided bootstrap bounds.
        labels_needed: test labels that would settle an inconclusive comparison with 80% power at the observed gain.
        reasons: sentences, the deciding ones first.
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
    """Judge a challenger. Outcomes, in the order in which they are looked at:

    | situation                                                        | verdict      |
    |------------------------------------------------------------------|--------------|
    | candidate is the champion (same content)                         | unchanged    |
    | candidate was rolled back before                                 | reject       |
    | candidate has no predictions, or none for this test version      | reject       |
    | candidate is slower than the bound, or its latency is unknown    | reject       |
    | champion has no predictions, or none for this test version       | inconclusive |
    | upper bound of the gain does not exceed the least gain           | reject       |
    | a slice of enough rows loses more than allowed, beyond chance    | reject       |
    | lower bound of the gain exceeds the least gain                   | promote      |
    | the bounds enclose the least gain                                | inconclusive |

    Of many small slices some always lose a little by chance: with 16 slices of 50 to 200 rows, a challenger that is 3
    points better on every one of them would be turned away about every other time. So a slice counts as lost only if
    its rows also tell the loss from chance; one that does not is named among the reasons.

    With no champion yet the most frequent class of the test labels stands in for it, with a least gain of 0 and no
    slices: the first model must be better than no model.

    Args:
        candidate: the challenger.
        champion: the version that is served now, or None.
        rule: `params.promote`.
        rows: the test split both were scored on.
        seed: of the bootstrap draws.

    Raises:
        ValueError: predictions and labels differ in length (a defect of the caller, not a matter of the rule).
    """
    against = champion.name if champion is not None else "most frequent class"

    def verdict(outcome: Verdict, *reasons: str) -> Decision:
        return Decision(verdict=outcome, metric=rule.metric, against=against, reasons=reasons)

    if champion is not None and candidate.digest == champion.digest:
        twin = "is the champion already" if candidate.name == champion.name else f"has the content of {against}"
        return verdict("unchanged", f"{candidate.name} {twin}")
    if candidate.rolled_back:
        return verdict("reject", f"{candidate.name} was rolled back; train a new one, or move the alias by hand")
    if candidate.predictions is None or len(rows.labels) == 0:
        return verdict("reject", f"{candidate.name} has no {rule.metric}: {candidate.problem or 'no test rows'}")
    if candidate.test_digest != rows.digest:
        return verdict(
            "reject", f"{candidate.name} was scored on test version {candidate.test_digest}, not {rows.digest}"
        )
    if too_slow := _too_slow(candidate, rule):
        return verdict("reject", too_slow)
    if champion is None:
        frequent = np.full_like(rows.labels, np.bincount(rows.labels).argmax())
        return _compare(candidate, frequent, against, 0.0, rule, replace(rows, slices=None), seed)
    if champion.predictions is None:
        return verdict("inconclusive", f"champion {champion.name} could not be scored: {champion.problem}")
    if champion.test_digest != rows.digest:
        return verdict(
            "inconclusive",
            f"champion {champion.name} was scored on test version {champion.test_digest}, not {rows.digest}: "
            "scores of different test versions do not compare; score it again",
        )
    return _compare(candidate, champion.predictions, against, rule.least_gain, rule, rows, seed)


def _too_slow(candidate: Scored, rule: PromotionRule) -> str:
    if rule.latency_ms is None:
        return ""
    if candidate.latency_ms is None:
        return f"{candidate.name}: latency was not measured, and the rule bounds it at {rule.latency_ms:g} ms"
    if candidate.latency_ms > rule.latency_ms:
        return f"{candidate.name} takes {candidate.latency_ms:.1f} ms a text, more than {rule.latency_ms:g} ms"
    return ""


def _compare(
    candidate: Scored,
    other: Labels,
    against: str,
    least_gain: float,
    rule: PromotionRule,
    rows: TestRows,
    seed: int,
) -> Decision:
    assert candidate.predictions is not None
    if not len(rows.labels) == len(candidate.predictions) == len(other):
        raise ValueError(f"{len(rows.labels)} labels, {len(candidate.predictions)} and {len(other)} predictions")
    score = score_of(rows.labels, candidate.predictions, metric=rule.metric)
    other_score = score_of(rows.labels, other, metric=rule.metric)
    gain = score - other_score
    gains = paired_gains(
        rows.labels, other, candidate.predictions, metric=rule.metric, resamples=rule.resamples, seed=seed
    )
    low, high = (float(bound) for bound in np.quantile(gains, [1 - rule.confidence, rule.confidence]))
    changes = _slice_changes(rows, other, candidate.predictions, rule, seed)
    fallen = [change for change in changes if change.champion - change.candidate > rule.largest_slice_loss]
    reasons = [f"{change}, more than {rule.largest_slice_loss:g}" for change in fallen if change.beyond_chance]
    noticed = [f"{change}, which may be chance" for change in fallen if not change.beyond_chance]
    measured = (
        f"{rule.metric} {score:.4f} against {other_score:.4f} of {against}: gain {gain:+.4f}, "
        f"between {low:+.4f} and {high:+.4f} at one-sided {rule.confidence:.0%} on {len(rows.labels)} test rows"
    )
    needed = None
    outcome: Verdict
    if high <= least_gain:
        outcome = "reject"
        reasons.insert(0, f"not better by more than {least_gain:g}")
    elif reasons:
        outcome = "reject"
    elif low > least_gain:
        outcome = "promote"
    else:
        outcome = "inconclusive"
        needed = labels_needed(
            gain, float(gains.std()), len(rows.labels), least_gain=least_gain, confidence=rule.confidence
        )
        reasons = [
            f"{needed} test labels would settle it with {POWER:.0%} power at this gain (now {len(rows.labels)})"
            if needed is not None
            else f"the gain is exactly the least gain of {least_gain:g}: no number of test labels would settle it"
        ]
    return Decision(
        verdict=outcome,
        metric=rule.metric,
        against=against,
        reasons=(*reasons, measured, *noticed),
        candidate_score=score,
        champion_score=other_score,
        gain=gain,
        low=low,
        high=high,
        labels_needed=needed,
        slices=changes,
    )


def _slice_changes(
    rows: TestRows, other: Labels, candidate: Labels, rule: PromotionRule, seed: int
) -> tuple[SliceChange, ...]:
    if rows.slices is None:
        return ()
    of_row = np.array([name or "" for name in rows.slices])
    names, counts = np.unique(of_row[of_row != ""], return_counts=True)
    large = [str(name) for name, count in zip(names, counts, strict=True) if count >= rule.slice_rows]
    changes = []
    for name in large:
        inside = of_row == name
        labels, before, after = rows.labels[inside], other[inside], candidate[inside]
        gains = paired_gains(labels, before, after, metric=rule.metric, resamples=rule.resamples, seed=seed)
        highest = float(np.quantile(gains, 1 - (1 - rule.confidence) / len(large)))
        changes.append(
            SliceChange(
                name=name,
                rows=len(labels),
                champion=score_of(labels, before, metric=rule.metric),
                candidate=score_of(labels, after, metric=rule.metric),
                beyond_chance=highest < 0,
            )
        )
    return tuple(changes)


def labels_needed(gain: float, deviation: float, rows: int, *, least_gain: float, confidence: float) -> int | None:
    """Test rows at which a true gain of `gain` gives a clear verdict with 80% power.

    The deviation of the gain falls with the root of the rows, so with s = deviation * sqrt(rows) of one row,
    n = ((z_confidence + z_power) * s / |gain - least_gain|) ** 2, the sample size of a one-sided z test.

    Args:
        gain: observed gain.
        deviation: bootstrap standard deviation of the gain on `rows` rows.
        rows: test rows at hand.
        least_gain: gain that the rule asks for.
        confidence: one-sided confidence that the rule asks for.

    Returns:
        The number, at least `rows` + 1; None if the gain equals the least gain, where no number would do.
    """
    effect = abs(gain - least_gain)
    if effect < 1e-12:
        return None
    z = NormalDist().inv_cdf(confidence) + NormalDist().inv_cdf(POWER)
    return max(rows + 1, math.ceil(rows * (z * deviation / effect) ** 2))


def score_of(labels: Labels, predictions: Labels, *, metric: str) -> float:
    """Accuracy or macro F1 of one system. Macro F1 is the mean over the classes that occur among `labels`; an answer
    outside of them (a label that the model does not know is -1) is simply wrong."""
    cells, counts = _cells(labels, predictions)
    return float(_scores(counts[None, :].astype(np.float64), cells[:, 0], cells[:, 1], np.unique(labels), metric)[0])


def paired_gains(
    labels: Labels, champion: Labels, candidate: Labels, *, metric: str, resamples: int, seed: int = 0
) -> NDArray[np.float64]:
    """(resamples,) gains of the candidate over the champion on bootstrap draws of the rows."""
    cells, counts = _cells(labels, champion, candidate)
    generator = np.random.default_rng(seed)
    draws = generator.multinomial(len(labels), counts / counts.sum(), size=resamples).astype(np.float64)
    classes = np.unique(labels)
    gained = _scores(draws, cells[:, 0], cells[:, 2], classes, metric)
    return gained - _scores(draws, cells[:, 0], cells[:, 1], classes, metric)


def _cells(*columns: Labels) -> tuple[Labels, NDArray[np.int64]]:
    cells, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    return cells, counts


def _scores(
    draws: NDArray[np.float64], labels: Labels, predictions: Labels, classes: Labels, metric: str
) -> NDArray[np.float64]:
    """Scores (R,) of R weightings `draws` (R, K) of K cells with the given label and prediction."""
    right = labels == predictions
    if metric == "accuracy":
        return np.asarray((draws @ right) / draws.sum(axis=1))
    is_label = (labels[:, None] == classes).astype(np.float64)
    is_prediction = (predictions[:, None] == classes).astype(np.float64)
    hits = draws @ (is_label * right[:, None])
    size = draws @ (is_label + is_prediction)
    return np.asarray(np.divide(2 * hits, size, out=np.zeros_like(hits), where=size > 0).mean(axis=1))
