"""Intervals of an evaluation on clustered test rows: agreement with the gate, coverage of clusters, pooling."""

from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.data.scoring.intervals import Interval, training_noise
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import Cell, Run, TestSplit, make_cells
from components.evaluation.compare import benefits, differences, label_efficiency, transfer
from components.registry.contest import scored_rows
from components.registry.decide import Scored, TestRows, decide
from components.settings.evaluate import EvaluateSettings
from components.settings.registry import PromotionRule

from .conftest import record_of

CLUSTERS, ROWS = 20, 10
LABELS = np.tile([0, 1], CLUSTERS * ROWS // 2)
SCORING = scoring_for("classification", ["no", "yes"])
SYSTEMS = {"ulmfit-scratch": ("ulmfit", "scratch"), "ulmfit-adapted": ("ulmfit", "adapted")}
SHARES = {"ulmfit-scratch": 0.6, "ulmfit-adapted": 0.75}
SETTINGS = EvaluateSettings()


def rows_of(copies: int = 1, *, clustered: bool = True, told_apart: bool = False) -> TestSplit:
    """Rows whose clusters have ten rows each, each row given several times; `told_apart`: by their texts."""
    rows = np.repeat(np.arange(len(LABELS)), copies)
    groups = [f"g{row // ROWS}" if clustered else None for row in rows]
    targets = [np.array([LABELS[row]], dtype=np.float64) for row in rows]
    facts: Any = SimpleNamespace(labels=["no", "yes"], kind="classification", digests={"test": "t"})
    texts = [(f"text {row * told_apart}",) for row in rows]
    return TestSplit(facts, Split(texts, targets, [None] * len(rows), groups=groups))


def runs(seeds: int, copies: int = 1, budgets: tuple[int, ...] = (5, 20)) -> list[Run]:
    """Runs that are right on whole halves of clusters more often than on single rows."""
    actual = []
    for system, (family, start) in SYSTEMS.items():
        for budget in budgets:
            for seed in range(seeds):
                generator = np.random.default_rng([seed, budget, start == "scratch"])
                right = generator.random(len(LABELS)) < SHARES[system] + budget / 200
                right &= np.repeat(generator.random(CLUSTERS) < 0.9, ROWS)
                guesses = np.repeat(np.where(right, LABELS, 1 - LABELS), copies)
                record = record_of(budget, seed, 2 * budget, [0.5])
                answers = list(np.eye(2, dtype=np.float32)[guesses])
                actual.append(Run(system, family, start, budget, seed, record, answers))
    return actual


def cells_of(seeds: int, copies: int = 1, *, clustered: bool = True) -> dict[tuple[str, int], Cell]:
    return make_cells(runs(seeds, copies), rows_of(copies, clustered=clustered), SETTINGS, scoring=SCORING)


def test_the_interval_of_two_runs_is_the_one_of_the_gate():
    cells, test = cells_of(1), rows_of()
    better, worse = (cells[system, 20] for system in ("ulmfit-adapted", "ulmfit-scratch"))
    compared = differences(cells)["20"]["ulmfit-scratch"]["ulmfit-adapted"]
    decision = decide(
        Scored("new", "a", better.rows[0]),
        Scored("old", "b", worse.rows[0]),
        PromotionRule(),
        rows=TestRows("t", SCORING, worse.rows[0], clusters=test.rows.clusters),
    )
    assert (decision.gain, decision.low, decision.high) == pytest.approx(
        (-compared["mean"], -compared["high"], -compared["low"])
    )


@pytest.mark.parametrize("seeds", [1, 3])
def test_every_interval_covers_clusters(seeds):
    """Copies of rows within their cluster change no interval; over rows, those intervals would be narrower."""

    def widths(copies, *, clustered=True):
        cells = cells_of(seeds, copies, clustered=clustered)
        split = rows_of(copies, clustered=clustered)
        rows = replace(
            split.rows, slices=["s" if row < len(split.rows) // 2 else None for row in range(len(split.rows))]
        )
        (compared,) = transfer(cells, SYSTEMS, TestSplit(split.facts, rows))["ulmfit"][1:]
        actual = {part["part"] + part["name"]: part["starts"]["adapted"]["difference"] for part in compared["parts"]}
        actual |= {row["benefit"]: row["difference"] for row in benefits(cells, SYSTEMS) if row["against"] == "labels"}
        actual["score"] = cells["ulmfit-adapted", 20].main.as_dict()
        return {name: interval["high"] - interval["low"] for name, interval in actual.items()}

    whole = widths(1)
    assert whole.keys() > {"all", "classno", "slices", "start", "slope", "asymptote", "score"}
    assert widths(3) == pytest.approx(whole)
    if seeds == 1:
        by_row = widths(1, clustered=False)
        assert all(by_row[name] < width for name, width in whole.items())


def test_the_noise_of_training_is_pooled_over_systems_and_the_number_of_labels_has_bounds():
    cells = cells_of(3)
    noise = cells["ulmfit-adapted", 20].scores.noise
    table = [cells[system, 20].scores.values[:, 0] for system in SYSTEMS]
    assert noise == training_noise(np.stack(table)) and noise is not None and noise.systems == 2
    assert cells["ulmfit-scratch", 20].scores.noise == noise != cells["ulmfit-scratch", 5].scores.noise

    needed = label_efficiency(cells, SYSTEMS)[0]["needs"]
    adapted = cells["ulmfit-adapted", 5].scores
    short = [cells["ulmfit-scratch", budget].scores.minus(adapted).interval() for budget in (5, 20)]
    assert short[0].low < short[0].mean < 0
    assert needed["low"] == 5.0 if short[0].high >= 0 else needed["low"] > 5.0
    assert needed["high"] is None or needed["high"] >= needed["low"]


def test_systems_without_common_seeds_are_not_compared_as_recipes():
    alone = [replace(run, seed=7) if run.system == "ulmfit-adapted" else run for run in runs(1)]
    cells = make_cells(alone, rows_of(), SETTINGS, scoring=SCORING)
    assert differences(cells) == {str(budget): {} for _, budget in dict.fromkeys(cells)}


@pytest.mark.parametrize(("systems", "clear"), [("ab", True), ("abcde", False)])
def test_marks_of_differences_are_corrected_for_the_number_of_pairs(systems: str, *, clear: bool) -> None:
    """A difference of 2.2 standard errors: beyond an interval of 95%, and within one of 99.5%, of ten pairs."""

    class Given:
        def minus(self, other: Any) -> Any:
            return self

        def interval(self, confidence: float = 0.95) -> Interval:
            half = NormalDist().inv_cdf((1 + confidence) / 2)
            return Interval(2.2, 2.2 - half, 2.2 + half)

    cells: Any = {(name, 5): SimpleNamespace(system=name, seeds=[0], scores=Given()) for name in systems}
    pair = differences(cells)["5"]["a"]["b"]
    assert pair["low"] == pytest.approx(0.24, abs=0.001) and pair["clear"] is clear


@pytest.mark.parametrize(
    ("texts", "groups", "units", "clusters"),
    [
        ("abc", None, None, None),
        ("aba", None, None, [0, 1, 0]),
        ("abcd", ["x", None, "x", None], None, [0, 1, 0, 2]),
        # Documents, or contexts of one document.
        ("abcde", None, [0, 0, 1, 2, 3], [0, 0, 1, 2, 3]),
        # Groups that are no units, because train has them too.
        ("abcde", ["x", "x", "y", None, "z"], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]),
    ],
)
def test_copies_groups_and_documents_are_clusters(texts, groups, units, clusters):
    split = Split(
        [(text,) for text in texts],
        [np.zeros(1)] * len(texts),
        [None] * len(texts),
        groups=groups or [],
        known_units=None if units is None else np.asarray(units),
    )
    actual = split.clusters
    assert (actual if actual is None else actual.tolist()) == clusters


def test_copies_in_test_change_neither_the_interval_nor_the_verdict():
    """Read three times, every row would count as three."""
    halves, verdicts = [], []
    for copies in (1, 3):
        test = rows_of(copies, clustered=False, told_apart=True)
        cells = make_cells(runs(1, copies), test, SETTINGS, scoring=SCORING)
        compared = differences(cells)["20"]["ulmfit-scratch"]["ulmfit-adapted"]
        halves.append(compared["high"] - compared["low"])
        rows, _ = scored_rows(test.facts, test.rows, {})
        better, worse = (cells[system, 20].rows[0] for system in ("ulmfit-adapted", "ulmfit-scratch"))
        decision = decide(Scored("new", "a", better), Scored("old", "b", worse), PromotionRule(), rows=rows)
        verdicts.append((decision.verdict, decision.low, decision.count))
    assert halves[1] == pytest.approx(halves[0])
    assert verdicts[1] == (verdicts[0][0], pytest.approx(verdicts[0][1]), len(LABELS))
