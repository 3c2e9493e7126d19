"""The promotion rule: a truth table, metrics, modes, and baselines."""

from dataclasses import replace

import numpy as np
import pytest

from components.data.tasks.kinds.numbers import Regression
from components.registry.decide import Scored, TestRows, decide
from components.settings.registry import PromotionRule
from tests.registry.rule import CHAMPION, FAST, ROWS, TEST, answers, decided, run_of, scored, statistics_of

OTHER = run_of(284, first=40)
TOO_SLOW = "of a processor per text, more than promote.latency_ms: 50"
NOT_INFERIOR = {"mode": "non_inferiority", "margin": 0.5}


@pytest.mark.parametrize(
    ("candidate", "champion", "rule", "verdict", "reason"),
    [
        # The gain alone. 280 right of 400 is 0.70.
        (scored("much better", 340), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("much worse", 220), CHAMPION, {}, "reject", "not better"),
        (scored("a little worse", 278), CHAMPION, {}, "inconclusive", "the smallest gain that these test rows detect"),
        (scored("the same answers", 280), CHAMPION, {}, "reject", "gain +0.0000"),
        (scored("other errors", None, statistics=OTHER), CHAMPION, {}, "inconclusive", "test labels would decide it"),
        (scored("not by enough", 340), CHAMPION, {"least_gain": 0.2}, "reject", "not better by more than 0.2"),
        (scored("by about the least", 340), CHAMPION, {"least_gain": 0.14}, "inconclusive", "would decide it"),
        (scored("by the least", 340), CHAMPION, {"least_gain": 0.15}, "inconclusive", "detect with 80% power is +0."),
        # Latency and slices stop a better one.
        (scored("slow", 340, latency=replace(FAST, median=75.1)), CHAMPION, {}, "reject", f"takes 75.1 ms {TOO_SLOW}"),
        (scored("warned", 340, latency=replace(FAST, median=75.0)), CHAMPION, {}, "promote", "warning: m/warned takes"),
        (scored("at the bound", 340, latency=replace(FAST, median=50.0)), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("unmeasured", 340, latency=None), CHAMPION, {}, "reject", "latency was not measured"),
        (scored("no bound", 340, latency=None), CHAMPION, {"latency_ms": None}, "promote", "gain +0.1500"),
        # Without a champion and a baseline, the most frequent class (0.25 here) is compared with.
        (scored("first", 280), None, {}, "promote", "most frequent class, gain +0.4500"),
        (scored("first, poor", 60), None, {}, "reject", "gain -0.1000"),
        (scored("first, doubtful", 104), None, {}, "inconclusive", "test labels would decide it"),
        (scored("first, slow", 280, latency=replace(FAST, median=80.0)), None, {}, "reject", "takes 80.0 ms"),
        (scored("first, below the least gain", 280), None, {"least_gain": 0.9}, "promote", "gain +0.4500"),
        (scored("first, other mode", 60), None, NOT_INFERIOR, "reject", "not better"),
        # Missing or incomparable predictions.
        (scored("unscored", None, problem="file gone"), CHAMPION, {}, "reject", "has no accuracy: file gone"),
        (scored("unscored", None, problem="file gone"), None, {}, "reject", "has no accuracy: file gone"),
        (scored("good", 340), scored("champion", None, problem="no weights"), {}, "inconclusive", "no weights"),
        (
            scored("slow", 340, latency=replace(FAST, median=90.0)),
            scored("champion", None),
            {},
            "reject",
            "takes 90.0 ms",
        ),
        # The same model, and a rolled-back one.
        *(
            (scored("twin", right, digest="digest-champion"), CHAMPION, {}, "unchanged", "twin has the content of m/ch")
            for right in (340, None)
        ),
        (CHAMPION, CHAMPION, {}, "unchanged", "m/champion is already the champion"),
        *(
            (scored("rolled back", 340, rolled_back=True), champion, {}, "reject", "was rolled back")
            for champion in (CHAMPION, None)
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Scored) else "",
)
def test_truth_table(candidate, champion, rule, verdict, reason):
    decision = decided(candidate, champion, **rule)

    assert decision.verdict == verdict
    assert any(reason in line for line in decision.reasons), decision.reasons
    assert any("warning" in line for line in decision.reasons) == reason.startswith("warning")


def test_a_rule_without_a_metric_uses_the_primary_metric():
    decision = decided(scored("better", 340), metric=None)

    assert (decision.verdict, decision.metric) == ("promote", "macro_f1")
    assert decision.reasons[0].startswith("macro F1 0.85")


def test_different_numbers_of_rows_are_a_defect():
    short = scored("short", None, statistics=statistics_of(np.array([0, 1, 2]), np.array([0, 1, 2])))
    with pytest.raises(ValueError, match="400 rows, 3 and 400 predictions"):
        decided(short)


def test_non_inferiority_promotes_an_equal_model():
    equal = scored("equal", None, statistics=run_of(280, first=4))
    rule = {"mode": "non_inferiority", "margin": 0.03}

    assert decided(equal).verdict != "promote"
    decision = decided(equal, **rule)
    assert (decision.verdict, decision.mode) == ("promote", "non_inferiority")
    assert decision.low > -0.03

    worse = decided(scored("worse", 240), **rule)
    assert (worse.verdict, worse.reasons[0]) == ("reject", "worse by more than the margin of 0.03")
    narrow = decided(equal, mode="non_inferiority", margin=0.005)
    assert narrow.verdict == "inconclusive"
    assert narrow.reasons[0].startswith(
        "a loss of less than 0.005 is shown with 80% power if the true gain is at least +"
    )


def test_latency_promotes_an_equal_model_that_is_faster():
    rule = {"mode": "latency", "margin": 0.03}
    statistics = run_of(280, first=4)
    fast = replace(FAST, median=7.0, rounds=(7.0, 7.1, 6.9, 7.0, 7.2))

    def of(latency):
        decision = decided(scored("c", None, statistics=statistics, latency=latency), latency_ms=None, **rule)
        return decision.verdict, decision.reasons[0]

    assert of(fast) == ("promote", "7.00 ms of a processor per text against 10.00 ms: at least 28% faster")
    assert of(replace(FAST, median=9.9, rounds=(9.8, 10.0, 9.9, 9.9, 10.1)))[0] == "reject"
    assert of(FAST) == (
        "reject",
        "10.00 ms of a processor per text against 10.00 ms: not significantly faster by at least 5%",
    )
    verdict, reason = of(replace(fast, conditions="100 rows, another"))
    assert verdict == "inconclusive"
    assert "measured under different conditions (100 rows, another; 100 rows, a processor" in reason
    assert of(None) == ("inconclusive", "the latencies of m/c and m/champion were not both measured")
    # A faster model that is worse is not promoted.
    worse = decided(scored("worse", 200, latency=fast), **rule)
    assert worse.verdict == "reject"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"margin": 0.02}, "key margin has no effect in mode superiority"),
        ({"mode": "non_inferiority", "least_gain": 0.02}, "key least_gain has no effect in mode non_inferiority"),
        ({"mode": "equality"}, "superiority"),
        ({"slices": {"a": 0.0}}, "greater than 0"),
    ],
)
def test_settings_without_effect_are_errors(keys, message):
    with pytest.raises(ValueError, match=message):
        PromotionRule.model_validate(keys)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_score_that_is_not_finite_promotes_nothing(bad):
    scoring, fields = Regression(), [("text",)] * 50
    targets = [np.asarray([float(row)]) for row in range(50)]
    answers = [target + 1.0 for target in targets]
    broken = [np.asarray([bad]), *answers[1:]]
    rows = TestRows("t1", scoring, scoring.statistics(fields, targets, scoring.constant(targets)))

    def model(name, result):
        return Scored(name, name, scoring.statistics(fields, targets, result))

    decision = decide(model("m/2", broken), model("m/1", answers), PromotionRule(), rows=rows)
    assert (decision.verdict, decision.gain) == ("reject", None)
    assert decision.reasons[0].startswith("m/2: R² is ")
    assert decide(model("m/2", broken), None, PromotionRule(), rows=rows).verdict == "reject"
    decision = decide(model("m/2", answers), model("m/1", broken), PromotionRule(), rows=rows)
    assert decision.verdict == "inconclusive" and decision.reasons[0].startswith("m/1: R² is ")


