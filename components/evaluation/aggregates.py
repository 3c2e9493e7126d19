"""Cells: one system at one label budget with all its seeds, read from the runs of fine-tuning and of the baselines, and
scored on the same test rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.artifacts import json_of, read_manifest
from components.core.errors import ArtifactError
from components.data.scoring import Scoring
from components.data.scoring.base import Floats, Vectors
from components.data.scoring.intervals import (
    CONFIDENCE,
    Interval,
    Ints,
    TrainingNoise,
    clusters_within,
    interval,
    left_out,
    sizes_of,
    training_noise,
)
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_split, strata_of
from components.data.tasks.results import KIND, OUT_OF_FOLD, best_score, read_answers
from components.settings.evaluate import EvaluateSettings

#: A JSON object, such as a row of a table in evaluation.json.
Json = dict[str, Any]
#: `data.tasks.<name>.selection` -> split of the predictions by which choices are made.
SELECTION = {"dev": "dev", "budget": OUT_OF_FOLD}


@dataclass(frozen=True)
class Run:
    """A run of a system. `start`: how the encoder was initialised, such as `adapted`."""

    system: str
    family: str
    start: str
    budget: int
    seed: int
    record: Json
    answers: Vectors


@dataclass(frozen=True)
class TestSplit:
    """The test rows of a task."""

    __test__ = False  # excluded from pytest's collection of classes named Test*

    facts: TaskFacts
    rows: Split


def read_runs(directory: Path, *, test: TestSplit) -> Iterator[Run]:
    """The runs of one output directory of `finetune` or `baseline`."""
    made_from, digests = read_manifest(directory, kind=KIND).facts["examples"], test.facts.digests
    if made_from != digests:
        changed = ", ".join(name for name, digest in digests.items() if made_from.get(name) != digest)
        raise ArtifactError(f"{directory}: made from another version of the task's data ({changed}); fine-tune again")
    records = {
        (record["system"], record["budget"], record["seed"]): record for record in json_of(directory / "runs.json")
    }
    predicted = read_answers(directory, "test")
    for (system, budget, seed), record in records.items():
        answers = predicted.get((system, budget, seed), [])
        if len(answers) != len(test.rows):
            raise ArtifactError(
                f"{directory}: {system}, budget {budget}, seed {seed} has {len(answers)} predictions for "
                f"{len(test.rows)} test rows; fine-tune again"
            )
        yield Run(system, record["family"], record["start"], budget, seed, record, answers)


def rows_of_selection(examples: Path, facts: TaskFacts) -> Callable[[int, int], Split]:
    """(budget, seed) -> the rows on which choices are made: dev, or the training rows of the label budget."""
    if facts.selection == "dev":
        dev = read_split(examples, "dev")
        return lambda budget, seed: dev
    train = read_split(examples, "train")
    strata = strata_of(train, facts.kind)
    return lambda budget, seed: train.take(sample_rows(strata, budget, seed=seed)[0])


@dataclass(frozen=True)
class Scores:
    """One number of S runs, such as a metric, with what its interval needs.

    Attributes:
        values: (S, 1 + G): the number, followed by that without each of G clusters of test rows.
        sizes: (G,) rows of the clusters; None: the number does not come from test rows (G = 0).
        noise: of training, pooled over systems; None: estimated from the runs.
        of: the runs (S,) that `noise` is about: one system's, or those of both systems of a difference.
    """

    seeds: Sequence[int]
    values: Floats
    sizes: Floats | None = None
    noise: TrainingNoise | None = None
    within: tuple[float, float] = (-math.inf, math.inf)
    of: Sequence[Floats] = ()

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        training = None if self.noise is None else self.noise.of(*(self.of or [self.values[:, 0]]))
        without = None if self.sizes is None else self.values[:, 1:]
        means = self.values[:, 0]
        return interval(means, without, self.sizes, confidence=confidence, training=training, within=self.within)

    def at(self, seeds: Sequence[int]) -> Floats:
        return self.values[[list(self.seeds).index(seed) for seed in seeds]]

    def minus(self, other: Scores) -> Scores:
        """The difference to the runs of the same seeds, paired by seed and by test row."""
        seeds = sorted(set(self.seeds) & set(other.seeds))
        runs = [self.values[:, 0], other.values[:, 0]]
        noise = self.noise if self.noise == other.noise else None
        return Scores(seeds, self.at(seeds) - other.at(seeds), self.sizes, noise, of=runs)


def measured(
    matrices: Sequence[sparse.csr_array], clusters: Ints | None, scores: Callable[[Floats], dict[str, Floats]]
) -> dict[str, Floats]:
    """Metric -> (S, 1 + G): of each of S runs, followed by those without each cluster. `matrices`: (N, K) each."""
    # One run at a time: the sums without each cluster are large if there are many classes.
    pairs = [(scores(np.asarray(matrix.sum(0))), left_out(matrix, clusters, scores)) for matrix in matrices]
    return {name: np.stack([np.append(whole[name], without[name]) for whole, without in pairs]) for name in pairs[0][0]}


@dataclass(frozen=True)
class Cell:
    """One system at one budget (negative: all labels). S seeds, N test rows, K statistics of the task's scoring.
    `rows`: S matrices (N, K). `metrics`: name -> its values with those without each cluster."""

    system: str
    budget: int
    runs: list[Run]
    rows: list[sparse.csr_array]
    metrics: dict[str, Scores]
    scoring: Scoring

    @property
    def scores(self) -> Scores:
        """The primary metric."""
        return self.metrics[self.scoring.main]

    @property
    def seeds(self) -> Sequence[int]:
        return self.scores.seeds

    @property
    def labels(self) -> float:
        """Mean number of training rows per class, or of rows if the task's budgets count rows."""
        return mean_of([run.record["rows"] for run in self.runs]) / self.scoring.strata

    @cached_property
    def sums(self) -> Floats:
        """(S, K) statistics, summed over the test rows."""
        return np.stack([matrix.sum(0) for matrix in self.rows])

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """Metric -> interval of its mean over seeds."""
        return {name: of.interval() for name, of in self.metrics.items()}

    @property
    def main(self) -> Interval:
        """The interval of the primary metric."""
        return self.intervals[self.scoring.main]

    @property
    def selection(self) -> float:
        """The best value of the primary metric on dev or in cross-validation, mean over seeds."""
        return mean_of([best_score(run.record) for run in self.runs])

    def _ways(self) -> Json:
        """`ways`: each way to learn that was tried, with its mean score of selection; empty if there was only one."""
        records = [run.record for run in self.runs if "ways" in run.record]
        every, scored = [attempt for record in records for attempt in record["ways"]], []
        for way in dict.fromkeys(attempt["way"] for attempt in every):
            attempts = [attempt for attempt in every if attempt["way"] == way]
            tried = [attempt for attempt in attempts if attempt["score"] is not None]
            score, share = (mean_of([of[key] for of in tried]) if tried else None for key in ("score", "share"))
            scored.append(
                {
                    "way": way,
                    "score": score,
                    "tried": len(tried),
                    "share": share or 0.0,
                    "kept": sum(record["way"] == way for record in records),
                    "seconds": mean_of([attempt["seconds"] for attempt in attempts]),
                }
            )
        return {"ways": scored} if scored else {}

    def as_dict(self, test: TestSplit) -> Json:
        """The cell as in evaluation.json."""
        scoring, main = self.scoring, self.scoring.main
        targets = test.rows.targets
        confused = [scoring.confusion(targets, run.answers) for run in self.runs]
        counts = [matrix for matrix in confused if matrix is not None]
        slices = {}
        for name, members in slice_members(test.rows.slices).items():
            sums = [np.asarray(scoring.of_part(matrix[members]).sum(0), dtype=np.float64) for matrix in self.rows]
            scored = scoring.scores(np.stack(sums))
            slices[name] = {"rows": len(members), **{score: mean_of(scored[score]) for score in scoring.names}}
        records = [run.record for run in self.runs]
        times = np.asarray([record["seconds"] for record in records], dtype=np.float64)
        tokens = sum(record["tokens"] for record in records)
        return {
            "budget": self.budget,
            "labels": self.labels,
            "seeds": self.seeds,
            "scores": {
                name: {**self.intervals[name].as_dict(), "seeds": of.values[:, 0].tolist()}
                for name, of in self.metrics.items()
            },
            "per_class": scoring.classes(self.sums.mean(0)),
            "slices": slices,
            "confusion": sum(counts[1:], counts[0]).tolist() if counts else [],
            "calibration": scoring.calibration(self.sums.mean(0)),
            "training": {
                "seconds": interval(times, confidence=CONFIDENCE).as_dict(),
                "tokens_per_second": tokens / times.sum() if times.any() else 0.0,
                "best_epoch": mean_of([record["best_epoch"] for record in records]),
                "left_out": sum(len(record["curve"]) > 1 and not record["best_step"] for record in records),
                "label_names": sum(bool(record.get("label_names")) for record in records),
                f"selection_{main}": self.selection,
            },
            **self._ways(),
        }


