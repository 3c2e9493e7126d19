"""What a candidate is compared with while there is no champion: the best baseline, or another system of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from components.errors import ArtifactError
from components.registry.runs import BASELINES, results_of
from components.registry.scored import Scored
from components.registry.test_scores import best_seed, read_test_scores
from components.scoring import Scoring
from components.tasks.data import Split
from components.tasks.examples import TaskFacts
from components.tasks.results import RunKey, read_answers

#: In place of the name of a system: the baseline with the highest mean test score. Choosing it on test favours the
#: baselines.
BEST_BASELINE: Final = "the best baseline"


def rival_of(
    finetuned: Path,
    *,
    facts: TaskFacts,
    split: Split,
    scoring: Scoring,
    metric: str,
    system: str,
    budget: int,
    rival: str,
) -> Scored | None:
    """A system of the same run, to compare the candidate's system with.

    Systems of one seed are trained on the same labels. So the rival is represented by its run with the seed of the
    candidate's classifier, or without one by its seed with the best score of selection.

    Args:
        finetuned: folder of the task's results.
        facts: of the task.
        split: the test split.
        scoring: of the task.
        metric: name of the metric.
        system: the candidate's system.
        budget: label budget of the candidate (-1: all labels); the largest one of the rival if it lacks it.
        rival: name of the system, or `BEST_BASELINE`.

    Returns:
        None if there are no results, or if the candidate is a baseline and the rival the best baseline: such a
        candidate is compared with the constant prediction. A `Scored` without statistics if the results cannot be read.
    """
    named = None if rival == BEST_BASELINE else rival
    directory = finetuned / BASELINES if named is None else results_of(finetuned, named)
    challengers = results_of(finetuned, system)
    if named is None and (not directory.is_dir() or challengers == directory):
        return None

    def read(folder: Path, name: str | None = None) -> dict[RunKey, float]:
        return read_test_scores(
            folder, facts=facts, split=split, scoring=scoring, metric=metric, budget=budget, system=name
        )

    try:
        scores = read(directory, named)
        if not scores:
            return None
        size = next(iter(scores))[1]
        systems: dict[str, dict[int, float]] = {}
        for (name, _, seed), score in scores.items():
            systems.setdefault(name, {})[seed] = score
        best = max(systems, key=lambda name: float(np.mean(list(systems[name].values()))))
        seed = best_seed(challengers, system=system, budget=budget)
        if size != budget or seed not in systems[best]:
            seed = best_seed(directory, system=best, budget=size)
        answers = scoring.renamed(read_answers(directory, "test")[best, size, seed], facts.labels)
        statistics = scoring.statistics(split.fields, split.targets, answers)
    except ArtifactError as error:
        return Scored(rival, "", facts.digests["test"], None, problem=str(error))
    name = f"baseline {best}" if directory.name == BASELINES else best
    return Scored(name, "", facts.digests["test"], statistics)
