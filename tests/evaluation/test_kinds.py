"""The stage on tasks of other kinds than classification: the schema of evaluation.json is the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.settings.evaluate import EvaluateSettings

from .conftest import Task, content_of, job_of, record_of, run_of

CONTEXT = "Marie Curie was born in Warsaw."


def task_of(kind: str, labels: list[str], row: Callable[[int], tuple[Any, ...]]) -> Task:
    """The same 40 rows in every split: number -> (fields, target, slice)."""
    return Task(kind, labels, {split: [row(number) for number in range(40)] for split in ("train", "dev", "test")})


TAGS = {0: [2, 2, 0], 1: [0, 1, 2]}
TASKS = {
    "tagging": task_of("tagging", ["B-X", "I-X", "O"], lambda n: (("one", "two", "three"), TAGS[n % 2], None)),
    "questions": task_of("questions", [], lambda n: (("who", CONTEXT), [0, 11] if n % 2 else [], None)),
    "similarity": task_of("similarity", [], lambda n: (("a", "b"), [n / 40], None)),
    "regression": task_of("regression", [], lambda n: (("a",), [n / 40], None)),
    "multilabel": task_of(
        "multilabel", ["a", "b"], lambda n: ((f"text {n}",), [0, 1] if n % 2 else [0], "odd" if n % 2 else "even")
    ),
    "choice": task_of("choice", [], lambda n: (("why", *"abcd"[: 2 + n % 2]), [n % 2], None)),
}


def answer(kind: str, fields: tuple[str, ...], target: list[float], *, right: bool) -> list[float]:
    if kind == "tagging":
        return target if right else [2.0] * len(target)
    if kind == "questions":
        return [*(target or [0, 0]), 1, 0] if right else [0, 5, 1, 0]
    if kind in ("similarity", "regression"):
        return target if right else [1 - target[0]]
    if kind == "multilabel":
        return [float((label in target) == right) for label in (0, 1)]
    chosen = target[0] if right else (target[0] + 1) % (len(fields) - 1)
    return [0.8 if index == chosen else 0.1 for index in range(len(fields) - 1)]


def evaluated(kind: str, tmp_path: Path) -> dict[str, Any]:
    """Evaluate a system from scratch with 10% accuracy and an adapted one with 90%."""
    task, runs = TASKS[kind], []
    for family, start, share in (("baseline", "none", 0.1), ("bert", "scratch", 0.1), ("bert", "adapted", 0.9)):
        for seed in (0, 1):
            right = np.random.default_rng(seed).permutation(40) < 40 * share
            predictions = {
                split: [answer(kind, row[0], row[1], right=bool(ok)) for row, ok in zip(rows, right, strict=True)]
                for split, rows in task.splits.items()
                if split != "train"
            }
            record = record_of(16, seed, 16, [share], MAIN[kind])
            runs.append(run_of(f"{family}-{start}", record, predictions, family=family, start=start))
    ensembles = EvaluateSettings(ensembles={"both": ["bert", "other"]})
    return content_of(job_of(tmp_path, task, runs, settings=ensembles))


MAIN = {
    "tagging": "span_f1",
    "questions": "f1",
    "similarity": "spearman",
    "regression": "r2",
    "multilabel": "micro_f1",
    "choice": "accuracy",
}


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_is_evaluated(kind, tmp_path, capsys):
    content = evaluated(kind, tmp_path)
    assert (content["kind"], content["main"], content["unit"]) == (kind, MAIN[kind], "labelled rows")
    adapted = next(system for system in content["systems"] if system["system"] == "bert-adapted")["budgets"][0]
    assert list(adapted["scores"]) == content["scores"] and content["scores"][0] == MAIN[kind]
    assert adapted["labels"] == 16, "a budget of rows is not divided by classes"
    assert adapted["training"][f"selection_{MAIN[kind]}"] == 0.9
    assert content["best"] == {"16": "bert-adapted"}
    pairs = content["differences"]["16"]
    assert pairs.get("bert-scratch", {}).get("bert-adapted", {"high": -1})["high"] < 0
    assert pairs.get("bert-adapted", {}).get("bert-scratch", {"low": 1})["low"] > 0
    assert ("cannot be averaged" in capsys.readouterr().out) == (kind in ("tagging", "questions"))
