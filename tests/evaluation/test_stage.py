"""The stage on runs with known metrics."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

from components.core.errors import ArtifactError
from components.evaluation.aggregates import Run
from components.evaluation.stage import EvaluateJob, evaluate

from .conftest import Task, content_of, job_of, record_of, run_of, write_examples, write_runs

# Accuracy on test with 2 and with 8 labels per class.
ACCURACY = {
    "ulmfit-scratch": (0.4, 0.5),
    "ulmfit-adapted": (0.7, 0.9),
    "tfidf-words": (0.75, 0.8),
    "most-frequent": (0.34, 0.34),
}


def letters(first: int = 2000) -> Task:
    """Three classes in turn, each in two slices; the test rows are numbered from `first`."""

    def rows(count: int, first: int) -> list:
        return [((f"text {first + n}",), [n % 3], "front" if n < count // 2 else "back") for n in range(count)]

    splits = {"train": rows(30, 0), "dev": rows(6, 1000), "test": rows(300, first)}
    return Task("classification", ["a", "b", "c"], splits)


def answers(task: Task, split: str, share: float, seed: int) -> np.ndarray:
    """Probabilities of 0.9 for the right class in `share` of the rows, for the next class in the others."""
    labels = np.array([target[0] for _, target, _ in task.splits[split]])
    right = np.random.default_rng([seed, int(share * 100)]).permutation(len(labels)) < round(share * len(labels))
    return np.float32(0.05 + 0.85 * np.eye(3))[np.where(right, labels, (labels + 1) % 3)]


def runs(system: str, task: Task | None = None, accuracy: tuple[float, float] | None = None) -> list[Run]:
    family, _, start = system.partition("-")
    named = {"family": family, "start": start} if family == "ulmfit" else {}
    actual, task = [], task or letters()
    for budget, whole in zip((2, 8), accuracy or ACCURACY[system], strict=True):
        for seed in (0, 1, 2):
            share = whole + seed / 300
            predicted = {split: answers(task, split, share, seed) for split in ("dev", "test")}
            actual.append(run_of(system, record_of(budget, seed, 3 * budget, (share / 2, share)), predicted, **named))
    return actual


@pytest.fixture
def job(tmp_path: Path) -> EvaluateJob:
    return job_of(tmp_path, letters(), [*chain(*map(runs, ACCURACY))])


@pytest.fixture
def content(job: EvaluateJob) -> dict:
    return content_of(job)


def cell(content: dict, system: str, budget: int) -> dict:
    (actual,) = [entry for entry in content["systems"] if entry["system"] == system]
    return next(entry for entry in actual["budgets"] if entry["budget"] == budget)


def test_metrics_are_those_of_the_predictions(content, job):
    actual = cell(content, "ulmfit-adapted", 8)
    assert (content["task"], content["budgets"], content["seeds"]) == ("letters", [2, 8], [0, 1, 2])
    accuracy, error = (actual["scores"][name] for name in ("accuracy", "ece"))
    assert accuracy["seeds"] == pytest.approx([0.9, 271 / 300, 272 / 300])
    assert accuracy["mean"] == pytest.approx(271 / 300) and accuracy["low"] < accuracy["mean"] < accuracy["high"] <= 1
    # Every prediction has confidence 0.9, so the calibration error is the difference to the accuracy.
    assert error["seeds"] == pytest.approx([0.0, 1 / 300, 2 / 300], abs=1e-6) and error["low"] >= 0
    assert actual["labels"] == 8
    assert np.asarray(actual["confusion"]).sum() == 3 * 300 and np.trace(actual["confusion"]) == 270 + 271 + 272
    assert actual["calibration"][0]["rows"] == 300 and actual["calibration"][0]["confidence"] == pytest.approx(0.9)
    assert actual["training"] == {
        "seconds": {"mean": 2.0, "low": 2.0, "high": 2.0},
        "tokens_per_second": 50.0,
        "best_epoch": 1.0,
        "selection_macro_f1": pytest.approx(0.9 + 1 / 300),
        "left_out": 0,
        "label_names": 0,
    }
    # The means of slices and classes agree with the metric.
    few = cell(content, "ulmfit-scratch", 2)
    assert [(name, of["rows"]) for name, of in few["slices"].items()] == [("back", 150), ("front", 150)]
    assert [entry["rows"] for entry in few["per_class"].values()] == [100, 100, 100]
    for parts, name in ((few["slices"], "accuracy"), (few["per_class"], "recall")):
        assert np.mean([of[name] for of in parts.values()]) == pytest.approx(few["scores"]["accuracy"]["mean"])
    with (job.output / "learning_curve.csv").open() as file:
        learning = list(csv.DictReader(file))
    assert len(learning) == 4 * 2
    assert list(learning[0]) == ["system", "budget", "labels", "score", "low", "high", "accuracy"]
    metrics = json.loads((job.output / "metrics.json").read_text())
    assert metrics["ulmfit-adapted.8.accuracy"] == pytest.approx(271 / 300, abs=1e-6)
    assert metrics["ulmfit-adapted.8.macro_f1_half_width"] > 0


@pytest.mark.parametrize("kept", [0, 2])
def test_a_class_without_or_with_few_rows_in_test_is_named(tmp_path, kept):
    task = letters()
    rare = [row for row in task.splits["test"] if row[1] == [2]]
    task.splits["test"] = [row for row in task.splits["test"] if row not in rare[kept:]]
    content = content_of(job_of(tmp_path, task, [*runs("most-frequent", task), *runs("ulmfit-adapted", task)]))
    actual = cell(content, "ulmfit-adapted", 8)
    mean = np.mean([actual["per_class"][name]["f1"] for name in "ab"])
    ((kind, text),) = [(statement["kind"], statement["text"]) for statement in content["statements"]]
    if kept:
        assert text.startswith("Few rows of test decide the score of c (2): without it, macro F1 of ulmfit-adapted is ")
        assert float(text.split(" is ")[1].rstrip(".")) == pytest.approx(mean, abs=6e-4)
        return
    assert actual["per_class"]["c"] == {"precision": None, "recall": None, "f1": None, "rows": 0.0}
    assert sum(row[2] for row in actual["confusion"]) > 0, "it is predicted"
    assert actual["scores"]["macro_f1"]["mean"] == pytest.approx(mean, abs=1e-4)
    assert (kind, text) == ("missing", "Without rows in test, and not in macro F1: c (1 of 3 classes).")


def test_systems_are_compared(content):
    assert content["best"] == {"2": "tfidf-words", "8": "ulmfit-adapted"}
    names = [each["system"] for each in content["systems"]]
    for pairs in content["differences"].values():
        listed = [(name, other) for name, others in pairs.items() for other in others]
        assert listed == list(combinations(names, 2)), "each pair once"
        between = pairs["ulmfit-scratch"]["ulmfit-adapted"]
        assert between["high"] < 0 and between["clear"]
    rows = {(row["against"], row["benefit"]): row for row in content["benefits"]}
    assert {row["system"] for row in content["benefits"]} == {"ulmfit-adapted"}
    for name, expected in (("start", 0.2), ("slope", 0.2), ("asymptote", 0.4)):
        assert rows["epochs", name]["difference"]["mean"] == pytest.approx(expected)
        assert rows["epochs", name]["higher"]
    assert rows["labels", "start"]["difference"]["mean"] == pytest.approx(0.3, abs=0.02)
    slope = rows["labels", "slope"]["transferred"]["mean"]
    assert slope == pytest.approx(0.1, abs=0.01), "0.7 to 0.9 in two doublings"
    needed = {row["against"]: row["needs"]["mean"] for row in content["label_efficiency"] if row["budget"] == 2}
    assert needed == {"ulmfit-scratch": None, "tfidf-words": 2.0}


def test_missing_or_other_inputs_are_refused(job, tmp_path):
    other = write_examples(tmp_path / "other-examples", letters(first=3000))
    with pytest.raises(ArtifactError, match=r"baselines: made from another version of the task's data \(test\)"):
        evaluate(job.model_copy(update={"examples": other}))
    with pytest.raises(ArtifactError, match=r"ulmfit-pretrained: not a complete output"):
        evaluate(job.model_copy(update={"systems": [*job.systems, "ulmfit-pretrained"]}))
    cut = [replace(of, answers={"test": of.answers["test"][:299]}) for of in runs("ulmfit-adapted")]
    write_runs(job.finetuned / "ulmfit-adapted", cut, examples=job.examples)
    with pytest.raises(ArtifactError, match="ulmfit-adapted, budget 2, seed 0 has 299 predictions for 300 test rows"):
        evaluate(job)
    assert not job.output.exists()


def test_only_fine_tuned_systems_that_continue_a_language_model_are_transferred(job):
    further = ("task-adapted", "adapted-with-both", "scratch-with-both", "adapted-frozen")
    for number, start in enumerate(further):
        made = runs(f"ulmfit-{start}", accuracy=(0.7 - number / 100, 0.9 - number / 100))
        write_runs(job.finetuned / f"ulmfit-{start}", made, examples=job.examples)
    content = content_of(job, systems=[*job.systems, *(f"ulmfit-{start}" for start in further)])
    named = {row["system"].removeprefix("ulmfit-") for row in [*content["benefits"], *content["label_efficiency"]]}
    assert named == {"adapted", "task-adapted", "adapted-with-both"}
    pairs = [content["differences"][budget]["ulmfit-adapted"]["ulmfit-adapted-frozen"] for budget in ("2", "8")]
    assert all(each["mean"] > 0 for each in pairs)


def test_compared_systems_are_selected_on_dev(tmp_path):
    # The best on dev, below chance on test.
    chosen = [
        replace(of, answers=of.answers | {"test": answers(letters(), "test", 0.2, 0)})
        for of in runs("tfidf-chars", accuracy=(0.99, 0.99))
    ]
    content = content_of(job_of(tmp_path, letters(), [*chain(*map(runs, ACCURACY)), *chosen]))
    assert {row["against"] for row in content["label_efficiency"]} == {"ulmfit-scratch", "tfidf-chars"}
    assert content["best"]["2"] == "tfidf-words"
