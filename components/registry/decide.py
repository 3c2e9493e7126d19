"""The promotion rule: whether a challenger replaces the champion.

`decide` is a pure function of measurements: it reads no file and changes no state. `components.registry.ledger` moves
the alias. Both systems are artifacts: the only variance of the gain is that between samples of test clusters
(`components.data.scoring.intervals`); there are no random numbers. The first row that applies gives the verdict:

| situation                                                            | verdict      |
|----------------------------------------------------------------------|--------------|
| candidate is the champion (same content)                             | unchanged    |
| candidate was rolled back                                            | reject       |
| candidate has no predictions                                         | reject       |
| candidate is beyond the limit of latency, or its latency is unknown  | reject       |
| champion has no predictions                                          | inconclusive |
| the candidate's score is not finite                                  | reject       |
| the champion's score is not finite                                   | inconclusive |
| fewer rows or clusters than a sign test needs, or one holds most rows | inconclusive |
| upper bound of the gain does not exceed the threshold                | reject       |
| a slice loses more than allowed, beyond chance                       | reject       |
| mode latency: the candidate is not significantly faster              | reject       |
| mode latency: latencies were measured under different conditions     | inconclusive |
| lower bound of the gain does not exceed the threshold                | inconclusive |
| a loss of more than its margin is not excluded on a named slice      | inconclusive |
| otherwise                                                            | promote      |

The threshold is `least_gain`, or `-margin` in modes `non_inferiority` and `latency`. Without a champion the candidate
has to be better than the best baseline, with a threshold of 0 and without slices; without a baseline, better than the
constant prediction of the table of scores (in classification the most frequent class of train).

Bounds are one-sided at the error `rule.error_of(test_uses, budget)`. Of many small slices some decline by chance: with
16 slices of 50 to 200 rows, a challenger that is 3 points better on every slice would be rejected about half the time.
A slice that is not named therefore leads to rejection only if its loss is significant (at 1 - confidence, with a
Bonferroni correction for the number of slices); any other loss is listed among the reasons.

How often test rows have been used for decisions. The k-th comparison has the error `rule.error_of(k, budget)`, so
that the probability of any false promotion is bounded however many there are.

Test rows change: a nightly run adds some, labels are corrected. The count goes on unless more than half of the rows are
new since its first comparison. Then k begins at 1, with what the comparisons before have left of the error budget: the
rows that stayed have been used. Rows that are all new have a budget of their own.

Rows are recognised by a sketch (Broder 1997, bottom-k): the smallest `SKETCH` digests of the rows. Up to so many rows
it is exact; of more, the share of new rows is estimated with a standard error of at most 0.05.
"""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy import sparse

from components.core.artifacts import read_json
from components.core.errors import ArtifactError
from components.data.scoring import Scoring
from components.data.scoring.base import title
from components.data.scoring.intervals import (
    MIN_GROUPS,
    Ints,
    Variance,
    clusters_within,
    half_width,
    left_out,
    sampling_variance,
    sizes_of,
)
from components.data.tasks.data import Fields
from components.settings.registry import Mode, PromotionRule

Verdict = Literal["promote", "reject", "inconclusive", "unchanged"]

#: Factor by which the minimal detectable effect may exceed the effect of the first comparison on the same test rows
#: before new rows are advised. With many clusters a factor of 1.5 is reached at the eleventh comparison, with few
#: clusters earlier; the same effect would then need 1.5^2 times the labels.
REFRESH = 1.5
#: Minimum reduction of the latency in mode `latency`. Smaller ones are within the variation between two measurements.
FASTER = 0.05
#: Share of a limit of latency by which a model may exceed it with a warning: other work on the machine shares caches
#: and memory, which adds up to a half to the processor time of the same computation.
LATENCY_MARGIN = 0.5
#: Power of the minimal detectable effect and of the number of labels needed.
POWER = 0.8
#: Largest number of clusters that `units_needed` considers.
MOST_UNITS = 10**9


