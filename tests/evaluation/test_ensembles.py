"""Ensembles: the mean of the members' probabilities, scored like other systems."""

import json
from pathlib import Path

import numpy as np
import pytest

from components.data.scoring.classification import Classification
from components.data.tasks.data import Split
from components.data.tasks.examples import read_split
from components.evaluation.aggregates import Run
from components.evaluation.stage import EvaluateJob, ensemble_runs, evaluate
from components.settings.evaluate import EvaluateSettings
from tests.evaluation.conftest import Results, write_runs
from tests.evaluation.test_stage import job, task

__all__ = ["job", "task"]  # fixtures

ROWS = Split([("text",)] * 4, [np.array([label]) for label in (0, 1, 0, 1)], [None] * 4)


def run_of(family: str, values: list[float], *, start: str = "adapted", budget: int = 5, seed: int = 0) -> Run:
    """A run that predicts these probabilities for the first of two classes."""
    curve = [{"epoch": 0.0, "macro_f1": 0.9}]
    record = {"rows": 10, "tokens": 100, "seconds": 2.0, "score": "macro_f1", "curve": curve, "best_epoch": 3.0}
    return Run(f"{family}-{start}", family, start, budget, seed, record, two(values))


def two(values: list[float]) -> np.ndarray:
    return np.stack([np.array(values), 1 - np.array(values)], axis=1).astype(np.float32)


def test_the_mean_of_the_members():
    runs = [
        run_of("ulmfit", [0.9, 0.4, 0.1, 0.2]),
        run_of("backward", [0.3, 0.1, 0.8, 0.6]),
        # No run of the other family has this start, budget or seed.
        run_of("ulmfit", [0.0] * 4, start="scratch"),
        run_of("ulmfit", [0.0] * 4, budget=20),
        run_of("backward", [0.0] * 4, seed=1),
        run_of("bert", [0.0] * 4),
    ]
    chosen = {
        ("ulmfit-adapted", 5, 0): two([0.9, 0.4, 0.1, 0.2]),
        ("backward-adapted", 5, 0): two([0.3, 0.1, 0.8, 0.6]),
    }
    scoring = Classification(["a", "b"])
    (actual,) = ensemble_runs(
        runs, {"both": ["ulmfit", "backward"]}, chosen=chosen, rows=lambda budget, seed: ROWS, scoring=scoring
    )
    assert (actual.system, actual.family, actual.start, actual.budget, actual.seed) == (
        "both-adapted",
        "both",
        "adapted",
        5,
        0,
    )
    np.testing.assert_allclose(actual.answers, two([0.6, 0.25, 0.45, 0.4]), atol=1e-6)
    assert (actual.record["rows"], actual.record["tokens"], actual.record["seconds"]) == (10, 200, 4.0)
    # Classes 0 1 1 1 for 0 1 0 1: F1 is 2/3 for the first class and 4/5 for the second.
    assert [point["macro_f1"] for point in actual.record["curve"]] == [pytest.approx((2 / 3 + 4 / 5) / 2)]


@pytest.fixture
def with_backward(job: EvaluateJob, task: Path) -> EvaluateJob:
    """The runs of the stage's tests and a second family with 90% accuracy and higher confidence."""
    labels = {name: np.asarray(read_split(task, name).targets, dtype=int)[:, 0] for name in ("dev", "test")}
    for start in ("scratch", "adapted"):
        results = []
        for record in json.loads((job.finetuned / f"ulmfit-{start}" / "runs.json").read_text()):
            actual = {}
            for name, truth in labels.items():
                right = np.random.default_rng([7, record["seed"]]).random(len(truth)) < 0.9
                actual[name] = np.full((len(truth), 3), 0.01, dtype=np.float32)
                actual[name][np.arange(len(truth)), np.where(right, truth, (truth + 2) % 3)] = 0.98
            record = {key: record[key] for key in record.keys() - {"system", "family", "start"}}
            record["curve"] = [point | {"macro_f1": 0.95} for point in record["curve"]]
            results.append(Results(f"backward-{start}", "backward", start, record, actual))
        write_runs(job.finetuned / f"backward-{start}", results, examples=task)
    settings = EvaluateSettings(ensembles={"both": ["ulmfit", "backward"]})
    return job.model_copy(update={"families": ["ulmfit", "backward"], "settings": settings})


def test_ensembles_are_evaluated_like_other_systems(with_backward):
    content = json.loads((evaluate(with_backward) / "evaluation.json").read_text())
    systems = {system["system"]: system for system in content["systems"]}
    assert {"both-scratch", "both-adapted", "ulmfit-adapted", "backward-adapted"} < systems.keys()
    both = systems["both-adapted"]
    assert [cell["budget"] for cell in both["budgets"]] == [2, 8]
    assert both["budgets"][0]["seeds"] == [0, 1, 2]
    assert both["budgets"][0]["training"]["seconds"] == 4.0
    # The more confident member determines the mean, so the ensemble has its accuracy.
    (backward,) = [cell for cell in systems["backward-adapted"]["budgets"] if cell["budget"] == 2]
    assert both["budgets"][0]["scores"]["accuracy"]["seeds"] == backward["scores"]["accuracy"]["seeds"]
    pairs = {frozenset((name, other)) for name, others in content["differences"]["2"].items() for other in others}
    assert {"both-adapted", "backward-adapted"} in pairs
    assert not any(row["system"].startswith("both") for row in content["benefits"]), "it has no training curve"
    assert any(row["system"] == "both-adapted" for row in content["label_efficiency"])


def baseline_run(system: str, values: list[float], *, budget: int = 5, seed: int = 0) -> Run:
    made = run_of("x", values, budget=budget, seed=seed)
    return Run(system, "baseline", "none", budget, seed, made.record, made.answers)


def test_a_baseline_is_a_member_beside_every_start():
    runs = [
        run_of("ulmfit", [0.9, 0.4, 0.1, 0.2]),
        run_of("ulmfit", [0.7, 0.4, 0.1, 0.2], start="scratch"),
        run_of("ulmfit", [0.7, 0.4, 0.1, 0.2], budget=20),
        baseline_run("tfidf-words", [0.3, 0.2, 0.3, 0.6]),
        baseline_run("most-frequent", [0.0] * 4),
    ]
    chosen = {(run.system, 5, 0): run.answers for run in runs}
    actual = list(
        ensemble_runs(
            runs,
            {"words": ["ulmfit", "tfidf-words"]},
            chosen=chosen,
            rows=lambda budget, seed: ROWS,
            scoring=Classification(["a", "b"]),
        )
    )
    assert [(run.system, run.budget) for run in actual] == [("words-adapted", 5), ("words-scratch", 5)]
    np.testing.assert_allclose(actual[0].answers, two([0.6, 0.3, 0.2, 0.4]), atol=1e-6)
    np.testing.assert_allclose(actual[1].answers, two([0.5, 0.3, 0.2, 0.4]), atol=1e-6)
