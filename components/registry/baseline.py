"""The best baseline of a task: what the first champion has to beat."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from components.errors import HeadstartError
from components.registry.comparison import TrainingNoise
from components.registry.noise import largest_budget, pooled, read_test_scores, recipe_name
from components.registry.promotion import Scored
from components.scoring import Scoring
from components.tasks.data import Split
from components.tasks.examples import TaskFacts
from components.tasks.results import best_score, read_answers

#: Output directory of the stage `baseline`, next to those of `finetune`.
BASELINES = "baselines"


def best_baseline(
    finetuned: Path, *, facts: TaskFacts, split: Split, scoring: Scoring, metric: str, budget: int
) -> Scored | None:
    """The baseline with the highest mean test score at a label budget, represented by its run with the highest dev
    score, as a fine-tuned system is by its classifier. Choosing the baseline on test favours the baselines.

    Args:
        finetuned: folder of the task's results; `baselines` below it is read.
        facts: of the task.
        split: the test split.
        scoring: of the task.
        metric: name of the metric.
        budget: label budget of the challenger (-1: all labels); the largest one of the baselines if they lack it.

    Returns:
        None if the task has no baselines. A `Scored` without statistics if their results cannot be read.
    """
    directory = finetuned / BASELINES
    if not directory.is_dir():
        return None
    try:
        scores = read_test_scores(directory, facts=facts, split=split, scoring=scoring, metric=metric)
        if not scores:
            return None
        if budget not in {found for _, found, _ in scores}:
            budget = largest_budget(scores)
        systems: dict[str, dict[int, float]] = {}
        for (system, found, seed), score in scores.items():
            if found == budget:
                systems.setdefault(system, {})[seed] = score
        best = max(systems, key=lambda system: float(np.mean(list(systems[system].values()))))
        records = json.loads((directory / "runs.json").read_text(encoding="utf-8"))
        dev = {
            record["seed"]: best_score(record)
            for record in records
            if (record["system"], record["budget"]) == (best, budget)
        }
        seed = max(dev, key=lambda seed: dev[seed])
        answers = scoring.renamed(read_answers(directory, "test")[best, budget, seed], facts.labels)
        statistics = scoring.statistics(split.fields, split.targets, answers)
    except (HeadstartError, OSError, ValueError, KeyError, TypeError) as error:
        return Scored("the best baseline", "", facts.digests["test"], None, problem=f"{directory}: {error}")
    own = list(systems[best].values())
    recipe = recipe_name(best, budget)
    noise = TrainingNoise(pooled([own]), f"{len(own)} runs of {best}", recipe) if len(own) > 1 else None
    return Scored(f"baseline {best}", "", facts.digests["test"], statistics, noise=noise)
