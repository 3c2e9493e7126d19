"""Ensembles: the mean of the members' probabilities, scored like other systems."""

from dataclasses import replace

import numpy as np
import pytest

from components.data.tasks.data import Split
from components.data.tasks.kinds.classification import Classification
from components.evaluation.aggregates import Run
from components.evaluation.stage import ensemble_runs
from components.settings.evaluate import EvaluateSettings
from tests.evaluation.conftest import content_of, record_of
from tests.evaluation.test_stage import job

__all__ = ["job"]  # a fixture

ROWS = Split([("text",)] * 4, [np.array([label]) for label in (0, 1, 0, 1)], [None] * 4)


def run_of(family: str, values: list[float], *, start: str = "adapted", budget: int = 5, seed: int = 0) -> Run:
    """A run that predicts these probabilities for the first of two classes."""
    record = record_of(budget, seed, 10, [0.9])
    return Run(f"{family}-{start}", family, start, budget, seed, record, two(values))


def two(values: list[float]) -> np.ndarray:
    return np.stack([np.array(values), 1 - np.array(values)], axis=1).astype(np.float32)


def test_the_mean_of_the_members_with_a_baseline_beside_every_start():
    baseline = run_of("tfidf-words", [0.3, 0.1, 0.8, 0.6])
    runs = [
        run_of("ulmfit", [0.9, 0.4, 0.1, 0.2]),
        run_of("ulmfit", [0.7, 0.4, 0.1, 0.2], start="scratch"),
        replace(baseline, system="tfidf-words", family="baseline", start="none"),
        # No run of the other member has this budget or seed.
        run_of("ulmfit", [0.0] * 4, budget=20),
        run_of("ulmfit", [0.0] * 4, seed=1),
        run_of("bert", [0.0] * 4),
    ]
    chosen = {(run.system, 5, 0): run.answers for run in runs if (run.budget, run.seed) == (5, 0)}
    members, scoring = {"both": ["ulmfit", "tfidf-words"]}, Classification(["a", "b"])
    actual, other = ensemble_runs(runs, members, chosen=chosen, rows=lambda budget, seed: ROWS, scoring=scoring)
    assert [(run.system, run.family, run.start, run.budget, run.seed) for run in (actual, other)] == [
        ("both-adapted", "both", "adapted", 5, 0),
        ("both-scratch", "both", "scratch", 5, 0),
    ]
    np.testing.assert_allclose(actual.answers, two([0.6, 0.25, 0.45, 0.4]), atol=1e-6)
    np.testing.assert_allclose(other.answers, two([0.5, 0.25, 0.45, 0.4]), atol=1e-6)
    assert (actual.record["rows"], actual.record["tokens"], actual.record["seconds"]) == (10, 200, 4.0)
    # Classes 0 1 1 1 for 0 1 0 1: F1 is 2/3 for the first class and 4/5 for the second.
    assert [point["macro_f1"] for point in actual.record["curve"]] == [pytest.approx((2 / 3 + 4 / 5) / 2)]


def test_ensembles_are_evaluated_like_other_systems(job):
    content = content_of(job, settings=EvaluateSettings(ensembles={"both": ["ulmfit", "tfidf-words"]}))
    systems = {system["system"]: system for system in content["systems"]}
    assert {"both-scratch", "both-adapted", "ulmfit-adapted", "tfidf-words"} < systems.keys()
    both = systems["both-adapted"]["budgets"]
    assert [cell["budget"] for cell in both] == [2, 8] and both[0]["seeds"] == [0, 1, 2]
    assert both[0]["training"]["seconds"]["mean"] == 4.0 and "artifact" not in systems["both-adapted"]
    # Where both members are right, so is their mean.
    assert both[0]["scores"]["accuracy"]["mean"] > 0.45
    pairs = {frozenset((name, other)) for name, others in content["differences"]["2"].items() for other in others}
    assert {"both-adapted", "tfidf-words"} in pairs
    assert not any(row["system"].startswith("both") for row in content["benefits"]), "it has no training curve"
    assert any(row["system"] == "both-adapted" for row in content["label_efficiency"])
