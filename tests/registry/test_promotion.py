"""The promotion rule: a truth table, and its statistics compared with references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import f1_score

from components.registry.promotion import Scored, TestRows, decide, labels_needed, paired_gains, score_of
from components.scoring.classification import Classification
from components.scoring.tagging import Tagging
from components.settings.promote import PromotionRule

ROWS = 400
LABELS = np.arange(ROWS) % 4
RULE = PromotionRule(metric="accuracy", least_gain=0.0, confidence=0.95, resamples=500, latency_ms=50, slice_rows=50)
SCORING = Classification(list("abcd"), bins=1)


def statistics_of(
    predictions: np.ndarray, labels: np.ndarray = LABELS, scoring: Classification = SCORING
) -> sparse.csr_array:
    """Statistics of predictions with probability 1."""
    probabilities = np.eye(len(scoring.labels), dtype=np.float32)[predictions]
    return scoring.statistics([("text",)] * len(labels), labels[:, None], probabilities)


TEST = TestRows(
    digest="t1",
    scoring=SCORING,
    stand_in=statistics_of(np.zeros(ROWS, dtype=int)),
    slices=tuple("even" if row % 8 < 4 else "odd" for row in range(ROWS)),
)


def predictions(right: int, *, first: int = 0) -> np.ndarray:
    """Predictions that are correct on `right` consecutive rows from row `first` on, modulo N, and wrong elsewhere."""
    good = np.isin(np.arange(ROWS), (first + np.arange(right)) % ROWS)
    return np.where(good, LABELS, (LABELS + 1) % 4)


def scored(name: str, right: int | None, **changes: object) -> Scored:
    base = Scored(
        name=f"m/{name}",
        digest=f"digest-{name}",
        test_digest="t1",
        statistics=None if right is None else statistics_of(predictions(right)),
        latency_ms=10.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


CHAMPION = scored("champion", 280)


@pytest.mark.parametrize(
    ("candidate", "champion", "rule", "verdict", "reason"),
    [
        # The gain alone. 280 right of 400 is 0.70.
        (scored("much better", 340), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("much worse", 220), CHAMPION, {}, "reject", "not better by more than 0"),
        (scored("a little worse", 278), CHAMPION, {}, "reject", "gain -0.0050"),
        (scored("the same answers", 280), CHAMPION, {}, "reject", "gain +0.0000"),
        (
            scored("other errors", None, statistics=statistics_of(predictions(284, first=40))),
            CHAMPION,
            {},
            "inconclusive",
            "test labels would decide it",
        ),
        (scored("better, not by enough", 340), CHAMPION, {"least_gain": 0.2}, "reject", "not better by more than 0.2"),
        (scored("better by about the least", 340), CHAMPION, {"least_gain": 0.14}, "inconclusive", "would decide it"),
        (
            scored("better by exactly the least", 340),
            CHAMPION,
            {"least_gain": 0.15},
            "inconclusive",
            "exactly the least",
        ),
        # Latency and slices stop a better one.
        (scored("slow", 340, latency_ms=50.1), CHAMPION, {}, "reject", "takes 50.1 ms per text, more than 50 ms"),
        (scored("at the bound", 340, latency_ms=50.0), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("unmeasured", 340, latency_ms=None), CHAMPION, {}, "reject", "latency was not measured"),
        (
            scored("unmeasured, no bound", 340, latency_ms=None),
            CHAMPION,
            {"latency_ms": None},
            "promote",
            "gain +0.1500",
        ),
        # No champion yet: the most frequent class (0.25 here) stands in for it.
        (scored("first", 280), None, {}, "promote", "most frequent class: gain +0.4500"),
        (scored("first, poor", 60), None, {}, "reject", "gain -0.1000"),
        (scored("first, doubtful", 104), None, {}, "inconclusive", "would decide it"),
        (scored("first, slow", 280, latency_ms=80.0), None, {}, "reject", "takes 80.0 ms"),
        (scored("first, below the least gain", 280), None, {"least_gain": 0.9}, "promote", "gain +0.4500"),
        # Missing or incomparable predictions.
        (scored("unscored", None, problem="file gone"), CHAMPION, {}, "reject", "has no accuracy: file gone"),
        (scored("unscored", None, problem="file gone"), None, {}, "reject", "has no accuracy: file gone"),
        (scored("other test", 340, test_digest="t0"), CHAMPION, {}, "reject", "scored on test version t0, not t1"),
        (scored("good", 340), scored("champion", None, problem="no weights"), {}, "inconclusive", "no weights"),
        (scored("good", 340), scored("champion", 280, test_digest="t0"), {}, "inconclusive", "test version t0, not t1"),
        (scored("slow", 340, latency_ms=90.0), scored("champion", None), {}, "reject", "takes 90.0 ms"),
        # The same model, and a rolled-back one.
        (
            scored("twin", 340, digest="digest-champion"),
            CHAMPION,
            {},
            "unchanged",
            "m/twin has the content of m/champion",
        ),
        (
            scored("twin", None, digest="digest-champion"),
            CHAMPION,
            {},
            "unchanged",
            "m/twin has the content of m/champion",
        ),
        (CHAMPION, CHAMPION, {}, "unchanged", "m/champion is already the champion"),
        (scored("rolled back", 340, rolled_back=True), CHAMPION, {}, "reject", "was rolled back"),
        (scored("rolled back", 340, rolled_back=True), None, {}, "reject", "was rolled back"),
    ],
    ids=lambda value: value.name if isinstance(value, Scored) else "",
)
def test_truth_table(
    candidate: Scored, champion: Scored | None, rule: dict[str, float], verdict: str, reason: str
) -> None:
    decision = decide(candidate, champion, RULE.model_copy(update=rule), rows=TEST)

    assert decision.verdict == verdict
    assert any(reason in line for line in decision.reasons), decision.reasons


def test_the_better_model_wins_in_either_role() -> None:
    better, worse = scored("better", 340), scored("worse", 280)

    assert decide(better, worse, RULE, rows=TEST).verdict == "promote"
    assert decide(worse, better, RULE, rows=TEST).verdict == "reject"


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


def test_an_inconclusive_verdict_names_the_number_of_labels_needed() -> None:
    candidate = scored("candidate", None, statistics=statistics_of(predictions(284, first=40)))
    decision = decide(candidate, CHAMPION, RULE.model_copy(update={"resamples": 8000}), rows=TEST)

    # Correct on rows 40-323 against rows 0-279: 44 gained, 40 lost, gain 0.01; variance of one row 84/400 - 0.01 ** 2.
    by_hand = ((1.6449 + 0.8416) / 0.01) ** 2 * (84 / 400 - 0.0001)
    assert decision.gain == pytest.approx(0.01)
    assert decision.labels_needed == pytest.approx(by_hand, rel=0.1)
    assert decision.reasons[0].startswith(f"{decision.labels_needed} test labels would decide it with 80% power")


def test_labels_needed_is_the_sample_size_of_a_one_sided_z_test() -> None:
    # Std per row 0.5, gain 0.05 above the least gain: (2.48647 * 0.5 / 0.05) ** 2 = 618.26.
    assert labels_needed(0.07, 0.05, 100, least_gain=0.02, confidence=0.95) == 619
    assert labels_needed(-0.03, 0.05, 100, least_gain=0.02, confidence=0.95) == 619
    assert labels_needed(0.02, 0.05, 100, least_gain=0.02, confidence=0.95) is None
    assert labels_needed(0.5, 0.01, 100, least_gain=0.0, confidence=0.95) == 101


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_the_bootstrap_equals_resampling_of_rows(metric: str) -> None:
    generator = np.random.default_rng(1)
    scoring = Classification(list("abc"), bins=1)
    labels = generator.integers(0, 3, 120)
    champion = np.where(generator.random(120) < 0.6, labels, 0)
    candidate = np.where(generator.random(120) < 0.7, labels, 1)

    def score(labels: np.ndarray, predictions: np.ndarray) -> float:
        if metric == "accuracy":
            return float((labels == predictions).mean())
        return float(f1_score(labels, predictions, average="macro", labels=np.unique(labels)))

    before, after = statistics_of(champion, labels, scoring), statistics_of(candidate, labels, scoring)
    gains = paired_gains(before, after, scoring=scoring, metric=metric, resamples=4000, seed=0)
    rows = [generator.integers(0, 120, 120) for _ in range(500)]
    by_rows = [score(labels[sample], candidate[sample]) - score(labels[sample], champion[sample]) for sample in rows]

    assert score_of(after, scoring, metric=metric) == pytest.approx(score(labels, candidate))
    assert gains.mean() == pytest.approx(np.mean(by_rows), abs=0.01)
    assert gains.std() == pytest.approx(np.std(by_rows), rel=0.1)
    assert np.array_equal(gains, paired_gains(before, after, scoring=scoring, metric=metric, resamples=4000, seed=0))


def test_a_rule_without_a_metric_uses_the_primary_metric() -> None:
    decision = decide(scored("better", 340), CHAMPION, RULE.model_copy(update={"metric": None}), rows=TEST)

    assert (decision.verdict, decision.metric) == ("promote", "macro_f1")
    assert decision.reasons[0].startswith("macro_f1 0.85")


def test_span_f1_is_compared_for_tagging() -> None:
    scoring = Tagging(["B-X", "I-X", "O"])
    fields, right, none = [("one", "two")] * 60, [np.array([0.0, 1.0])] * 60, [np.array([2.0, 2.0])] * 60
    some = [answer if row % 2 else nothing for row, (answer, nothing) in enumerate(zip(right, none, strict=True))]
    rows = TestRows("t1", scoring, scoring.statistics(fields, right, scoring.constant(right)))
    candidate, champion = (
        Scored(name, name, "t1", scoring.statistics(fields, right, answers), 1.0)
        for name, answers in (("candidate", right), ("champion", some))
    )
    rule = RULE.model_copy(update={"metric": None})

    decision = decide(candidate, champion, rule, rows=rows)
    # Half of the spans are found and no others: F1 is 2 * 30 / (30 + 60).
    assert (decision.verdict, decision.metric, decision.champion_score) == ("promote", "span_f1", pytest.approx(2 / 3))
    assert decide(candidate, None, rule, rows=rows).against == "most frequent tag"


def test_different_numbers_of_rows_are_a_defect() -> None:
    short = scored("short", None, statistics=statistics_of(np.array([0, 1, 2]), np.array([0, 1, 2])))
    with pytest.raises(ValueError, match="400 rows, 3 and 400 predictions"):
        decide(short, CHAMPION, RULE, rows=TEST)
