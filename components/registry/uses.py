"""How often test rows have been used for decisions. The k-th comparison has the error `rule.error_of(k, budget)`, so
that the probability of any false promotion is bounded however many there are.

Test rows change: a nightly run adds some, labels are corrected. The count goes on unless more than half of the rows are
new since its first comparison. Then k begins at 1, with what the comparisons before have left of the error budget: the
rows that stayed have been used. Rows that are all new have a budget of their own.

Rows are recognised by a sketch (Broder 1997, bottom-k): the smallest `SKETCH` digests of the rows. Up to so many rows
it is exact; of more, the share of new rows is estimated with a standard error of at most 0.05.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from components.data.tasks.data import Fields

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
