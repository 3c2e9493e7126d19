"""What a candidate is compared with while there is no champion: the best baseline, or another system of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from components.artifacts import read_manifest
from components.errors import ArtifactError
from components.registry.runs import BASELINES, results_of
from components.registry.scored import Scored
from components.scoring import Scoring
from components.tasks.data import Split
from components.tasks.examples import TaskFacts
from components.tasks.results import KIND, read_averages

#: In place of the name of a system: the baseline with the highest score on test. Choosing it on test favours the
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
    rival: str,
) -> Scored | None:
    """A system of the same run, to compare the candidate's system with: the answers of its stored model
    (`components.tasks.results.read_averages`).

    Args:
        finetuned: folder of the task's results.
        facts: of the task.
        split: the test split.
        scoring: of the task.
        metric: name of the metric.
        system: the candidate's system.
        rival: name of the system, or `BEST_BASELINE`.

    Returns:
        None if there are no results, or if the candidate is a baseline and the rival the best baseline: such a
        candidate is compared with the constant prediction. A `Scored` without statistics if the results cannot be read.
    """
    named = None if rival == BEST_BASELINE else rival
    directory = finetuned / BASELINES if named is None else results_of(finetuned, named)
    if named is None and (not directory.is_dir() or results_of(finetuned, system) == directory):
        return None
    try:
        if read_manifest(directory, kind=KIND).facts.get("examples", {}).get("test") != facts.digests["test"]:
            raise ArtifactError(f"{directory}: made from another version of the test rows; run its stage again")
        found = {}
        for name, average in read_averages(directory, averages=scoring.averages).items():
            if named not in (None, name):
                continue
            if len(average.answers) != len(split):
                raise ArtifactError(
                    f"{directory}: {len(average.answers)} predictions for {len(split)} test rows; run its stage again"
                )
            answers = scoring.renamed(average.answers, facts.labels)
            statistics = scoring.statistics(split.fields, split.targets, answers)
            found[name] = statistics, float(scoring.scores(statistics.sum(0))[metric])
    except ArtifactError as error:
        return Scored(rival, "", facts.digests["test"], None, problem=str(error))
    if not found:
        return None
    best = max(found, key=lambda name: found[name][1])
    name = f"baseline {best}" if directory.name == BASELINES else best
    return Scored(name, "", facts.digests["test"], found[best][0])
