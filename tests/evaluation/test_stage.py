"""The stage on runs with known metrics."""

from __future__ import annotations

import csv
import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from components.core.errors import ArtifactError
from components.data.tasks.examples import read_split
from components.evaluation.stage import EvaluateJob, evaluate

from .conftest import Results, Task, content_of, job_of, record_of, write_examples, write_runs

# Accuracy on test with 2 and with 8 labels per class.
ACCURACY = {
    "ulmfit-scratch": (0.4, 0.5),
    "ulmfit-adapted": (0.7, 0.9),
    "tfidf-words": (0.75, 0.8),
    "most-frequent": (0.34, 0.34),
}
FAMILY = {"ulmfit-scratch": ("ulmfit", "scratch"), "ulmfit-adapted": ("ulmfit", "adapted")}


def letters(first: int = 2000) -> Task:
    """Three classes in turn, each in two slices; the test rows are numbered from `first`."""

    def rows(count: int, first: int) -> list:
        return [((f"text {first + n}",), [n % 3], "front" if n < count // 2 else "back") for n in range(count)]

    splits = {"train": rows(30, 0), "dev": rows(6, 1000), "test": rows(300, first)}
    return Task("classification", ["a", "b", "c"], splits)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return write_examples(tmp_path / "examples", letters())


def answers(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Probabilities of 0.9 for the right class in `share` of the rows, for the next class in the others."""
    right = np.random.default_rng([seed, int(share * 100)]).permutation(len(labels)) < round(share * len(labels))
    actual = np.full((len(labels), 3), 0.05, dtype=np.float32)
    actual[np.arange(len(labels)), np.where(right, labels, (labels + 1) % 3)] = 0.9
    return actual


def results(task: Path, system: str) -> list[Results]:
    family, start = FAMILY.get(system, ("baseline", "none"))
    test, dev = (np.asarray(read_split(task, split).targets, dtype=int)[:, 0] for split in ("test", "dev"))
    actual = []
    for index, budget in enumerate((2, 8)):
        for seed in (0, 1, 2):
            share = ACCURACY[system][index] + seed / 300
            record = record_of(budget, seed, 3 * budget, (share / 2, share))
            predictions = {"dev": answers(dev, share, seed), "test": answers(test, share, seed)}
            actual.append(Results(system, family, start, record, predictions))
    return actual


def write_system(task: Path, folder: Path, systems: list[str]) -> None:
    write_runs(folder, [result for system in systems for result in results(task, system)], examples=task)


@pytest.fixture
def job(task: Path, tmp_path: Path) -> EvaluateJob:
    systems = [result for system in ("tfidf-words", "most-frequent", *FAMILY) for result in results(task, system)]
    return job_of(tmp_path, letters(), systems)


@pytest.fixture
def content(job: EvaluateJob) -> dict:
    return content_of(job)


def cell(content: dict, system: str, budget: int) -> dict:
    (actual,) = [entry for entry in content["systems"] if entry["system"] == system]
    return next(entry for entry in actual["budgets"] if entry["budget"] == budget)


def test_metrics_are_those_of_the_predictions(content):
    actual = cell(content, "ulmfit-adapted", 8)
    assert (content["task"], content["budgets"], content["seeds"]) == ("letters", [2, 8], [0, 1, 2])
    assert actual["scores"]["accuracy"]["seeds"] == pytest.approx([0.9, 271 / 300, 272 / 300])
    accuracy = actual["scores"]["accuracy"]
    assert accuracy["mean"] == pytest.approx(271 / 300) and accuracy["low"] < accuracy["mean"] < accuracy["high"] <= 1
    # Every prediction has confidence 0.9, so the calibration error is the difference to the accuracy.
    assert actual["scores"]["ece"]["seeds"] == pytest.approx([0.0, 1 / 300, 2 / 300], abs=1e-6)
    assert actual["scores"]["ece"]["low"] >= 0
    assert actual["labels"] == 8
    assert np.asarray(actual["confusion"]).sum() == 3 * 300
    assert np.trace(actual["confusion"]) == 270 + 271 + 272
    assert actual["calibration"][0]["rows"] == 300 and actual["calibration"][0]["confidence"] == pytest.approx(0.9)
    assert actual["training"] == {
        "seconds": {"mean": 2.0, "low": 2.0, "high": 2.0},
        "tokens_per_second": 50.0,
        "best_epoch": 1.0,
        "selection_macro_f1": pytest.approx(0.9 + 1 / 300),
        "left_out": 0,
        "label_names": 0,
    }


def test_the_means_of_slices_and_classes_agree_with_the_metric(content):
    actual = cell(content, "ulmfit-scratch", 2)
    assert {name: entry["rows"] for name, entry in actual["slices"].items()} == {"front": 150, "back": 150}
    slices = np.mean([entry["accuracy"] for entry in actual["slices"].values()])
    assert slices == pytest.approx(actual["scores"]["accuracy"]["mean"])
    assert [entry["rows"] for entry in actual["per_class"].values()] == [100, 100, 100]
    classes = np.mean([entry["recall"] for entry in actual["per_class"].values()])
    assert classes == pytest.approx(actual["scores"]["accuracy"]["mean"])


@pytest.mark.parametrize("kept", [0, 2])
def test_a_class_without_or_with_few_rows_in_test_is_named(task, job, kept):
    examples = letters()
    test = examples.splits["test"]
    rare = [row for row in test if row[1] == [2]]
    examples.splits["test"] = [row for row in test if row[1] != [2]] + rare[:kept]
    shutil.rmtree(task)
    shutil.rmtree(job.finetuned)
    write_examples(task, examples)
    for folder, system in (("baselines", "most-frequent"), ("ulmfit-adapted", "ulmfit-adapted")):
        write_system(task, job.finetuned / folder, [system])
    content = content_of(job, systems=["ulmfit-adapted"])
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


def test_every_pair_is_compared_at_each_budget(content):
    assert content["best"] == {"2": "tfidf-words", "8": "ulmfit-adapted"}
    names = [each["system"] for each in content["systems"]]
    for pairs in content["differences"].values():
        listed = [(name, other) for name, others in pairs.items() for other in others]
        assert listed == list(combinations(names, 2)), "each pair once"
    (few, many) = (content["differences"][budget]["ulmfit-scratch"]["ulmfit-adapted"] for budget in ("2", "8"))
    assert few["high"] < 0 and many["high"] < 0 and few["clear"] and many["clear"]


def test_benefits_and_label_efficiency(content):
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


def test_missing_or_other_inputs_are_refused(job, task, tmp_path):
    other = write_examples(tmp_path / "other-examples", letters(first=3000))
    with pytest.raises(ArtifactError, match=r"baselines: made from another version of the task's data \(test\)"):
        evaluate(job.model_copy(update={"examples": other}))
    with pytest.raises(ArtifactError, match=r"ulmfit-pretrained: not a complete output"):
        evaluate(job.model_copy(update={"systems": [*job.systems, "ulmfit-pretrained"]}))
    actual = results(task, "ulmfit-adapted")
    for result in actual:
        result.answers["test"] = result.answers["test"][:299]
    write_runs(job.finetuned / "ulmfit-adapted", actual, examples=task)
    with pytest.raises(ArtifactError, match="ulmfit-adapted, budget 2, seed 0 has 299 predictions for 300 test rows"):
        evaluate(job)
    assert not job.output.exists()


def test_only_fine_tuned_systems_that_continue_a_language_model_are_transferred(job, task, monkeypatch):
    further = ("task-adapted", "adapted-with-both", "scratch-with-both", "adapted-frozen")
    for number, start in enumerate(further):
        system = f"ulmfit-{start}"
        monkeypatch.setitem(ACCURACY, system, (0.7 - number / 100, 0.9 - number / 100))
        monkeypatch.setitem(FAMILY, system, ("ulmfit", start))
        write_system(task, job.finetuned / system, [system])
    content = content_of(job, systems=[*job.systems, *(f"ulmfit-{start}" for start in further)])
    named = {row["system"].removeprefix("ulmfit-") for row in [*content["benefits"], *content["label_efficiency"]]}
    assert named == {"adapted", "task-adapted", "adapted-with-both"}
    pairs = [content["differences"][budget]["ulmfit-adapted"]["ulmfit-adapted-frozen"] for budget in ("2", "8")]
    assert all(each["mean"] > 0 for each in pairs)


def test_compared_systems_are_selected_on_dev(task, job):
    actual = results(task, "tfidf-words")
    for result in actual:
        # The best on dev, below chance on test.
        result.system = "tfidf-chars"
        result.answers["test"] = answers(np.asarray(read_split(task, "test").targets, dtype=int)[:, 0], 0.2, 0)
        for point in result.record["curve"]:
            point["macro_f1"] = 0.99
    both = [result for system in ("tfidf-words", "most-frequent") for result in results(task, system)]
    shutil.rmtree(job.finetuned / "baselines")
    write_runs(job.finetuned / "baselines", [*both, *actual], examples=task)
    content = content_of(job)
    assert {row["against"] for row in content["label_efficiency"]} == {"ulmfit-scratch", "tfidf-chars"}
    assert content["best"]["2"] == "tfidf-words"


def test_the_learning_curve_and_the_metrics(job, content):
    with (job.output / "learning_curve.csv").open() as file:
        learning = list(csv.DictReader(file))
    assert len(learning) == 4 * 2
    assert list(learning[0]) == ["system", "budget", "labels", "score", "low", "high", "accuracy"]
    metrics = json.loads((job.output / "metrics.json").read_text())
    assert metrics["ulmfit-adapted.8.accuracy"] == pytest.approx(271 / 300, abs=1e-6)
    assert metrics["ulmfit-adapted.8.macro_f1_half_width"] > 0
