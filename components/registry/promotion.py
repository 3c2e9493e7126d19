"""The promotion rule: whether a challenger replaces the champion.

`decide` is a pure function of measurements: it reads no file and changes no state. `components.registry.alias_changes`
moves the alias. The statistics are those of `components.scoring.intervals`; there are no random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from components.registry.comparison import POWER, Gain, compare, detectable, units_needed
from components.registry.scored import Scored, TestRows
from components.registry.slices import SliceChange, slice_changes
from components.scoring.intervals import MIN_GROUPS, Ints, Variance, half_width
from components.settings.promote import Mode, PromotionRule

Verdict = Literal["promote", "reject", "inconclusive", "unchanged"]

#: Factor by which the minimal detectable effect may exceed that of the first comparison on the same test rows before
#: new ones are advised. With many clusters a factor of 1.5 is reached at the eleventh comparison, with few clusters
#: earlier; the same effect would then need 1.5^2 times the labels.
REFRESH = 1.5
#: Minimum reduction of the latency in mode `latency`. Smaller ones are within the variation between two measurements.
FASTER = 0.05


@dataclass(frozen=True)
class Decision:
    """The verdict and the measurements behind it.

    Attributes:
        mode: mode of the rule; `superiority` without a champion.
        metric: metric of the rule, or the task's primary metric.
        against: name of the champion; without one, of the best baseline or the constant prediction.
        reasons: sentences, the decisive ones first.
        candidate_score: score of the candidate; None without a comparison, as all fields below. The bounds and the
            fields after them are None if there are too few clusters.
        champion_score: score of the champion, baseline or constant prediction.
        gain: candidate's score minus the other one.
        low: lower one-sided bound of the gain.
        high: upper one-sided bound of the gain.
        test_uses: number of distinct comparisons on this version of the test rows, this one included.
        alpha: one-sided error of this comparison.
        units: "clusters" or "rows", of which `count` were compared.
        count: number of units.
        detectable: minimal detectable effect: the true gain beyond the threshold that is shown with 80% power.
        labels_needed: number of units at which a gain of the observed size is shown with 80% power; None if the gain
            does not exceed the threshold.
        refresh: whether new test rows are advised.
        slices: scores on the named slices and on those with at least `slice_rows` rows.
    """

    verdict: Verdict
    mode: Mode
    metric: str
    against: str
    reasons: tuple[str, ...]
    candidate_score: float | None = None
    champion_score: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    test_uses: int | None = None
    alpha: float | None = None
    units: Literal["clusters", "rows"] | None = None
    count: int | None = None
    detectable: float | None = None
    labels_needed: int | None = None
    refresh: bool = False
    slices: tuple[SliceChange, ...] = field(default=())


def decide(
    candidate: Scored,
    champion: Scored | None,
    rule: PromotionRule,
    *,
    rows: TestRows,
    test_uses: int = 1,
    baseline: Scored | None = None,
) -> Decision:
    """Decide whether a challenger is promoted. The first row that applies gives the verdict:

    | situation                                                            | verdict      |
    |----------------------------------------------------------------------|--------------|
    | candidate is the champion (same content)                             | unchanged    |
    | candidate was rolled back                                            | reject       |
    | candidate has no predictions, or none of this test version           | reject       |
    | candidate is slower than the limit, or its latency is unknown        | reject       |
    | champion has no predictions, or none of this test version            | inconclusive |
    | the candidate's score is not finite                                  | reject       |
    | the champion's score is not finite                                   | inconclusive |
    | fewer than five rows or clusters, or one cluster holds most rows     | inconclusive |
    | upper bound of the gain does not exceed the threshold                | reject       |
    | a slice loses more than allowed, beyond chance                       | reject       |
    | mode latency: the candidate is not significantly faster              | reject       |
    | mode latency: latencies were measured under different conditions     | inconclusive |
    | lower bound of the gain does not exceed the threshold                | inconclusive |
    | a loss of more than its margin is not excluded on a named slice      | inconclusive |
    | otherwise                                                            | promote      |

    The threshold is `least_gain`, or `-margin` in modes `non_inferiority` and `latency`. Without a champion the
    candidate has to be better than the best baseline, with a threshold of 0 and without slices; without a baseline,
    better than the best constant prediction (in classification the most frequent class).

    Bounds are one-sided at the error `rule.error_of(test_uses)`. Of many small slices some decline by chance: with 16
    slices of 50 to 200 rows, a challenger that is 3 points better on every slice would be rejected about half the time.
    A slice that is not named therefore leads to rejection only if its loss is significant (at 1 - confidence, with a
    Bonferroni correction for the number of slices); any other loss is listed among the reasons.

    Args:
        candidate: the challenger.
        champion: the version that is served, or None.
        rule: `params.promote`.
        rows: the test split of both predictions.
        test_uses: number of distinct comparisons on this version of the test rows, this one included.
        baseline: the best baseline; compared with only if there is no champion.

    Raises:
        ValueError: the numbers of predictions and rows differ (a defect of the caller).
    """
    metric = rule.metric or rows.scoring.main
    other = champion or baseline or Scored(rows.scoring.constant_name, "", rows.digest, rows.stand_in)
    if champion is None:
        rule = rule.model_copy(update={"mode": "superiority", "least_gain": 0.0, "slices": {}})
        rows = replace(rows, slices=None)

    def verdict(outcome: Verdict, *reasons: str) -> Decision:
        return Decision(verdict=outcome, mode=rule.mode, metric=metric, against=other.name, reasons=reasons)

    if champion is not None and candidate.digest == champion.digest:
        same = "is already the champion" if candidate.name == champion.name else f"has the content of {other.name}"
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
    name = f"champion {other.name}" if champion is not None else other.name
    if other.statistics is None:
        return verdict("inconclusive", f"{name} could not be scored: {other.problem}")
    if other.test_digest != rows.digest:
        return verdict(
            "inconclusive",
            f"{name} was scored on test version {other.test_digest}, not {rows.digest}: "
            "scores of different test versions are not comparable; score it again",
        )
    return _compare(candidate, other, rule, rows, metric, test_uses)


def _too_slow(candidate: Scored, rule: PromotionRule) -> str:
    if rule.latency_ms is None:
        return ""
    if candidate.latency is None:
        return f"{candidate.name}: latency was not measured, and the rule limits it to {rule.latency_ms:g} ms"
    if candidate.latency.p50 > rule.latency_ms:
        conditions = f" ({candidate.latency.conditions})" if candidate.latency.conditions else ""
        return (
            f"{candidate.name} takes {candidate.latency.p50:.1f} ms per text, more than promote.latency_ms: "
            f"{rule.latency_ms:g}{conditions}; raise it if a better score is worth the time"
        )
    return ""


def _compare(
    candidate: Scored, other: Scored, rule: PromotionRule, rows: TestRows, metric: str, test_uses: int
) -> Decision:
    own, theirs, clusters = candidate.statistics, other.statistics, rows.clusters
    assert own is not None
    assert theirs is not None
    if not len(rows) == own.shape[0] == theirs.shape[0]:
        raise ValueError(f"{len(rows)} rows, {own.shape[0]} and {theirs.shape[0]} predictions")
    gain = compare(theirs, own, clusters, scoring=rows.scoring, metric=metric)
    # No comparison with NaN is true, so that such a gain would pass the checks below.
    if not math.isfinite(gain.candidate):
        return Decision("reject", rule.mode, metric, other.name, (_not_finite(candidate, metric, gain.candidate),))
    if not math.isfinite(gain.other):
        return Decision("inconclusive", rule.mode, metric, other.name, (_not_finite(other, metric, gain.other),))
    scores = f"{metric} {gain.candidate:.4f} against {gain.other:.4f} of {other.name}: gain {gain.value:+.4f}"
    units: Literal["clusters", "rows"] = "rows" if clusters is None else "clusters"
    decision = Decision(
        verdict="inconclusive",
        mode=rule.mode,
        metric=metric,
        against=other.name,
        reasons=(),
        candidate_score=gain.candidate,
        champion_score=gain.other,
        gain=gain.value,
        test_uses=test_uses,
        alpha=rule.error_of(test_uses),
        units=units,
        count=gain.units,
    )
    if few := _too_few(rows, clusters):
        return replace(decision, reasons=(few, scores))
    alpha, threshold = rule.error_of(test_uses), rule.threshold
    half = half_width([gain.sampling], alpha)
    low, high, effect = gain.value - half, gain.value + half, detectable(gain.sampling, alpha)
    changes = slice_changes(rows, theirs, own, rule, metric, alpha)
    chance = [
        f"{change}, which may be chance"
        for change in changes
        if not change.named and not change.beyond_chance and change.champion - change.candidate > change.margin
    ]
    needed, undecided = None, ""
    if low <= threshold < high:
        needed = units_needed(gain.value - threshold, gain.sampling, gain.units, error=alpha)
        undecided = _undecided(gain, needed, units, len(rows), threshold, effect, rule)
    speed = _faster(candidate, other, rule) if rule.mode == "latency" else (True, "")
    outcome, reasons = _outcome(rule, changes, speed, undecided=undecided, is_better=high > threshold)
    measured = f"{scores}, between {low:+.4f} and {high:+.4f} at one-sided {1 - alpha:.6g} on {len(rows)} test rows" + (
        f" in {gain.units} clusters" if clusters is not None else ""
    )
    first = detectable(gain.sampling, rule.error_of(1))
    refresh = effect > REFRESH * first
    if refresh:
        chance.append(
            f"comparison {test_uses} on these test rows: the smallest gain that is detected grew from {first:.4f} to "
            f"{effect:.4f}; label new test rows"
        )
    return replace(
        decision,
        verdict=outcome,
        reasons=(*reasons, measured, *chance),
        low=low,
        high=high,
        detectable=effect,
        labels_needed=needed if reasons == [undecided] else None,
        refresh=refresh,
        slices=changes,
    )


def _outcome(
    rule: PromotionRule,
    changes: Sequence[SliceChange],
    speed: tuple[bool | None, str],
    *,
    undecided: str,
    is_better: bool,
) -> tuple[Verdict, list[str]]:
    """The verdict and its reasons.

    Args:
        rule: `params.promote`.
        changes: of the slices.
        speed: whether the candidate is faster, None if that is not known; and the sentence about it.
        undecided: the reason if the threshold is within the bounds of the gain; else empty.
        is_better: whether the upper bound of the gain exceeds the threshold.
    """
    lost = [f"{change}, more than {change.margin:g}" for change in changes if change.beyond_chance]
    faster, sentence = speed
    if lost or not is_better:
        return "reject", [*([] if is_better else [_not_better(rule)]), *lost]
    if faster is not True:
        return "reject" if faster is False else "inconclusive", [sentence]
    if undecided:
        return "inconclusive", [undecided]
    if not_shown := [_not_shown(change) for change in changes if change.named and not change.shown]:
        return "inconclusive", not_shown
    return "promote", [sentence] if sentence else []


def _not_finite(scored: Scored, metric: str, score: float) -> str:
    return f"{scored.name}: {metric} is {score}, because its answers are not all finite; train a new one"


def _too_few(rows: TestRows, clusters: Ints | None) -> str:
    """Why the variance between rows or clusters cannot be estimated, or an empty string."""
    if clusters is None:
        if len(rows) >= MIN_GROUPS:
            return ""
        return f"there are {len(rows)} test row(s), and the variance between rows needs {MIN_GROUPS}: label more rows"
    sizes = np.bincount(clusters)
    if len(sizes) < MIN_GROUPS:
        return (
            f"the test rows come from {len(sizes)} cluster(s), and the variance between clusters needs {MIN_GROUPS}: "
            "label rows of further clusters, or set data.tasks.<name>.group to null if rows are independent"
        )
    if sizes.sum() ** 2 < 2 * (sizes.astype(np.float64) ** 2).sum():
        return (
            f"one cluster holds {sizes.max()} of {len(rows)} test rows, so the variance between clusters cannot be "
            "estimated: label rows of further clusters"
        )
    return ""


def _not_better(rule: PromotionRule) -> str:
    if rule.mode == "superiority":
        return f"not better by more than {rule.least_gain:g}"
    return f"worse by more than the margin of {rule.margin:g}"


def _undecided(
    gain: Gain, needed: int | None, units: str, rows: int, threshold: float, effect: float, rule: PromotionRule
) -> str:
    """What is missing for a verdict: the minimal detectable effect, and the labels if the gain is on the right side."""
    smallest = (
        f"the smallest gain that these test rows detect with {POWER:.0%} power is {threshold + effect:+.4f}"
        if rule.mode == "superiority"
        else f"a loss of less than {rule.margin:g} is shown with {POWER:.0%} power if the true gain is at least "
        f"{threshold + effect:+.4f}"
    )
    if needed is None:
        return smallest
    if units == "rows":
        return f"{smallest}; {needed} test labels would decide it at this gain (now {rows})"
    return (
        f"{smallest}; {needed} clusters with about {math.ceil(needed * rows / gain.units)} test labels would decide it "
        f"at this gain (now {gain.units} clusters with {rows})"
    )


def _not_shown(change: SliceChange) -> str:
    return (
        f"{change}: a loss of more than {change.margin:g} is not excluded (lower bound {change.low:+.4f}; "
        f"power {change.power:.0%} if the scores are equal)"
    )


def _faster(candidate: Scored, other: Scored, rule: PromotionRule) -> tuple[bool | None, str]:
    """Whether the candidate is significantly faster by at least `FASTER`; None if the measurements do not tell."""
    own, theirs = candidate.latency, other.latency
    if own is None or theirs is None or min(len(own.rounds), len(theirs.rounds)) < 2:
        return None, f"the latencies of {candidate.name} and {other.name} were not both measured"
    if own.conditions != theirs.conditions:
        return None, (
            f"the latencies were measured under different conditions ({own.conditions}; {theirs.conditions}); "
            "run promote on one machine"
        )
    logs = [np.log(latency.rounds) for latency in (theirs, own)]
    change = float(logs[1].mean() - logs[0].mean())
    variances = [Variance(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values in logs]
    highest = change + half_width(variances, 1 - rule.confidence)
    measured = f"{own.p50:.2f} ms per text against {theirs.p50:.2f} ms"
    if highest < math.log1p(-FASTER):
        return True, f"{measured}: at least {1 - math.exp(highest):.0%} faster"
    return False, f"{measured}: not significantly faster by at least {FASTER:.0%}"