@dataclass(frozen=True)
class Latency:
    """Processor time of one text, as measured once for an artifact.

    Attributes:
        median: of the passes, in milliseconds.
        rounds: of each pass over the same rows, in milliseconds per row.
        conditions: number of rows, and the processor.
    """

    median: float
    rounds: tuple[float, ...] = ()
    conditions: str = ""


@dataclass(frozen=True)
class Scored:
    """A model version or baseline, and its predictions of the test rows. `statistics`: (N, K) statistics of the task's
    scoring; None if the model could not be scored. `system`: its name in results, if it has one."""

    name: str
    digest: str
    statistics: sparse.csr_array | None
    latency: Latency | None = None
    problem: str = ""
    rolled_back: bool = False
    system: str = ""


@dataclass(frozen=True)
class TestRows:
    """The test split of a task.

    Attributes:
        stand_in: (N, K) statistics of the constant prediction (`Scoring.constant`).
        clusters: (N,) number of each row's cluster, from 0, or None if rows are independent; of copies, of a group and
            of a document it is the same (`Split.clusters`).
    """

    __test__ = False  # pytest would collect it because of its name

    digest: str
    scoring: Scoring
    stand_in: sparse.csr_array
    slices: Sequence[str | None] = ()
    clusters: Ints | None = None

    def __len__(self) -> int:
        return int(self.stand_in.shape[0])


@dataclass(frozen=True)
class Gain:
    """The gain of a candidate, and its variance due to the sample of test rows. `sampling`: variance of the gain
    between samples of `units` clusters."""

    candidate: float
    other: float
    sampling: Variance
    units: int

    @property
    def value(self) -> float:
        """The difference of the scores."""
        return self.candidate - self.other


def compare(
    other: sparse.csr_array, candidate: sparse.csr_array, clusters: Ints | None, *, scoring: Scoring, metric: str
) -> Gain:
    """The gain of `candidate` over `other`."""
    before, after = (float(scoring.scores(rows.sum(0))[metric]) for rows in (other, candidate))
    without = [left_out(rows, clusters, scoring.scores)[metric] for rows in (other, candidate)]
    sizes = sizes_of(clusters, other.shape[0])
    return Gain(after, before, sampling_variance(without[1] - without[0], sizes), len(sizes))


def detectable(sampling: Variance, error: float) -> float:
    """Minimal detectable effect: the true distance from the threshold that is shown with probability `POWER`."""
    return half_width([sampling], error) + NormalDist().inv_cdf(POWER) * math.sqrt(sampling.value)


def power(sampling: Variance, error: float, effect: float) -> float:
    """Probability that a true distance of `effect` from the threshold is shown."""
    if sampling.value == 0:
        return float(effect > 0)
    return NormalDist().cdf((effect - half_width([sampling], error)) / math.sqrt(sampling.value))


def units_needed(effect: float, sampling: Variance, units: int, *, error: float) -> int | None:
    """Number of clusters, more than `units`, at which a true distance of `effect` from the threshold is shown with
    probability `POWER`; None if there is none. The variance is proportional to 1 / clusters."""

    def enough(count: int) -> bool:
        return detectable(Variance(sampling.value * units / count, sampling.freedom * count / units), error) <= effect

    if effect <= 0 or not enough(MOST_UNITS):
        return None
    return units + 1 + bisect_left(range(units + 1, MOST_UNITS), True, key=enough)


@dataclass(frozen=True)
class SliceChange:
    """Scores of both systems on one slice.

    Attributes:
        low: lower bound of the gain, at the error of the comparison for a named slice, else at the error of slices.
        margin: maximum loss; of a named slice (`promote.slices`), its own.
        power: of a named slice: probability of excluding a loss of `margin` if the scores are equal.
        units: number of clusters of the rows, or of rows, where rows are independent.
    """

    name: str
    rows: int
    champion: float
    candidate: float
    low: float
    high: float
    margin: float
    named: bool = False
    power: float | None = None
    units: int = MIN_GROUPS

    @property
    def beyond_chance(self) -> bool:
        """Whether the candidate is significantly worse: a named slice by more than its margin, any other at all."""
        if self.named:
            return self.high < -self.margin
        return self.high < 0 and self.champion - self.candidate > self.margin

    @property
    def shown(self) -> bool:
        """Whether a loss of more than the margin is excluded; too few units exclude nothing, because their variance may
        be 0 by chance."""
        return self.units >= MIN_GROUPS and self.low > -self.margin

    def __str__(self) -> str:
        direction = "falls" if self.candidate < self.champion else "goes"
        return f"slice {self.name!r} ({self.rows} rows) {direction} from {self.champion:.3f} to {self.candidate:.3f}"


