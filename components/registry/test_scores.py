"""Test scores of the runs of a stage, by which a rival of the first champion is chosen."""

from __future__ import annotations

import json
from pathlib import Path

from components.artifacts import read_manifest
from components.errors import ArtifactError
from components.scoring import Scoring
from components.tasks.budgets import ALL
from components.tasks.data import Split
from components.tasks.examples import TaskFacts
from components.tasks.results import KIND, RunKey, best_score, read_answers


def read_test_scores(
    directory: Path,
    *,
    facts: TaskFacts,
    split: Split,
    scoring: Scoring,
    metric: str,
    budget: int,
    system: str | None = None,
) -> dict[RunKey, float]:
    """Test scores of the runs at one label budget in an output directory of `finetune` or `baseline`.

    Args:
        directory: the output directory.
        facts: of the task.
        split: the test split.
        scoring: of the task; its labels may be more than the task's.
        metric: name of the metric.
        budget: label budget (-1: all labels); the largest one of the runs if they lack it.
        system: name of the system; None: all.

    Returns:
        (system, budget, seed) -> score.

    Raises:
        ArtifactError: the directory is incomplete, or belongs to another version of the test split.
    """
    if read_manifest(directory, kind=KIND).facts.get("examples", {}).get("test") != facts.digests["test"]:
        raise ArtifactError(f"{directory}: made from another version of the test rows; run its stage again")
    found = read_answers(directory, "test")
    budgets = {size for _, size, _ in found}
    if budget not in budgets and budgets:
        budget = max(budgets, key=lambda size: (size == ALL, size))
    scores = {}
    for key, answers in found.items():
        if key[1] != budget or system not in (None, key[0]):
            continue
        if len(answers) != len(split):
            raise ArtifactError(f"{directory}: {len(answers)} predictions for {len(split)} test rows; run it again")
        renamed = scoring.renamed(answers, facts.labels)
        scores[key] = scoring.score(split.fields, split.targets, renamed)[metric]
    return scores


def best_seed(directory: Path, *, system: str, budget: int) -> int:
    """The seed with the highest dev score of a system at a label budget: that of its classifier.

    Raises:
        ArtifactError: runs.json is missing or damaged, or lacks the system.
    """
    path = directory / "runs.json"
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        found = {
            int(record["seed"]): best_score(record)
            for record in records
            if (record["system"], record["budget"]) == (system, budget)
        }
        return max(found, key=lambda seed: found[seed])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run its stage again") from error
