"""The promotion rule on slices: losses beyond chance, and named slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from components.registry.promotion import decide
from tests.registry.rule import LABELS, ROWS, RULE, TEST, scored, statistics_of


def test_a_significant_slice_loss_rejects_a_better_model() -> None:
    even = np.array([name == "even" for name in TEST.slices or ()])
    champion = np.where(even, LABELS, (LABELS + 1) % 4)  # correct on even, wrong on odd
    lost = np.flatnonzero(even)[:11]  # 11 of 200 rows: 0.055
    candidate = LABELS.copy()
    candidate[lost] = (candidate[lost] + 1) % 4
    pair = (
        scored("candidate", None, statistics=statistics_of(candidate)),
        scored("champion", None, statistics=statistics_of(champion)),
    )

    rejected = decide(*pair, RULE, rows=TEST)
    assert rejected.verdict == "reject"
    assert rejected.reasons[0] == "slice 'even' (200 rows) falls from 1.000 to 0.945, more than 0.05"
    assert [(change.name, change.rows, change.candidate) for change in rejected.slices] == [
        ("even", 200, 0.945),
        ("odd", 200, 1.0),
    ]

    assert decide(*pair, RULE.model_copy(update={"largest_slice_loss": 0.06}), rows=TEST).verdict == "promote"
    assert decide(*pair, RULE.model_copy(update={"slice_rows": 201}), rows=TEST).verdict == "promote"
    assert decide(*pair, RULE, rows=replace(TEST, slices=None)).verdict == "promote"


def test_an_insignificant_slice_loss_is_only_a_reason() -> None:
    slices = tuple("small" if row < 50 else "large" for row in range(ROWS))
    champion, candidate = (np.where(np.arange(ROWS) < 50, LABELS, (LABELS + 1) % 4) for _ in range(2))
    candidate[50:] = LABELS[50:]
    champion[:5] = (LABELS[:5] + 1) % 4  # 5 rows gained and 8 lost of 50: 0.06
    candidate[10:18] = (LABELS[10:18] + 1) % 4
    pair = (
        scored("candidate", None, statistics=statistics_of(candidate)),
        scored("champion", None, statistics=statistics_of(champion)),
    )
    rows = replace(TEST, slices=slices)

    decision = decide(*pair, RULE, rows=rows)
    assert decision.verdict == "promote"
    assert decision.reasons[-1] == "slice 'small' (50 rows) falls from 0.900 to 0.840, which may be chance"

    champion[:5] = LABELS[:5]  # 8 lost and none gained: 0.16, beyond chance
    decision = decide(pair[0], scored("champion", None, statistics=statistics_of(champion)), RULE, rows=rows)
    assert decision.verdict == "reject"
    assert decision.reasons[0] == "slice 'small' (50 rows) falls from 1.000 to 0.840, more than 0.05"


def test_a_named_slice_has_a_non_inferiority_bound_with_its_power() -> None:
    champion, candidate = (np.where(np.arange(ROWS) % 5 < 3, LABELS, (LABELS + 1) % 4) for _ in range(2))
    odd = np.array([name == "odd" for name in TEST.slices or ()])
    candidate[odd] = LABELS[odd]  # much better on odd, and the same number of errors elsewhere on even
    even = np.flatnonzero(~odd)
    candidate[even] = np.roll(candidate == LABELS, 8)[even] * LABELS[even] + ~np.roll(candidate == LABELS, 8)[even] * (
        (LABELS[even] + 1) % 4
    )
    pair = (
        scored("candidate", None, statistics=statistics_of(candidate)),
        scored("champion", None, statistics=statistics_of(champion)),
    )
    assert decide(*pair, RULE, rows=TEST).verdict == "promote"

    decision = decide(*pair, RULE.model_copy(update={"slices": {"even": 0.02}}), rows=TEST)
    assert decision.verdict == "inconclusive"
    (even_change,) = (change for change in decision.slices if change.name == "even")
    assert (even_change.named, even_change.margin) == (True, 0.02)
    assert even_change.power is not None
    assert decision.reasons[0].startswith("slice 'even' (200 rows) ")
    assert (
        f"a loss of more than 0.02 is not excluded (lower bound {even_change.low:+.4f}; power " in decision.reasons[0]
    )

    assert decide(*pair, RULE.model_copy(update={"slices": {"even": 0.4}}), rows=TEST).verdict == "promote"
    candidate[even] = (LABELS[even] + 1) % 4
    pair = (scored("candidate", None, statistics=statistics_of(candidate)), pair[1])
    lost = decide(*pair, RULE.model_copy(update={"slices": {"even": 0.4}, "largest_slice_loss": 1.0}), rows=TEST)
    assert lost.verdict == "reject"
    assert any("falls from 0.600 to 0.000, more than 0.4" in reason for reason in lost.reasons)


def test_few_rows_of_a_named_slice_exclude_no_loss() -> None:
    """Both models are right on its rows, so that the estimate of the variance is 0."""
    champion, candidate = np.where(np.arange(ROWS) < 100, LABELS, (LABELS + 1) % 4), LABELS
    pair = (
        scored("candidate", None, statistics=statistics_of(candidate)),
        scored("champion", None, statistics=statistics_of(champion)),
    )
    rule = RULE.model_copy(update={"slices": {"key": 0.02}})
    for count, verdict in ((4, "inconclusive"), (5, "promote")):
        slices = tuple("key" if row < count else None for row in range(ROWS))
        decision = decide(*pair, rule, rows=replace(TEST, slices=slices))
        assert decision.verdict == verdict
    slices = tuple("key" if row < 4 else None for row in range(ROWS))
    decision = decide(*pair, rule, rows=replace(TEST, slices=slices))
    assert "a loss of more than 0.02 is not excluded" in decision.reasons[0] and "power 0%" in decision.reasons[0]