EVERY = np.arange(ROWS)
EVEN = np.array([name == "even" for name in TEST.slices])


def compared(candidate, champion, slices=TEST.slices, *, clusters=None, named=None, **rule):
    """The decision on a candidate and a champion that are correct on these rows, (N,) of bool."""
    pair = (scored(name, None, statistics=answers(right)) for name, right in (("a", candidate), ("b", champion)))
    return decided(*pair, rows=replace(TEST, slices=slices, clusters=clusters), slices=named or {}, **rule)


def test_a_significant_slice_loss_rejects_a_better_model():
    better = ~np.isin(EVERY, np.flatnonzero(EVEN)[:11])  # 11 of 200 rows lost: 0.055
    rejected = compared(better, EVEN)
    assert rejected.verdict == "reject"
    assert rejected.reasons[0] == "slice 'even' (200 rows) falls from 1.000 to 0.945, more than 0.05"
    actual = [(change.name, change.rows, change.candidate) for change in rejected.slices]
    assert actual == [("even", 200, 0.945), ("odd", 200, 1.0)]
    for changes in ({"largest_slice_loss": 0.06}, {"slice_rows": 201}, {"slices": ()}):
        assert compared(better, EVEN, **changes).verdict == "promote"


def test_an_insignificant_slice_loss_is_only_a_reason():
    slices = tuple("small" if row < 50 else "large" for row in range(ROWS))
    better = (EVERY < 10) | (EVERY >= 18)
    decision = compared(better, (EVERY >= 5) & (EVERY < 50), slices)  # 5 rows gained and 8 lost of 50: 0.06
    assert decision.verdict == "promote"
    assert decision.reasons[-1] == "slice 'small' (50 rows) falls from 0.900 to 0.840, which may be chance"
    decision = compared(better, EVERY < 50, slices)  # 8 lost and none gained: 0.16, beyond chance
    assert decision.verdict == "reject"
    assert decision.reasons[0] == "slice 'small' (50 rows) falls from 1.000 to 0.840, more than 0.05"


