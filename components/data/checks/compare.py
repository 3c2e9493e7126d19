"""Comparison of the statistics of two versions of the data (`components.data.checks.measure`)."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from components.data.checks.measure import Statistics
from components.data.columns import listed
from components.settings.checks import ChecksSettings

#: Number of names or shares that a message lists.
_LISTED = 3
#: Minimum expected count of a category of the G-test; rarer ones are added up (Cochran 1954).
_EXPECTED = 5.0
#: Maximum share of the rows that may be missing, and probability that one comparison of two samples of the same
#: distribution is significant.
MOST_LOSS, ERROR = 0.5, 1e-4
#: Check, key of the statistics, allowed increase of the share, and what the rows are.
_SHARES = (
    ("empty_rows", "empty", 0.01, "rows without text"),
    ("duplicates", "duplicates", 0.1, "repeated rows"),
    ("label_conflicts", "conflicts", 0.02, "rows whose text also has another label"),
)
#: Check, key of the statistics, allowed distance, and what is counted.
_DISTRIBUTIONS = (
    ("class_balance", "classes", 0.1, "share of the label"),
    ("length", "lengths", 0.2, "share of the rows with a length of"),
    ("language", "scripts", 0.05, "share of the writing system"),
)


#: A check that is violated, the message, positions of the first rows, and whether it is only noted: chance, or the
#: addition of rows, explains it, and the result of a run is not wrong.
Violation = tuple[str, str, Sequence[str], bool]


def findings(violations: Iterable[Violation], settings: ChecksSettings, *, where: str, first: bool) -> dict[str, str]:
    """Violations of checks that are not switched off, in words -> their rule; `note` ends no run, and a first version
    is only warned about. `where`: the unit, and its files in a parenthesis that is open."""
    results = {}
    for check, text, positions, noted in violations:
        if (rule := getattr(settings, check)) != "off":
            rule = "warn" if first else "note" if noted else rule
            at = f", first at {', '.join(positions)}" if positions else ""
            results[f"{where}{at}): {text} (checks.{check}: {rule})"] = rule
    return results


def compare(
    new: Statistics, old: Statistics | None, names: tuple[Collection[str], Collection[str]] | None
) -> Iterator[Violation]:
    """The violations of a new version against the last accepted one.

    Args:
        old: of the last accepted version; None: this is the first one, which is compared with a version without
            conflicts, duplicates and empty rows.
        names: labels of all splits of the task, in the last version and in this one; None: the labels are intervals of
            numbers, and a new one is not a violation.
    """
    from scipy.stats import hypergeom

    for check, key, allowed, what in _SHARES:
        count, rows = new[key], new["rows"] + new["empty"]
        before, earlier = (0, 1) if old is None else (old[key], old["rows"] + old["empty"])
        share, was = count / max(rows, 1), before / max(earlier, 1)
        if share - was > allowed:
            text = f"{share:.1%} {what}, {'the first version' if old is None else f'{was:.1%} before'}"
            # One row is a large share of a small split: one-sided exact test of Fisher.
            by_chance = hypergeom.sf(count - 1, rows + earlier, count + before, rows) > ERROR
            noted = old is not None and bool(by_chance)
            yield check, f"{text}; allowed increase {allowed:.1%}", new["positions"].get(key, ()), noted
    if old is None:
        return
    if new["rows"] < (1 - MOST_LOSS) * old["rows"]:
        yield "rows", f"{new['rows']:,} rows, {old['rows']:,} before; allowed loss {MOST_LOSS:.0%}", (), False
    if new["columns"] and (missing := [name for name in old["columns"] if name not in new["columns"]]):
        yield "columns", f"column {listed(missing, _LISTED)} is missing", (), False
    labels, former = new["classes"], old["classes"]
    if names is not None and labels and former:
        # With an expected count of m, a label is absent by chance with probability exp(-m).
        least = -math.log(ERROR) * sum(former.values()) / sum(labels.values())
        gone = [name for name, count in former.items() if name not in labels and count > least]
        # One that moves between the splits of a task is noted: with more rows, the split by hash gives a rare class its
        # first row of test.
        for what, changed, elsewhere, where in (
            ("new label", labels.keys() - former.keys(), names[0], "other splits had it before"),
            ("missing label", gone, names[1], "other splits have it"),
        ):
            for moved, more in ((False, ""), (True, f" in this split; {where}")):
                if changed_names := sorted(name for name in changed if (name in elsewhere) == moved):
                    yield "labels", f"{what} {listed(changed_names, _LISTED)}{more}", (), moved
    yield from distributions(new, old)


def distributions(new: Statistics, old: Statistics) -> Iterator[Violation]:
    """Shares whose total variation distance is larger than allowed, and not by chance. Another balance of the labels is
    noted where it comes from added rows, not from lost ones: whoever adds rows of rare classes intends it."""
    import pandas as pd

    for check, key, allowed, words in _DISTRIBUTIONS:
        counts = pd.DataFrame({"before": old[key], "now": new[key]}, dtype=float).fillna(0).sort_index()
        shares = counts / counts.sum()
        change = (shares.now - shares.before).abs()
        if (distance := change.sum() / 2) > allowed and (p := _probability(counts.to_numpy())) < ERROR:
            largest = shares.loc[change.sort_values(ascending=False, kind="stable").index[:_LISTED]]
            shown = [f"{_named(check, name)} {before:.1%} -> {now:.1%}" for name, before, now in largest.itertuples()]
            text = f"{words} changed: {', '.join(shown)}; distance {distance:.2f}, allowed {allowed:g}; p = {p:.1g}"
            name, before, now = next(largest.itertuples())
            positions = new["positions"].get(f"script:{name}", ()) if check == "language" and now > before else ()
            lost = (counts.before - counts.now).clip(0).sum() / counts.before.sum()
            yield check, text, positions, check == "class_balance" and lost < 0.5 * allowed


def _probability(counts: NDArray[np.float64]) -> float:
    """The p-value of a G-test of homogeneity of two samples, counts (categories, 2); categories with an expected count
    below 5 are added up."""
    from scipy.stats import chi2_contingency

    rare = (counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()).min(1) < _EXPECTED
    counts = np.vstack([counts[~rare], counts[rare].sum(0)])
    counts = counts[counts.sum(1) > 0]
    return (
        float(chi2_contingency(counts, correction=False, lambda_="log-likelihood").pvalue) if len(counts) > 1 else 1.0
    )


def _named(check: str, key: str) -> str:
    if check != "length":
        return f"{key!r}"
    low, high = (2 ** (int(key) / 2 + half) - 1 for half in (0, 0.5))
    return f"{math.ceil(low)} to {math.ceil(high) - 1} characters"