def make_cells(
    runs: Sequence[Run], test: TestSplit, settings: EvaluateSettings, *, scoring: Scoring
) -> dict[tuple[str, int], Cell]:
    """Group runs by (system, budget), in the order of the runs, and compute their metrics."""
    clusters = clusters_within(test.rows.clusters, np.arange(len(test.rows)))
    sizes, grouped = sizes_of(clusters, len(test.rows)), dict[tuple[str, int], list[Run]]()
    for run in runs:
        grouped.setdefault((run.system, run.budget), []).append(run)
    cells = {}
    for key, group in grouped.items():
        ordered = sorted(group, key=lambda run: run.seed)
        rows = [scoring.statistics(test.rows.fields, test.rows.targets, run.answers) for run in ordered]
        values, seeds = measured(rows, clusters, scoring.scores), [run.seed for run in ordered]
        metrics = {name: Scores(seeds, values[name], sizes, within=scoring.ranges[name]) for name in scoring.names}
        cells[key] = Cell(*key, ordered, rows, metrics, scoring)
    # Training noise is pooled over the systems with all seeds; ensembles are no runs of their own.
    trained = [cell for cell in cells.values() if cell.runs[0].family not in settings.ensembles]
    noises = dict[tuple[int, str], TrainingNoise | None]()
    for budget, name in product(budgets_of(cells), scoring.names):
        of = [cell.metrics[name] for cell in trained if cell.budget == budget]
        most = max((each.seeds for each in of), key=len, default=[])
        kept = [each.values[:, 0] for each in of if each.seeds == most]
        noises[budget, name] = training_noise(np.asarray(kept))
    return {
        key: replace(cell, metrics={name: replace(of, noise=noises[key[1], name]) for name, of in cell.metrics.items()})
        for key, cell in cells.items()
    }


def budgets_of(cells: Mapping[tuple[str, int], Cell]) -> list[int]:
    """The budgets in ascending order; the budget of all labels is last."""
    return sorted({budget for _, budget in cells}, key=lambda budget: (budget < 0, budget))


def curve_of(cells: Mapping[tuple[str, int], Cell], system: str) -> list[Cell]:
    """The cells of a system by budget, the largest last."""
    return [cells[system, budget] for budget in budgets_of(cells) if (system, budget) in cells]


def unit(scoring: Scoring) -> str:
    return "labels a class" if scoring.strata > 1 else "labelled rows"


def slice_members(slices: Sequence[str | None]) -> dict[str, NDArray[np.int64]]:
    """Name of a slice -> indices of its rows."""
    names = np.asarray([name or "" for name in slices])
    return {str(name): np.flatnonzero(names == name) for name in np.unique(names) if name}


def mean_of(values: Sequence[float] | Floats) -> float:
    return float(np.mean(values))
