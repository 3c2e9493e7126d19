"""`class_weight`: classes as if equally frequent, by heads on frozen features and after contrastive training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from components.data.tasks.examples import ExamplesJob, examples
from components.learners.finetuning.fit import weights_of
from components.learners.task_models.base import Encoded
from components.learners.task_models.heads import ClassificationHead, MultilabelHead, RegressionHead
from components.learners.task_models.probe import HeadCandidate, HeadRows, solve_head
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl
from tests.finetuning.interruption import learned

pytestmark = pytest.mark.usefixtures("few_pairs")
SKEWED = [0] * 20 + [1] * 6 + [2] * 4


def targets_of(labels: list[int]) -> list[np.ndarray]:
    return [np.asarray([label], dtype=np.float64) for label in labels]


def solve(head: Any, count: int, targets: list[np.ndarray], weight: Any) -> np.ndarray:
    """Solve the head on random features, which are returned."""
    x = np.random.default_rng(3).normal(size=(count, 4)).astype(np.float32)
    rows = HeadRows(list(map(Encoded.of_vectors, x[:, None])), targets)
    solve_head(head, rows=rows, candidate=HeadCandidate(None, 2.0, class_weight=weight), steps=1000)
    return x


@pytest.mark.parametrize("weight", ["none", "balanced"])
def test_the_log_frequency_is_subtracted_from_the_regression(weight):
    head, labels = ClassificationHead(4, 4, norm="none"), np.asarray(SKEWED)
    x = solve(head, 30, targets_of(SKEWED), weight)
    expected = LogisticRegression(C=1 / 2, tol=1e-8).fit(x, labels)
    prior = np.log([20 / 10, 6 / 10, 4 / 10]) if weight == "balanced" else 0.0
    np.testing.assert_allclose(head.output.weight[:3].detach(), expected.coef_, atol=2e-3)
    np.testing.assert_allclose(head.output.bias[:3].detach(), expected.intercept_ - prior, atol=2e-3)
    # Fine-tuning that starts from the head has gradient 0 in it, but for the class without rows.
    outputs = head(torch.from_numpy(x))
    head.loss(outputs, {"targets": torch.from_numpy(labels[:, None].astype(np.float32))}).backward()
    assert float(head.output.weight.grad.abs().max()) < 2e-2


def test_the_log_odds_of_each_of_several_labels_are_subtracted():
    given, head = np.random.default_rng(5).random((40, 3)) < 0.2, MultilabelHead(4, 3, norm="none")
    given[:, 2] = False
    x = solve(head, 40, [np.flatnonzero(row).astype(np.float64) for row in given], "balanced")
    for label in (0, 1):
        expected = LogisticRegression(C=1 / 2, tol=1e-8, max_iter=1000).fit(x, given[:, label])
        odds = given[:, label].sum() / (~given[:, label]).sum()
        np.testing.assert_allclose(head.output.weight[label].detach(), expected.coef_[0], atol=2e-3)
        assert head.output.bias[label].item() == pytest.approx(expected.intercept_[0] - np.log(odds), abs=2e-3)
    assert head.prior is not None and head.prior[2] == 0, "no row has the label"


def test_the_candidates_follow_from_the_metric_and_the_labels():
    for asked, main, labels, expected in (
        ("auto", "macro_f1", SKEWED, ["balanced", "none"]),
        ("auto", "micro_f1", SKEWED, ["none", "balanced"]),
        ("auto", "accuracy", SKEWED, [None]),
        ("balanced", "accuracy", SKEWED, [None]),
        ("auto", "macro_f1", [0, 1, 2] * 4, [None]),
        ("auto", "macro_f1", [0, 0, 2, 2], [None]),
        ("balanced", "macro_f1", SKEWED, ["balanced"]),
        ("none", "macro_f1", SKEWED, [None]),
    ):
        targets = targets_of(labels)
        assert weights_of(asked, ClassificationHead(4, 3), targets, main=main) == expected
        assert weights_of(asked, RegressionHead(4, 1), targets, main=main) == [None]


@pytest.fixture
def skewed_job(make_job, tmp_path):
    """skewed_job(name, **settings) -> a job on 9, 3 and 3 rows of the classes, with choices by cross-validation."""

    def make(name: str = "out", **changes: Any) -> Any:
        given = [ROWS["classification"](row) for row in rows(9)]
        kept = [row for number, row in enumerate(given) if row["label"] == "fruit" or number < 9]
        for split, content in (("train", kept), ("test", given[:6])):
            write_jsonl(tmp_path / "skewed" / f"{split}.jsonl", content)
        options: dict[str, Any] = {"budgets": ["all"], "seeds": [0], "selection": "budget", "folds": 2, "dev": None}
        source = TaskSource(path=str(tmp_path / "skewed"), kind="classification", **options)
        directory = examples(ExamplesJob(task="skewed", source=source, output=tmp_path / "examples-skewed"))
        job = make_job("bert", "classification", name=name, head_steps=100, **changes)
        return job.model_copy(update={"examples": directory, "task": "skewed"})

    return make


@pytest.mark.parametrize("method", ["features", "contrastive", "finetune"])
def test_weights_are_chosen_with_the_penalty(method, skewed_job, in_process):
    record = learned(skewed_job(method=method, head_penalties=[1.0, 100.0]))
    assert set(record["penalties"]) == {"1.0", "100.0", "1.0 balanced", "100.0 balanced"}
    assert record["class_weight"] in ("none", "balanced")
