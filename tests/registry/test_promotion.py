"""The promotion rule: a truth table, clusters, training noise, repeated use of the test rows, and modes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from components.registry.comparison import TrainingNoise, Variance
from components.registry.noise import pooled
from components.registry.promotion import REFRESH, decide
from components.registry.scored import Latency, Scored, TestRows
from components.scoring.classification import Classification
from components.scoring.tagging import Tagging
from components.settings.promote import PromotionRule

ROWS = 400
LABELS = np.arange(ROWS) % 4
RULE = PromotionRule(metric="accuracy", confidence=0.95, training_noise=False, latency_ms=50, slice_rows=50)
FAST = Latency(10.0, 20.0, (10.0, 10.1, 9.9, 10.0, 10.0), "100 rows, 2 threads, a processor")
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
        latency=FAST,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


CHAMPION = scored("champion", 280)


@pytest.mark.parametrize(
    ("candidate", "champion", "rule", "verdict", "reason"),
    [
        # The gain alone. 280 right of 400 is 0.70.
        (scored("much better", 340), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("much worse", 220), CHAMPION, {}, "reject", "not better by more than 0"),
        (scored("a little worse", 278), CHAMPION, {}, "inconclusive", "the smallest gain that these test rows detect"),
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
            "the smallest gain that these test rows detect with 80% power is +0.",
        ),
        # Latency and slices stop a better one.
        (
            scored("slow", 340, latency=replace(FAST, p50=50.1)),
            CHAMPION,
            {},
            "reject",
            "takes 50.1 ms per text, more than 50 ms",
        ),
        (scored("at the bound", 340, latency=replace(FAST, p50=50.0)), CHAMPION, {}, "promote", "gain +0.1500"),
        (scored("unmeasured", 340, latency=None), CHAMPION, {}, "reject", "latency was not measured"),
        (
            scored("unmeasured, no bound", 340, latency=None),
            CHAMPION,
            {"latency_ms": None},
            "promote",
            "gain +0.1500",
        ),
        # Without a champion and a baseline, the most frequent class (0.25 here) is compared with.
        (scored("first", 280), None, {}, "promote", "most frequent class: gain +0.4500"),
        (scored("first, poor", 60), None, {}, "reject", "gain -0.1000"),
        (scored("first, doubtful", 104), None, {}, "inconclusive", "test labels would decide it"),
        (scored("first, slow", 280, latency=replace(FAST, p50=80.0)), None, {}, "reject", "takes 80.0 ms"),
        (scored("first, below the least gain", 280), None, {"least_gain": 0.9}, "promote", "gain +0.4500"),
        (
            scored("first, other mode", 60),
            None,
            {"mode": "non_inferiority", "margin": 0.5},
            "reject",
            "not better by more",
        ),
        # Missing or incomparable predictions.
        (scored("unscored", None, problem="file gone"), CHAMPION, {}, "reject", "has no accuracy: file gone"),
        (scored("unscored", None, problem="file gone"), None, {}, "reject", "has no accuracy: file gone"),
        (scored("other test", 340, test_digest="t0"), CHAMPION, {}, "reject", "scored on test version t0, not t1"),
        (scored("good", 340), scored("champion", None, problem="no weights"), {}, "inconclusive", "no weights"),
        (scored("good", 340), scored("champion", 280, test_digest="t0"), {}, "inconclusive", "test version t0, not t1"),
        (scored("slow", 340, latency=replace(FAST, p50=90.0)), scored("champion", None), {}, "reject", "takes 90.0 ms"),
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
        Scored(name, name, "t1", scoring.statistics(fields, right, answers), FAST)
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


def clustered(seed: int, *, groups: int = 40, size: int = 10, spread: float = 0.3) -> tuple[TestRows, list[Scored]]:
    """Rows in clusters, and two systems of the same expected accuracy whose errors depend on the cluster."""
    generator = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(groups), size)
    labels = generator.integers(0, 4, groups * size)
    difficulty = generator.normal(size=groups * size)
    systems = []
    for name in ("candidate", "champion"):
        noise = spread * generator.normal(size=groups)[cluster] + 0.2 * generator.normal(size=groups * size)
        guesses = np.where(difficulty + noise > -0.5, labels, (labels + 1) % 4)
        systems.append(scored(name, None, statistics=statistics_of(guesses, labels)))
    rows = TestRows(
        "t1", SCORING, statistics_of(np.zeros(len(labels), dtype=int), labels), groups=[f"g{name}" for name in cluster]
    )
    return rows, systems


def test_rows_of_one_cluster_are_not_independent() -> None:
    verdicts = {"clusters": 0, "rows": 0}
    for seed in range(300):
        rows, systems = clustered(seed)
        for units, sample in (("clusters", rows), ("rows", replace(rows, groups=None))):
            decision = decide(*systems, RULE, rows=sample)
            assert (decision.units, decision.count) == (units, 40 if units == "clusters" else 400)
            verdicts[units] += decision.verdict == "promote"

    # Nominal: 2.5% of 300 are 7.5; the bounds below are exceeded with probability under 0.001.
    assert verdicts["clusters"] <= 17
    assert verdicts["rows"] >= 25


def test_few_clusters_are_inconclusive() -> None:
    better, champion = scored("better", 400), scored("champion", 0)
    four = [f"g{row % 4}" for row in range(ROWS)]
    decision = decide(better, champion, RULE, rows=replace(TEST, groups=four))
    assert decision.verdict == "inconclusive"
    assert decision.reasons[0].startswith("the test rows come from 4 cluster(s), and the variance between clusters")
    assert (decision.gain, decision.low, decision.high, decision.detectable) == (1.0, None, None, None)

    one = [f"g{max(row - 390, 0)}" for row in range(ROWS)]  # 391 rows in one of ten clusters
    decision = decide(better, champion, RULE, rows=replace(TEST, groups=one))
    assert decision.verdict == "inconclusive"
    assert decision.reasons[0].startswith("one cluster holds 391 of 400 test rows")

    # A row without a group is a cluster of its own; without any group, rows are independent.
    assert decide(better, champion, RULE, rows=replace(TEST, groups=[*four[:-1], None])).verdict == "promote"
    assert decide(better, champion, RULE, rows=replace(TEST, groups=[None] * ROWS)).units == "rows"


def test_an_inconclusive_verdict_names_the_detectable_effect_and_the_labels_needed() -> None:
    candidate = scored("candidate", None, statistics=statistics_of(predictions(284, first=40)))
    decision = decide(candidate, CHAMPION, RULE, rows=TEST)

    # Correct on rows 40-323 against rows 0-279: 44 gained, 40 lost, gain 0.01; variance of one row 84/400 - 0.01 ** 2.
    assert decision.gain == pytest.approx(0.01)
    std = np.sqrt((84 / 400 - 0.0001) / 400)
    assert decision.detectable == pytest.approx((1.96 + 0.8416) * std, rel=0.02)
    assert decision.labels_needed == pytest.approx(((1.96 + 0.8416) / 0.01) ** 2 * (84 / 400 - 0.0001), rel=0.02)
    assert decision.reasons[0] == (
        f"the smallest gain that these test rows detect with 80% power is +{decision.detectable:.4f}; "
        f"{decision.labels_needed} test labels would decide it at this gain (now 400)"
    )

    # In clusters, the number is one of clusters.
    rows = replace(TEST, groups=[f"g{row // 8}" for row in range(ROWS)])
    decision = decide(scored("candidate", 285), CHAMPION, RULE, rows=rows)
    assert decision.verdict == "inconclusive"
    assert decision.labels_needed is not None
    assert (
        f"{decision.labels_needed} clusters with about {8 * decision.labels_needed} test labels" in decision.reasons[0]
    )

    # Of a negative gain no number of labels is named.
    decision = decide(scored("worse", 278), CHAMPION, RULE, rows=TEST)
    assert (decision.verdict, decision.labels_needed) == ("inconclusive", None)
    assert not any("labels" in reason for reason in decision.reasons)


def test_every_use_of_the_test_rows_costs_error() -> None:
    candidate = scored("candidate", 296)
    first, fifth = (decide(candidate, CHAMPION, RULE, rows=TEST, test_uses=use) for use in (1, 5))
    thirtieth = decide(candidate, CHAMPION, RULE, rows=TEST, test_uses=30)

    assert (first.verdict, first.test_uses, first.alpha) == ("promote", 1, pytest.approx(0.025))
    assert (fifth.test_uses, fifth.alpha) == (5, pytest.approx(0.05 / 30))
    assert first.low > fifth.low > thirtieth.low  # type: ignore[operator]
    assert thirtieth.verdict == "inconclusive"
    assert (first.refresh, fifth.refresh, thirtieth.refresh) == (False, False, True)
    assert thirtieth.detectable > REFRESH * first.detectable  # type: ignore[operator]
    assert thirtieth.reasons[-1].startswith("comparison 30 on these test rows: the smallest gain that is detected grew")
    assert not any("comparison" in reason for reason in first.reasons)


NOISE = TrainingNoise(Variance(0.0176**2, 4), "6 runs of 2 versions (ulmfit-adapted, budget 20)", "ulmfit")


def test_training_noise_is_not_progress() -> None:
    """The case of 30 nonsense documents: 0.6551 against 0.6427, promoted by the bootstrap over rows alone."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 2619)
    order = generator.permutation(2619)
    right = [
        np.isin(np.arange(2619), order[: round(0.6427 * 2619)]),
        np.isin(np.arange(2619), order[: round(0.6551 * 2619)]),
    ]
    champion, candidate = (
        scored(name, None, statistics=statistics_of(np.where(good, labels, (labels + 1) % 4), labels), noise=NOISE)
        for name, good in zip(("champion", "candidate"), right, strict=True)
    )
    rows = TestRows("t1", SCORING, statistics_of(np.zeros(2619, dtype=int), labels))

    assert decide(candidate, champion, RULE, rows=rows).verdict == "promote"
    decision = decide(candidate, champion, RULE.model_copy(update={"training_noise": True}), rows=rows)
    assert decision.gain == pytest.approx(0.0126, abs=1e-4)
    assert decision.verdict == "inconclusive"
    assert decision.training_std == pytest.approx(0.0176 * np.sqrt(2))
    assert "training noise exceeds the gain, so no number of test labels would decide it" in decision.reasons[0]
    assert decision.reasons[2] == f"training noise: std 0.0249 of the gain, from {NOISE.source}"