def test_a_named_slice_has_a_non_inferiority_bound_with_its_power():
    champion = EVERY % 5 < 3
    better = ~EVEN | np.roll(champion, 8)  # much better on odd, and the same number of errors elsewhere on even
    assert compared(better, champion).verdict == "promote"
    decision = compared(better, champion, named={"even": 0.02})
    assert decision.verdict == "inconclusive"
    (even,) = (change for change in decision.slices if change.name == "even")
    assert (even.named, even.margin) == (True, 0.02) and even.power is not None
    assert decision.reasons[0].startswith("slice 'even' (200 rows) ")
    expected = f"a loss of more than 0.02 is not excluded (lower bound {even.low:+.4f}; power "
    assert expected in decision.reasons[0]
    assert compared(better, champion, named={"even": 0.4}).verdict == "promote"
    lost = compared(~EVEN, champion, named={"even": 0.4}, largest_slice_loss=1.0)
    assert lost.verdict == "reject"
    assert any("falls from 0.600 to 0.000, more than 0.4" in reason for reason in lost.reasons)


def test_few_rows_of_a_named_slice_exclude_no_loss():
    """Both models are right on its rows, so that the estimate of the variance is 0."""
    for count, verdict in ((5, "promote"), (4, "inconclusive")):
        slices = tuple("key" if row < count else None for row in range(ROWS))
        decision = compared(EVERY >= 0, EVERY < 100, slices, named={"key": 0.02})
        assert decision.verdict == verdict
    assert "a loss of more than 0.02 is not excluded" in decision.reasons[0] and "power 0%" in decision.reasons[0]


@pytest.mark.parametrize(("clusters", "verdict"), [(5, "inconclusive"), (8, "promote")])
def test_a_gain_that_is_equal_in_few_clusters_is_no_proof(clusters, verdict):
    assert compared(EVERY >= 0, EVERY % 2 > 0, (), clusters=EVERY // (ROWS // clusters)).verdict == verdict


@pytest.mark.parametrize("clusters", [1, 2, 4, 10])
def test_a_named_slice_is_judged_by_its_clusters(clusters):
    """200 rows of fewer than five clusters exclude no loss, whatever the variance between rows is."""
    slices = tuple("key" if row < 200 else None for row in range(ROWS))
    numbers = np.where(EVERY < 200, EVERY % clusters, clusters + EVERY % 40)
    decision = compared(EVERY >= 0, EVERY % 3 > 0, slices, named={"key": 0.02}, clusters=numbers)
    assert decision.verdict == ("promote" if clusters == 10 else "inconclusive")
    (change,) = (change for change in decision.slices if change.named)
    assert (change.units, change.shown) == (clusters, clusters == 10)
    if clusters < 5:
        assert f"it has {clusters} of the 5 clusters that the variance needs, or set" in decision.reasons[0]
