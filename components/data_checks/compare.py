"""Comparison of the statistics of two versions of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.data_checks.statistics import Statistics
from components.settings.checks import Check, ChecksSettings, Rule

#: Number of names or shares that a message lists.
_LISTED = 3
#: Two samples differ if their divergence exceeds this multiple of the one that is expected of two samples of one
#: distribution.
_NOISE_FACTOR = 3.0
#: Minimum expected count of a category of the G-test; rarer ones are added up (Cochran 1954).
_EXPECTED = 5.0


@dataclass(frozen=True)
class Finding:
    """A violation of a check.

    Attributes:
        check: key in the section `checks`.
        rule: `stop` or `warn`.
        unit: the corpus, or the task and split, such as `aws-type train`.
        where: files, and positions of the first rows.
        text: what was found, with the numbers.
    """

    check: str
    rule: Rule
    unit: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.unit} ({self.where}): {self.text} (checks.{self.check}: {self.rule})"

    @property
    def stops(self) -> bool:
        """Whether it ends a run."""
        return self.rule == "stop"

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self)}


def compare(
    new: Statistics, old: Statistics | None, settings: ChecksSettings, *, unit: str, where: str, named: bool = True
) -> list[Finding]:
    """The violations of a new version against the last accepted one.

    Args:
        new: statistics of the new version.
        old: of the last accepted version; None: this is the first one, which can only violate `label_conflicts`,
            `duplicates` and `empty_rows`, against a version without them, and is warned about.
        settings: the rules.
        unit: the corpus, or the task and split.
        where: the files.
        named: whether the labels are names; otherwise they are intervals of numbers, and a new one is not a violation.
    """
    before = Statistics() if old is None else old
    found: list[Finding] = []

    def add(name: str, text: str, positions: Sequence[str] = ()) -> None:
        check: Check = getattr(settings, name)
        place = where + (f", first at {', '.join(positions)}" if positions else "")
        found.append(Finding(name, "warn" if old is None else check.rule, unit, place, text))

    conflicts = "rows whose text also has another label"
    for name, allowed, what, count, earlier, problem in (
        ("empty_rows", settings.empty_rows.increase, "rows without text", new.empty, before.empty, "empty"),
        ("duplicates", settings.duplicates.increase, "repeated rows", new.duplicates, before.duplicates, "duplicate"),
        ("label_conflicts", settings.label_conflicts.increase, conflicts, new.conflicts, before.conflicts, "conflict"),
    ):
        share, known = new.share(count), before.share(earlier)
        if share - known > allowed:
            text = f"{share:.1%} {what}, {_before(old, f'{known:.1%}')}; allowed increase {allowed:.1%}"
            add(name, text, new.positions.get(problem, ()))
    if old is not None:
        if new.rows < (1 - settings.rows.loss) * old.rows:
            add("rows", f"{new.rows:,} rows, {old.rows:,} before; allowed loss {settings.rows.loss:.0%}")
        if new.columns and (missing := [name for name in old.columns if name not in new.columns]):
            add("columns", f"column {_list(missing)} is missing")
        for text in _labels(new.classes, old.classes, significant=1 / settings.error) if named else ():
            add("labels", text)
        for name, text, positions in distributions(new, old, settings):
            add(name, text, positions)
    return [finding for finding in found if getattr(settings, finding.check).rule != "off"]


def compare_added(
    added: Statistics, old: Statistics, settings: ChecksSettings, *, unit: str, where: str
) -> list[Finding]:
    """The violations of the new files of a corpus against its last accepted version. They are compared alone, because a
    few files in another language change the shares of a large corpus little."""
    return [
        Finding(name, rule, unit, where + (f", first at {', '.join(positions)}" if positions else ""), text)
        for name, text, positions in distributions(added, old, settings)
        if (rule := getattr(settings, name).rule) != "off"
    ]


def _labels(new: Mapping[str, int], old: Mapping[str, int], *, significant: float) -> Iterator[str]:
    """New and missing labels. A rare label that a sample lacks by chance is not missing: with an expected count of m,
    it is absent with probability exp(-m)."""
    if not new or not old:
        return
    ratio = sum(new.values()) / sum(old.values())
    if added := [label for label in new if label not in old]:
        yield f"new label {_list(sorted(added))}"
    gone = [label for label, count in old.items() if label not in new and count * ratio > math.log(significant)]
    if gone:
        yield f"label {_list(sorted(gone))} is missing"


def distributions(
    new: Statistics, old: Statistics, settings: ChecksSettings
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """(check, message, positions) of the distributions that differ."""
    what = {
        "class_balance": ("classes", settings.class_balance, "share of the label"),
        "length": ("lengths", settings.length, "share of the rows with a length of"),
        "language": ("scripts", settings.language, "share of the writing system"),
    }
    for name, (distribution, rule, words) in what.items():
        counts, earlier = getattr(new, distribution), getattr(old, distribution)
        sizes = [part.rows / max(part.clusters, 1) for part in (new, old)]
        distance, p = different(counts, earlier, *sizes)
        if distance > rule.distance and p < settings.error:
            largest = _largest_changes(counts, earlier)
            listed = ", ".join(f"{_named(name, key)} {before:.1%} -> {now:.1%}" for key, before, now in largest)
            text = f"{words} changed: {listed}; distance {distance:.2f}, allowed {rule.distance:g}; p = {p:.1g}"
            key = largest[0][0] if largest[0][2] > largest[0][1] else ""
            yield name, text, new.positions.get(f"script:{key}", ()) if name == "language" else ()
    divergence, expected = trigram_divergence(new, old)
    limit = settings.language.divergence
    if divergence > limit and divergence > _NOISE_FACTOR * expected:
        yield (
            "language",
            f"another language or style: the character trigrams diverge by {divergence:.3f} bits, allowed {limit:g}; "
            f"{expected:.3f} expected by chance",
            (),
        )


def different(
    new: Mapping[str, int], old: Mapping[str, int], new_size: float = 1.0, old_size: float = 1.0
) -> tuple[float, float]:
    """Total variation distance between two samples over categories, and the p-value of a G-test of homogeneity.

    Counts are divided by the mean size of a cluster, as if the rows of a cluster were copies of each other, and
    categories with an expected count below 5 are added up.
    """
    names = sorted({*new, *old})
    counts = np.array([[new.get(name, 0) for name in names], [old.get(name, 0) for name in names]], dtype=np.float64)
    if len(names) < 2 or not counts.sum(1).all():
        return 0.0, 1.0
    shares = counts / counts.sum(1, keepdims=True)
    distance = float(0.5 * np.abs(shares[0] - shares[1]).sum())
    counts /= np.array([[new_size], [old_size]])
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    rare = expected.min(0) < _EXPECTED
    if rare.any():
        counts = np.column_stack([counts[:, ~rare], counts[:, rare].sum(1)])
        counts = counts[:, counts.sum(0) > 0]
    if counts.shape[1] < 2:
        return distance, 1.0
    from scipy.stats import chi2_contingency

    return distance, float(chi2_contingency(counts, correction=False, lambda_="log-likelihood").pvalue)


def trigram_divergence(new: Statistics, old: Statistics) -> tuple[float, float]:
    """Jensen-Shannon divergence of the character trigrams of two samples in bits, and the one expected of two samples
    of one distribution.

    The expectation is about c (1/n + 1/m) for n and m rows; c is estimated from the two halves of each sample, which
    are split by cluster, so that it includes the dependence of rows.
    """
    halves = [np.asarray(one.trigrams, dtype=np.float64) for one in (new, old)]
    rows = [max(one.rows, 1) for one in (new, old)]
    if not all(half.sum() for half in halves):
        return 0.0, 0.0
    scale = max(divergence(half[0], half[1]) * count / 4 for half, count in zip(halves, rows, strict=True))
    return divergence(halves[0].sum(0), halves[1].sum(0)), scale * (1 / rows[0] + 1 / rows[1])


def divergence(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Jensen-Shannon divergence of two vectors of counts, in bits (Lin 1991); 1 if one of them is empty."""
    if not first.sum() or not second.sum():
        return 1.0
    p, q = first / first.sum(), second / second.sum()
    mean = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(one > 0, one * np.log2(one / mean), 0).sum() for one in (p, q)]
    return float(max(0.0, sum(parts) / 2))


def _largest_changes(new: Mapping[str, int], old: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """(category, share before, share now) of the largest changes of a share."""
    totals = sum(new.values()), sum(old.values())
    changes = [(name, old.get(name, 0) / totals[1], new.get(name, 0) / totals[0]) for name in {*new, *old}]
    return sorted(changes, key=lambda change: (-abs(change[2] - change[1]), change[0]))[:_LISTED]


def _named(check: str, key: str) -> str:
    """A category in words."""
    if check != "length":
        return f"{key!r}"
    low, high = (2 ** (int(key) / 2 + half) - 1 for half in (0, 0.5))
    return f"{math.ceil(low)} to {math.ceil(high) - 1} characters"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"{name!r}" for name in names[:_LISTED]) + more


def _before(old: Statistics | None, share: str) -> str:
    return "the first version" if old is None else f"{share} before"
