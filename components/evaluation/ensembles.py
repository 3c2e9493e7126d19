"""Ensembles: systems that average the predictions of others (Howard and Ruder 2018: forward and backward model)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from components.data.scoring import Scoring
from components.data.tasks.data import Split, mean_answers
from components.evaluation.results import Answers, Run
from components.settings.names import BASELINE

#: Start of baselines in results.
NO_START: Final = "none"


def ensemble_runs(
    runs: Sequence[Run],
    ensembles: Mapping[str, Sequence[str]],
    *,
    chosen: Mapping[str, Answers],
    rows: Callable[[int, int], Split],
    scoring: Scoring,
) -> Iterator[Run]:
    """The runs of every ensemble, with the mean of their members' predictions.

    There is one for each start, budget and seed that all members have; a baseline has no start and suits each.

    The cost of an ensemble is the sum of the members' costs. It is not trained, so its training curve has one point.
    `ensembles`: name -> members: families, at least one, and names of baselines.
    """
    for name, members in ensembles.items():
        for (start, budget, seed), group in _of_members(runs, members):
            held = rows(budget, seed)
            predicted = mean_answers([chosen[run.system][run.budget, run.seed] for run in group])
            records = [run.record for run in group]
            record = {
                "rows": records[0]["rows"],
                "score": scoring.main,
                "curve": [{"step": 0, "epoch": 0.0, **scoring.score(held.fields, held.targets, predicted)}],
                **({"folds": records[0]["folds"]} if "folds" in records[0] else {}),
                "best_step": 0,
                "best_epoch": 0.0,
                "tokens": sum(record["tokens"] for record in records),
                "seconds": sum(record["seconds"] for record in records),
            }
            answers = mean_answers([run.answers for run in group])
            yield Run(f"{name}-{start}", name, start, budget, seed, record, answers)


def member_of(run: Run) -> str:
    """The name by which an ensemble names a run's system."""
    return run.system if run.family == BASELINE else run.family


def _of_members(runs: Sequence[Run], members: Sequence[str]) -> Iterator[tuple[tuple[str, int, int], list[Run]]]:
    grouped: dict[tuple[str, int, int], dict[str, Run]] = {}
    for run in runs:
        if member_of(run) in members:
            grouped.setdefault((run.start, run.budget, run.seed), {})[member_of(run)] = run
    for (start, budget, seed), of_start in grouped.items():
        together = grouped.get((NO_START, budget, seed), {}) | of_start
        if start != NO_START and together.keys() == set(members):
            yield (start, budget, seed), [together[member] for member in dict.fromkeys(members)]