def test_unknown_training_noise_is_assumed_and_said() -> None:
    rule = RULE.model_copy(update={"training_noise": True})
    decision = decide(scored("candidate", 300), replace(CHAMPION, noise=NOISE), rule, rows=TEST)

    assert decision.training_std == pytest.approx(np.hypot(0.02, 0.0176))
    assert decision.reasons[-1] == (
        "training noise: std 0.0266 of the gain, from 6 runs of 2 versions (ulmfit-adapted, budget 20); it is unknown "
        "for m/candidate (one seed, no other version of the recipe), a std of 0.02 is assumed"
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_retrainings_of_one_recipe_promote_at_most_five_times(seed: int) -> None:
    """Seeds of the built-in task: 88 clusters, std 0.0176 between runs, three seeds a night."""
    generator = np.random.default_rng(seed)
    sizes = np.maximum(1, (218 * np.exp(-0.06 * np.arange(88))).astype(int))
    cluster = np.repeat(np.arange(88), sizes)
    labels = generator.integers(0, 4, len(cluster))
    difficulty = generator.normal(size=len(cluster)) + 0.3 * generator.normal(size=88)[cluster]

    def run() -> sparse.csr_array:
        level = 0.35 + 0.047 * generator.normal()  # std of the accuracy: 0.0176
        noise = 0.2 * generator.normal(size=88)[cluster] + 0.5 * generator.normal(size=len(cluster))
        return statistics_of(np.where(difficulty + noise + level > 0, labels, (labels + 1) % 4), labels)

    rows = TestRows("t1", SCORING, statistics_of(labels * 0, labels), groups=[f"g{name}" for name in cluster])
    rule = RULE.model_copy(update={"training_noise": True})
    samples: list[list[float]] = []
    champion, promotions = None, 0
    for night in range(101):
        seeds = [run() for _ in range(3)]
        samples.append([float(SCORING.scores(found.sum(0))["accuracy"]) for found in seeds])
        noise = TrainingNoise(pooled(samples), "past runs", "recipe")
        candidate = scored(f"night {night}", None, statistics=seeds[0], noise=noise)
        if champion is None:
            champion = candidate
            continue
        decision = decide(candidate, replace(champion, noise=noise), rule, rows=rows, test_uses=night)
        if decision.verdict == "promote":
            champion, promotions = candidate, promotions + 1

    assert np.sqrt(pooled(samples).value) == pytest.approx(0.018, abs=0.004)
    assert promotions <= 5


def test_non_inferiority_promotes_an_equal_model() -> None:
    equal = scored("equal", None, statistics=statistics_of(predictions(280, first=4)))
    rule = RULE.model_copy(update={"mode": "non_inferiority", "margin": 0.03})

    assert decide(equal, CHAMPION, RULE, rows=TEST).verdict != "promote"
    decision = decide(equal, CHAMPION, rule, rows=TEST)
    assert (decision.verdict, decision.mode) == ("promote", "non_inferiority")
    assert decision.low > -0.03  # type: ignore[operator]

    worse = decide(scored("worse", 240), CHAMPION, rule, rows=TEST)
    assert (worse.verdict, worse.reasons[0]) == ("reject", "worse by more than the margin of 0.03")
    narrow = decide(equal, CHAMPION, rule.model_copy(update={"margin": 0.005}), rows=TEST)
    assert narrow.verdict == "inconclusive"
    assert narrow.reasons[0].startswith(
        "a loss of less than 0.005 is shown with 80% power if the true gain is at least +"
    )


def test_latency_promotes_an_equal_model_that_is_faster() -> None:
    rule = RULE.model_copy(update={"mode": "latency", "margin": 0.03})
    statistics = statistics_of(predictions(280, first=4))
    fast = replace(FAST, p50=7.0, rounds=(7.0, 7.1, 6.9, 7.0, 7.2))

    def of(latency: Latency | None, **changes: object) -> tuple[str, str]:
        decision = decide(
            scored("c", None, statistics=statistics, latency=latency, **changes),
            CHAMPION,
            rule.model_copy(update={"latency_ms": None}),
            rows=TEST,
        )
        return decision.verdict, decision.reasons[0]

    assert of(fast) == ("promote", "7.00 ms per text against 10.00 ms: at least 28% faster")
    assert of(replace(FAST, p50=9.9, rounds=(9.8, 10.0, 9.9, 9.9, 10.1)))[0] == "reject"
    assert of(FAST) == ("reject", "10.00 ms per text against 10.00 ms: not significantly faster by at least 5%")
    verdict, reason = of(replace(fast, conditions="100 rows, 8 threads, another"))
    assert verdict == "inconclusive"
    assert "measured under different conditions (100 rows, 8 threads, another; 100 rows, 2 threads" in reason
    assert of(None) == ("inconclusive", "the latencies of m/c and m/champion were not both measured")
    # A faster model that is worse is not promoted.
    worse = decide(scored("worse", 200, latency=fast), CHAMPION, rule, rows=TEST)
    assert worse.verdict == "reject"


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


def test_the_first_champion_has_to_beat_the_best_baseline() -> None:
    first = scored("first", 280)
    better = replace(scored("tfidf", 340), name="baseline tfidf-words", digest="")
    weaker = replace(scored("tfidf", 220), name="baseline tfidf-words", digest="")

    assert decide(first, None, RULE, rows=TEST).verdict == "promote"  # against the most frequent class
    beaten = decide(first, None, RULE, rows=TEST, baseline=better)
    assert (beaten.verdict, beaten.against) == ("reject", "baseline tfidf-words")
    assert beaten.reasons[1].startswith("accuracy 0.7000 against 0.8500 of baseline tfidf-words: gain -0.1500")
    assert decide(first, None, RULE, rows=TEST, baseline=weaker).verdict == "promote"
    unread = replace(better, statistics=None, problem="no files")
    assert decide(first, None, RULE, rows=TEST, baseline=unread).verdict == "inconclusive"
    # With a champion the baseline decides nothing.
    assert decide(scored("c", 340), CHAMPION, RULE, rows=TEST, baseline=better).verdict == "promote"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"margin": 0.02}, "key margin has no effect in mode superiority"),
        ({"mode": "non_inferiority", "least_gain": 0.02}, "key least_gain has no effect in mode non_inferiority"),
        ({"mode": "equality"}, "superiority"),
        ({"slices": {"a": 0.0}}, "greater than 0"),
    ],
)
def test_settings_without_effect_are_errors(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromotionRule.model_validate(keys)