def slice_changes(
    rows: TestRows, other: sparse.csr_array, candidate: sparse.csr_array, rule: PromotionRule, metric: str, alpha: float
) -> tuple[SliceChange, ...]:
    """Gains on the named slices and on the large ones. Units are the clusters (`clusters_within`)."""
    of_row = np.array([name or "" for name in rows.slices], dtype=np.str_)
    names, counts = np.unique(of_row[of_row != ""], return_counts=True)
    sizes = dict(zip(map(str, names), counts, strict=True))
    named = [name for name in rule.slices if name in sizes]
    large = [name for name, count in sizes.items() if count >= rule.slice_rows and name not in named]
    clusters = rows.clusters
    changes = []
    for name in [*named, *large]:
        inside = np.flatnonzero(of_row == name)
        groups = clusters_within(clusters, inside)
        units = len(inside) if clusters is None else len(np.unique(clusters[inside]))
        before, after = (rows.scoring.of_part(each[inside]) for each in (other, candidate))
        gain = compare(before, after, groups, scoring=rows.scoring, metric=metric)
        error = alpha if name in named else (1 - rule.confidence) / len(large)
        half = half_width([gain.sampling], error)
        margin = rule.slices[name] if name in named else rule.largest_slice_loss
        shown = power(gain.sampling, error, margin) if units >= MIN_GROUPS else 0.0
        changes.append(
            SliceChange(
                name=name,
                rows=len(inside),
                champion=gain.other,
                candidate=gain.candidate,
                low=gain.value - half,
                high=gain.value + half,
                margin=margin,
                named=name in named,
                power=shown if name in named else None,
                units=units,
            )
        )
    return tuple(changes)


@dataclass(frozen=True)
class Decision:
    """The verdict and the measurements behind it.

    Attributes:
        verdict: empty: nothing was decided yet.
        candidate_score: score of the candidate; None without a comparison, as all fields below. The bounds and the
            fields after them are None if there are too few clusters.
        test_uses: number of distinct comparisons on these test rows, this one included (`Use`).
        units: "clusters" or "rows", of which `count` were compared.
        detectable: minimal detectable effect: the true gain beyond the threshold that is shown with 80% power.
        labels_needed: number of units at which a gain of the observed size is shown with 80% power; None if the gain
            does not exceed the threshold.
        candidate, champion: {name, version, digest, latency_ms: {median, rounds, conditions} or null} of the versions.
        test: {digest, rows, sketch} (`sketch_of`).
        recipe: `components.registry.explain.Evaluated.recipe_difference`.
        first: whether the candidate is compared with chance because no model is shown to be better.
        rival: system that the candidate was compared with; empty: the constant prediction.
        story: which model is the current one and why, in one sentence; set with the fields after it by `Contest.told`.
        served: {version, system, evaluated (whether it is a model of the run)} or null.
    """

    verdict: Verdict | Literal[""] = ""
    mode: Mode = "superiority"
    metric: str = ""
    against: str = ""
    reasons: tuple[str, ...] = ()
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
    slices: tuple[SliceChange, ...] = ()
    candidate: Mapping[str, Any] | None = None
    champion: Mapping[str, Any] | None = None
    test: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    recipe: str = ""
    first: bool = False
    rival: str = ""
    story: str = ""
    alias_after: str | None = None
    served: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Decision":
        """The decision of an entry of the ledger or of decision.json, which may have further keys."""
        return TypeAdapter(cls).validate_python(dict(stored))

    @property
    def figures(self) -> str:
        """Both scores, and the gain with its bounds."""
        text = f"{title(self.metric)} {self.candidate_score:.4f} against {self.champion_score:.4f} of {self.against}"
        text += f", gain {self.gain:+.4f}"
        return text if self.low is None else f"{text}, between {self.low:+.4f} and {self.high:+.4f}"

    @property
    def current(self) -> str:
        """The system of the current model; empty if there is none."""
        return str((self.served or {}).get("system") or "")

    @property
    def current_of_run(self) -> str:
        """The system of the run whose model is the current one; empty if that is of an earlier run."""
        served, candidate = self.served or {}, self.candidate or {}
        # Decisions of earlier versions of Headstart do not say whether it is of the run.
        return self.current if served.get("evaluated", served.get("version") == candidate.get("version")) else ""

    @property
    def grounds(self) -> list[str]:
        """What it rests on, besides its sentence, which states the scores and the gain."""
        further = [reason for reason in self.reasons if reason not in self.story]
        if self.low is None:
            return further
        rows = f"Measured on {self.test['rows']:,} test rows"
        if self.units == "clusters":
            rows += f" in {self.count:,} clusters, such as documents and copies"
        scores = f"{title(self.metric)} {self.candidate_score:.4f} against "
        return [
            f"{rows}: comparison {self.test_uses} on them; each bound is wrong in {self.alpha:.2%} of cases",
            *(reason for reason in further if not reason.startswith(scores)),
        ]

    @property
    def may_be_as_good(self) -> bool:
        """Whether the candidate was compared, and is not shown to be worse."""
        return self.verdict != "reject" and self.gain is not None


