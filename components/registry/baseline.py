"""What a candidate is compared with while there is no champion: the best baseline, or another system of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from components.errors import ArtifactError
from components.registry.comparison import TrainingNoise
from components.registry.noise import best_seed, pooled, read_test_scores, recipe_name
from components.registry.runs import BASELINES, results_of
from components.registry.scored import Scored
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
    candidate's classifier, and the training noise of the gain is the variance of the paired differences between seeds.
    Without runs of the same seeds, the rival has its seed with the best score of selection and a noise of its own.

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
        theirs = systems[best]
        own = {seed: score for (_, _, seed), score in read(challengers, system).items()}
        common = sorted(own.keys() & theirs.keys()) if size == budget else []
        chosen = best_seed(challengers, system=system, budget=budget)
        paired = len(common) > 1 and chosen in common
        seed = chosen if paired else best_seed(directory, system=best, budget=size)
        answers = scoring.renamed(read_answers(directory, "test")[best, size, seed], facts.labels)
        statistics = scoring.statistics(split.fields, split.targets, answers)
    except ArtifactError as error:
        return Scored(rival, "", facts.digests["test"], None, problem=str(error))
    recipe = recipe_name(best, size)
    noise = paired_noise = None
    if paired:
        differences = [own[seed] - theirs[seed] for seed in common]
        source = f"{len(common)} pairs of runs of {system} and {best} on the same labels"
        paired_noise = TrainingNoise(pooled([differences]), source, f"{system}, {recipe}")
    elif len(theirs) > 1:
        noise = TrainingNoise(pooled([list(theirs.values())]), f"{len(theirs)} runs of {best}", recipe)
    name = f"baseline {best}" if directory.name == BASELINES else best
    return Scored(name, "", facts.digests["test"], statistics, noise=noise, paired_noise=paired_noise)
