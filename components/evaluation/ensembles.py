"""Ensembles: systems that average the predictions of others (Howard and Ruder 2018: forward and backward model)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.evaluation.results import Answers, Run
from components.scoring import Scoring
from components.scoring.base import Vectors
from components.tasks.data import Split


def ensemble_runs(
    runs: Sequence[Run],
    ensembles: Mapping[str, Sequence[str]],
    *,
    chosen: Mapping[str, Answers],
    rows: Callable[[int, int], Split],
    scoring: Scoring,
) -> Iterator[Run]:
    """The runs of every ensemble: one for each start, budget and seed that all members have, with the mean of their
    predictions. Its cost is the sum of the members' costs. An ensemble is not trained, so its training curve has one
    point.

    Args:
        runs: of all systems.
        ensembles: name -> families.
        chosen: system -> its predictions of the rows of selection.
        rows: (budget, seed) -> these rows.
        scoring: of a task whose predictions can be averaged (`Scoring.averages`).
    """
    for name, families in ensembles.items():
        found: dict[tuple[str, int, int], dict[str, Run]] = {}
        for run in runs:
            if run.family in families:
                found.setdefault((run.start, run.budget, run.seed), {})[run.family] = run
        for (start, budget, seed), by_family in found.items():
            if by_family.keys() != set(families):
                continue
            members = list(by_family.values())
            predicted, held = _mean([chosen[run.system][budget, seed] for run in members]), rows(budget, seed)
            records = [run.record for run in members]
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
            answers = _mean([run.answers for run in members])
            yield Run(f"{name}-{start}", name, start, budget, seed, record, answers)


def _mean(answers: Sequence[Vectors]) -> list[NDArray[np.float32]]:
    """The mean prediction of several systems for each row."""
    return [np.mean(row, axis=0) for row in zip(*answers, strict=True)]