def read_decisions(path: Path) -> dict[str, Decision]:
    """Task -> the last decision about its challenger, of a decision.json; empty if nothing was decided yet.

    Raises:
        ArtifactError: it is damaged, or another version of Headstart has written it.
    """
    made_by = "the stage promote"
    stored = read_json(path, made_by=made_by, missing_ok=True).get("decisions", {})
    try:
        return {task: Decision.of(decision) for task, decision in stored.items()}
    except (ValueError, TypeError, AttributeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ArtifactError(f"{path}: holds decisions that cannot be read ({why}); run {made_by} again") from error


def decide(
    candidate: Scored,
    champion: Scored | None,
    rule: PromotionRule,
    *,
    rows: TestRows,
    test_uses: int = 1,
    budget: float = 1.0,
    baseline: Scored | None = None,
) -> Decision:
    """Decide whether a challenger is promoted, by the table above.

    Args:
        test_uses: number of the comparison on these test rows; `budget`: what is left of the error (`Use`).
        baseline: the best baseline; compared with only if there is no champion.

    Raises:
        ValueError: the numbers of predictions and rows differ (a defect of the caller).
    """
    metric = rule.metric or rows.scoring.main
    other = champion or baseline or Scored(rows.scoring.constant_name, "", rows.stand_in)
    if champion is None:
        rule = rule.model_copy(update={"mode": "superiority", "least_gain": 0.0, "slices": {}})
        rows = replace(rows, slices=())
    if settled := _settled(candidate, champion, other, rule, metric=metric, rows=len(rows)):
        verdict, reason = settled
        return Decision(verdict, rule.mode, metric, other.name, (reason,), rival=other.system)
    ours, theirs, clusters = candidate.statistics, other.statistics, rows.clusters
    assert ours is not None
    assert theirs is not None
    if not len(rows) == ours.shape[0] == theirs.shape[0]:
        raise ValueError(f"{len(rows)} rows, {ours.shape[0]} and {theirs.shape[0]} predictions")
    gain = compare(theirs, ours, clusters, scoring=rows.scoring, metric=metric)
    decision = Decision("inconclusive", rule.mode, metric, other.name, rival=other.system)
    # No comparison with NaN is true, so that such a gain would pass the checks below.
    for scored, score in ((candidate, gain.candidate), (other, gain.other)):
        if not math.isfinite(score):
            what = f"{title(metric)} is {score}, because its answers are not all finite"
            reason = f"{scored.name}: {what}; train a new one"
            return replace(decision, verdict="reject" if scored is candidate else "inconclusive", reasons=(reason,))
    decision = replace(
        decision,
        candidate_score=gain.candidate,
        champion_score=gain.other,
        gain=gain.value,
        test_uses=test_uses,
        alpha=rule.error_of(test_uses, budget),
        units="rows" if clusters is None else "clusters",
        count=gain.units,
    )
    if few := _too_few(rows, clusters, rule.error_of(test_uses, budget)):
        return replace(decision, reasons=(few, decision.figures))
    assert decision.alpha is not None
    changes = slice_changes(rows, theirs, ours, rule, metric, decision.alpha)
    speed = _faster(candidate, other, rule) if rule.mode == "latency" else (True, "")
    decision = _bounded(replace(decision, slices=changes), gain, rule, len(rows), speed)
    if over := _over(candidate, rule):
        warning = f"warning: {over}; up to {LATENCY_MARGIN:.0%} more is the error of measuring it"
        decision = replace(decision, reasons=(*decision.reasons, warning))
    return decision


def _settled(
    candidate: Scored, champion: Scored | None, other: Scored, rule: PromotionRule, *, metric: str, rows: int
) -> tuple[Verdict, str] | None:
    """The verdict that needs no comparison, with its reason; None: the scores decide."""
    if champion is not None and candidate.digest == champion.digest:
        same = "is already the champion" if candidate.name == champion.name else f"has the content of {other.name}"
        return "unchanged", f"{candidate.name} {same}"
    if candidate.rolled_back:
        return "reject", f"{candidate.name} was rolled back; train a new one, or move the alias by hand"
    if candidate.statistics is None or not rows:
        return "reject", f"{candidate.name} has no {title(metric)}: {candidate.problem or 'no test rows'}"
    latency, limit = candidate.latency, rule.latency_ms
    if limit is not None and latency is None:
        return "reject", f"{candidate.name}: latency was not measured, and the rule limits it to {limit:g} ms"
    if limit is not None and latency is not None and latency.median > (1 + LATENCY_MARGIN) * limit:
        return "reject", f"{_over(candidate, rule)}; raise it if a better score is worth the time"
    if other.statistics is None:
        name = f"champion {other.name}" if champion is not None else other.name
        return "inconclusive", f"{name} could not be scored: {other.problem}"
    return None


def _over(candidate: Scored, rule: PromotionRule) -> str:
    """That a model exceeds the limit of latency; empty if it does not."""
    latency, limit = candidate.latency, rule.latency_ms
    if limit is None or latency is None or latency.median <= limit:
        return ""
    conditions = f" ({latency.conditions})" if latency.conditions else ""
    return (
        f"{candidate.name} takes {latency.median:.1f} ms of a processor per text, more than promote.latency_ms: "
        f"{limit:g}{conditions}"
    )


def _bounded(
    decision: Decision, gain: Gain, rule: PromotionRule, rows: int, speed: tuple[bool | None, str]
) -> Decision:
    """The decision with the bounds of the gain; `speed`: whether the candidate is faster (None: not known), in words
    too."""
    assert decision.alpha is not None
    alpha, threshold = decision.alpha, rule.threshold
    half, effect = half_width([gain.sampling], alpha), detectable(gain.sampling, alpha)
    low, high = gain.value - half, gain.value + half
    decision = replace(decision, low=low, high=high, detectable=effect)
    needed, undecided = None, ""
    if low <= threshold < high:
        needed = units_needed(gain.value - threshold, gain.sampling, gain.units, error=alpha)
        undecided = _undecided(gain, needed, decision.units or "rows", rows, effect, rule)
    # In the order of the table; the first entry with reasons decides.
    lost = [f"{change}, more than {change.margin:g}" for change in decision.slices if change.beyond_chance]
    if high <= threshold:
        bound = "not better" + (f" by more than {rule.least_gain:g}" if rule.least_gain else "")
        bound = bound if rule.mode == "superiority" else f"worse by more than the margin of {rule.margin:g}"
        lost = [bound, *lost]
    not_shown = [
        f"{change}: a loss of more than {change.margin:g} is not excluded (lower bound {change.low:+.4f}; "
        f"power {change.power:.0%} if the scores are equal{_few(change, decision.units)})"
        for change in decision.slices
        if change.named and not change.shown
    ]
    faster, sentence = speed
    table: list[tuple[Verdict, list[str]]] = [
        ("reject", lost),
        ("reject" if faster is False else "inconclusive", [] if faster else [sentence]),
        ("inconclusive", [undecided] if undecided else []),
        ("inconclusive", not_shown),
    ]
    usual: tuple[Verdict, list[str]] = ("promote", [sentence] if sentence else [])
    verdict, reasons = next((entry for entry in table if entry[1]), usual)
    where = f"on {rows:,} test rows" + (f" in {gain.units:,} clusters" if decision.units == "clusters" else "")
    further = [f"{decision.figures} (error of each bound: {alpha:.2%}) {where}"]
    further += [
        f"{change}, which may be chance"
        for change in decision.slices
        if not change.named and not change.beyond_chance and change.champion - change.candidate > change.margin
    ]
    first = detectable(gain.sampling, rule.error_of(1))
    if refresh := effect > REFRESH * first:
        further.append(
            f"comparison {decision.test_uses} on these test rows: the smallest gain that is detected grew from "
            f"{first:.4f} to {effect:.4f}; label new test rows"
        )
    needed = needed if reasons == [undecided] else None
    return replace(decision, verdict=verdict, reasons=(*reasons, *further), labels_needed=needed, refresh=refresh)


def _few(change: SliceChange, units: str | None) -> str:
    """What a slice needs to be judged at all, or an empty string."""
    if change.units >= MIN_GROUPS:
        return ""
    needs = f"; it has {change.units} of the {MIN_GROUPS} {units} that the variance needs"
    return needs + (", or set data.tasks.<name>.group to null if rows are independent" if units == "clusters" else "")


def _too_few(rows: TestRows, clusters: Ints | None, error: float) -> str:
    """Why the variance between rows or clusters cannot be estimated, or why even a gain in each of them would be shown
    by no sign test of this error; or an empty string."""
    least = max(MIN_GROUPS, math.ceil(-math.log2(error)))
    if clusters is None:
        if len(rows) >= least:
            return ""
        return f"there are {len(rows)} test row(s), and the variance between rows needs {least}: label more rows"
    sizes = np.bincount(clusters)
    if len(sizes) < least:
        return (
            f"the test rows come from {len(sizes)} cluster(s), and the variance between clusters needs {least}: "
            "label rows of further clusters, or set data.tasks.<name>.group to null if rows are independent"
        )
    if sizes.sum() ** 2 < 2 * (sizes.astype(np.float64) ** 2).sum():
        return (
            f"one cluster holds {sizes.max()} of {len(rows)} test rows, so the variance between clusters cannot be "
            "estimated: label rows of further clusters"
        )
    return ""


def _undecided(gain: Gain, needed: int | None, units: str, rows: int, effect: float, rule: PromotionRule) -> str:
    """What is missing for a verdict: the minimal detectable effect, and the labels if the gain is on the right side."""
    least = f"{rule.threshold + effect:+.4f}"
    smallest = (
        f"the smallest gain that these test rows detect with {POWER:.0%} power is {least}"
        if rule.mode == "superiority"
        else f"a loss of less than {rule.margin:g} is shown with {POWER:.0%} power if the true gain is at least {least}"
    )
    if needed is None:
        return smallest
    if units == "rows":
        return f"{smallest}; {needed} test labels would decide it at this gain (now {rows})"
    return (
        f"{smallest}; {needed} clusters with about {math.ceil(needed * rows / gain.units)} test labels would decide it "
        f"at this gain (now {gain.units} clusters with {rows})"
    )


def _faster(candidate: Scored, other: Scored, rule: PromotionRule) -> tuple[bool | None, str]:
    """Whether the candidate is significantly faster by at least `FASTER`; None if the measurements do not tell."""
    new, old = candidate.latency, other.latency
    if new is None or old is None or min(len(new.rounds), len(old.rounds)) < 2:
        return None, f"the latencies of {candidate.name} and {other.name} were not both measured"
    if new.conditions != old.conditions:
        return None, (
            f"the latencies were measured under different conditions ({new.conditions}; {old.conditions}); "
            "run promote on one machine"
        )
    logs = [np.log(latency.rounds) for latency in (old, new)]
    change = float(logs[1].mean() - logs[0].mean())
    variances = [Variance(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values in logs]
    highest = change + half_width(variances, 1 - rule.confidence)
    measured = f"{new.median:.2f} ms of a processor per text against {old.median:.2f} ms"
    if highest < math.log1p(-FASTER):
        return True, f"{measured}: at least {1 - math.exp(highest):.0%} faster"
    return False, f"{measured}: not significantly faster by at least {FASTER:.0%}"


#: Number of digests of a sketch, and characters of a digest.
SKETCH: Final = 200
DIGITS: Final = 12
#: Share of new rows above which the count begins anew.
NEW: Final = 0.5

#: (digest of the candidate, digest of the champion or name of the baseline, metric, mode).
Comparison = tuple[str, str, str, str]


@dataclass(frozen=True)
class Use:
    """Which comparison on test rows this is, from 1, and what is left of the error budget, at most 1."""

    number: int = 1
    budget: float = 1.0


def sketch_of(rows: Sequence[Fields]) -> str:
    """The sketch of N rows, whatever their order and labels."""
    digests = {hashlib.sha256(json.dumps([*row]).encode()).hexdigest()[:DIGITS] for row in rows}
    return "".join(sorted(digests)[:SKETCH])


def share_of_new(first: str, now: str) -> float:
    """The share of the rows of one sketch that another one, of earlier rows, lacks."""
    before, after = ([text[start : start + DIGITS] for start in range(0, len(text), DIGITS)] for text in (first, now))
    # Beyond the last digest of a full sketch, nothing is known of its rows.
    limit = min((part[-1] for part in (before, after) if len(part) >= SKETCH), default="g")
    inside = {digest for digest in after if digest <= limit}
    return len(inside - set(before)) / len(inside) if inside else 1.0


def use_of(earlier: Sequence[Mapping[str, Any]], *, digest: str, sketch: str, comparison: Comparison) -> Use:
    """The use of the test rows by a comparison. A repeated one has the number of its first occurrence: nothing new is
    learned from the rows.

    Args:
        earlier: the decisions of the same kind, the oldest first, as in decision.json.
        digest: of the version of the test rows, by which decisions without a sketch are recognised.
    """
    count, first, budget = 0, ("", ""), 1.0
    seen: dict[Comparison, Use] = {}
    for decision in (*earlier, None):
        test = {"digest": digest, "sketch": sketch} if decision is None else decision.get("test") or {}
        if decision is not None and decision.get("gain") is None:
            continue
        now = str(test.get("digest")), str(test.get("sketch") or "")
        new = 0.0 if not count or now[0] == first[0] or not (now[1] and first[1]) else share_of_new(first[1], now[1])
        if new > NEW:
            # The errors 1 / (k (k + 1)) of the first k comparisons sum to k / (k + 1).
            budget = 1.0 if new == 1 else budget / (count + 1)
            count = 0
            seen.clear()
        if not count:
            first = now
        made = comparison if decision is None else _comparison(decision)
        if made not in seen:
            count += 1
            seen[made] = Use(count, budget)
    return seen[comparison]


def _comparison(decision: Mapping[str, Any]) -> Comparison:
    return (
        str((decision.get("candidate") or {}).get("digest")),
        str((decision.get("champion") or {}).get("digest") or decision.get("against")),
        str(decision.get("metric")),
        str(decision.get("mode", "superiority")),
    )
