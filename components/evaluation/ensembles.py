"""Systems whose answer is the mean of others' answers (Howard and Ruder 2018: a forward and a backward model)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.evaluation.results import DevSplit, Run
from components.evaluation.statistics import Layout, row_statistics, scores

Probabilities = NDArray[np.float32]


def ensemble_runs(
    runs: Sequence[Run], ensembles: Mapping[str, Sequence[str]], *, dev: Mapping[str, DevSplit]
) -> Iterator[Run]:
    """The runs of every ensemble: one wherever all members have one of the same start, budget and seed, with the mean
    of their class probabilities. It cost what all of them did; nothing in it was trained, so its curve is one point.

    Args:
        runs: of all systems.
        ensembles: name -> families.
        dev: system -> its predictions on dev.
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
            splits = [dev[run.system] for run in members]
            means: Probabilities = np.mean([split.probabilities[budget, seed] for split in splits], axis=0)
            records = [run.record for run in members]
            record = {
                "rows": records[0]["rows"],
                "curve": [{"step": 0, "epoch": 0.0, "macro_f1": _macro_f1(splits[0].labels, means)}],
                "best_step": 0,
                "best_epoch": 0.0,
                "tokens": sum(record["tokens"] for record in records),
                "seconds": sum(record["seconds"] for record in records),
            }
            probabilities = np.mean([run.probabilities for run in members], axis=0)
            yield Run(f"{name}-{start}", name, start, budget, seed, record, probabilities)


def _macro_f1(labels: NDArray[np.int64], probabilities: Probabilities) -> float:
    layout = Layout(probabilities.shape[1], 1)
    sums = np.asarray(row_statistics(labels, probabilities, layout=layout).sum(0)).ravel()
    return float(scores(sums, layout=layout)["macro_f1"])
