"""Execution of runs, in parallel: every way to learn, its cross-validation, and the run that is kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from components.cluster.launcher import kept_processes, map_parallel
from components.core import threads
from components.core.clock import OutOfTimeError, clock, seconds_left, until
from components.core.measurements import Curve
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.data import Answer
from components.data.tasks.examples import read_facts
from components.data.tasks.results import OUT_OF_FOLD, best_score
from components.learners.finetuning.attempts import (
    PREFERRED,
    Attempt,
    Cost,
    cost_of,
    notes,
    share_left,
    shortened,
    suited_ways,
)
from components.learners.finetuning.crossvalidation import (
    Selection,
    choose_way,
    cross_validate,
    final,
    stores,
)
from components.learners.finetuning.frozen import compute_all
from components.learners.finetuning.packing import unpack
from components.learners.finetuning.runs import GroupSpec, dev_scores, execute, finished, result
from components.learners.finetuning.specs import gpu_bytes
from components.learners.task_models.features import trim
from components.learners.ways import way_of
from components.settings.cluster import ClusterSettings
from components.settings.finetune import Way
from components.training.checkpoint import CheckpointStore


@dataclass(frozen=True)
class TrainedRun:
    """A run in one way to learn: as far as its score of selection is known, or finished.

    Attributes:
        spec: of the run.
        selections: the cross-validation of each member; none where the run chose on dev.
        records: of the selection, one per member.
        stores: of the run and of everything that led to it.
        attempts: the ways to learn that were tried; empty if there is only one.
    """

    spec: GroupSpec
    selections: Sequence[Selection] = ()
    records: Sequence[Mapping[str, Any]] = ()
    stores: Sequence[CheckpointStore] = ()
    attempts: Sequence[Attempt] = ()

    @property
    def score(self) -> float:
        """Score of selection, mean over the members."""
        return sum(map(best_score, self.records)) / len(self.records)

    def attempt(self, way: Way, cost: Cost, share: float) -> Attempt:
        """The entry of the run's record. The members of a run are trained together."""
        seconds = max(record["seconds"] for record in self.records)
        minutes = cost.fixed + share * cost.steps * cost.step
        return Attempt(way, minutes, self.score, self.records[0]["tokens"], seconds, share)

    def result(self, member: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and record of one member of a finished run, as `runs.result`.

        With cross-validation, the record has the scores of the folds, and their tokens and seconds are added. With
        several ways to learn, it has `way` and `ways`, and the tokens and seconds of all of them.
        """
        tensors, record = result(self.spec, member)
        if self.selections:
            of_folds = self.selections[member].record
            record = record | of_folds | {name: record[name] + of_folds[name] for name in ("tokens", "seconds")}
        if self.attempts:
            others = [attempt for attempt in self.attempts if attempt.way != self.spec.settings.method]
            record |= {
                "way": self.spec.settings.method,
                "ways": [attempt.as_dict() for attempt in self.attempts],
                "tokens": record["tokens"] + sum(attempt.tokens for attempt in others),
                "seconds": round(record["seconds"] + sum(attempt.seconds for attempt in others), 3),
            }
        return tensors, record

    def answers(self, member: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, list[Answer]]:
        """Answers by split: of dev, or of the rows of the budget by cross-validation (`OUT_OF_FOLD`); and of test.
        `tensors`: of the member's result."""
        test = {"test": unpack("test", tensors)}
        if not self.selections:
            return {"dev": unpack("dev", tensors)} | test
        return {OUT_OF_FOLD: self.selections[member].answers} | test


@kept_processes()
def train_all(specs: Mapping[Way, Sequence[GroupSpec]], *, title: str, cluster: ClusterSettings) -> list[TrainedRun]:
    """Train every run in each way to learn, in the order of the ways, and keep one (`_best`). `specs`: way to learn ->
    all runs; the same runs in the same order for each way."""
    several = len(specs) > 1
    count = len(next(iter(specs.values())))
    candidates: list[list[TrainedRun]] = [[] for _ in range(count)]
    attempts: list[list[Attempt]] = [[] for _ in range(count)]
    # Each run's ways in order, without those that its number of rows rules out.
    suited = [suited_ways({way: of_way[run] for way, of_way in specs.items()}) for run in range(count)]
    for way, of_way in specs.items():
        is_late = seconds_left() < 0
        costs = [cost_of(spec) if several and not is_late else Cost(0.0) for spec in of_way]
        shares = [
            share_left(spec, cost, tried, ways=ways)
            for spec, cost, tried, ways in zip(of_way, costs, attempts, suited, strict=True)
        ]
        few = {run for run in range(count) if way not in suited[run]}
        for line in notes(of_way[0].settings, costs, shares, few=few):
            print(f"{title} {way}: {line}", flush=True)
        tried = [run for run in range(count) if shares[run]]
        try:
            if is_late:
                raise OutOfTimeError
            trained = _candidates(
                [shortened(of_way[run], costs[run], shares[run]) for run in tried],
                title=f"{title} {way}" if several else title,
                cluster=cluster,
            )
            done = dict(zip(tried, trained, strict=True))
        except OutOfTimeError:
            clock().left_out.append(f"{title} {way}")
            done = {}
        for run, cost in enumerate(costs):
            attempt = done[run].attempt(way, cost, shares[run]) if run in done else Attempt(way, cost.minutes)
            candidates[run] += [done[run]] if run in done else []
            attempts[run].append(attempt)
    chosen, last = _finish(candidates, title=title, cluster=cluster)
    return [
        replace(
            chosen[run],
            spec=spec,
            attempts=attempts[run] if several else (),
            stores=[store for candidate in candidates[run] for store in candidate.stores] + [spec.store],
        )
        for run, spec in enumerate(last)
    ]


def _finish(
    candidates: Sequence[Sequence[TrainedRun]], *, title: str, cluster: ClusterSettings
) -> tuple[list[TrainedRun], list[GroupSpec]]:
    """The best candidate of each run, and its final run, which is finished. If there is no time for one, the encoder
    stays frozen.

    Raises:
        OutOfTimeError: a run has no candidate.
    """
    if not all(candidates):
        raise OutOfTimeError
    chosen = list(map(_best, candidates))
    if not chosen[0].selections:
        # With choices on dev, the runs are finished.
        return chosen, [each.spec for each in chosen]
    last = [final(each.spec, each.selections) for each in chosen]
    try:
        execute_all(last, title=title, cluster=cluster)
    except OutOfTimeError:
        clock().left_out.append(f"{title} {last[0].settings.method}")
        frozen = [[each for each in run if not way_of(each.spec.settings).trains_encoder] for run in candidates]
        if not all(frozen):
            raise
        chosen = list(map(_best, frozen))
        last = [final(each.spec, each.selections) for each in chosen]
        # The processes have ended; its features are there.
        with until(math.inf), threads.limited(1), threadpool_limits(1, user_api="blas"):
            compute_all((member for spec in last for member in spec.members), cluster=cluster)
            for spec in last:
                execute(spec)
    return chosen, last


def _best(candidates: Sequence[TrainedRun]) -> TrainedRun:
    """The candidate with the highest score on dev, the first at a tie; with cross-validation the first one that is not
    worse than the best by more than one standard error, the preferred one (`PREFERRED`) before the others."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates[0].selections:
        return max(candidates, key=lambda candidate: candidate.score)
    ordered = sorted(candidates, key=lambda candidate: candidate.spec.settings.method != PREFERRED)
    best, selection = choose_way([each.spec for each in ordered], [each.selections[0] for each in ordered])
    return replace(ordered[best], selections=[selection])


def _candidates(specs: Sequence[GroupSpec], *, title: str, cluster: ClusterSettings) -> list[TrainedRun]:
    if not specs:
        return []
    if read_facts(specs[0].members[0].examples).selection == "dev":
        execute_all(specs, title=title, cluster=cluster)
        records = [[result(spec, member)[1] for member in range(len(spec.members))] for spec in specs]
        return [TrainedRun(spec, (), values, [spec.store]) for spec, values in zip(specs, records, strict=True)]
    compute_all((member for spec in specs for member in spec.members), cluster=cluster)
    return [
        TrainedRun(spec, values, [each.record for each in values], list(stores(spec)))
        for spec, values in zip(specs, cross_validate(specs, title=title, cluster=cluster), strict=True)
    ]


def execute_all(specs: Sequence[GroupSpec], *, title: str, cluster: ClusterSettings) -> None:
    """Execute the runs that are not finished, in parallel.

    Args:
        specs: all runs, the longest first, so that no core is idle while the last run finishes.
        title: of the progress line.
        cluster: where the runs are executed.
    """
    left = [spec for spec in specs if not finished(spec)]
    compute_all((member for spec in left for member in spec.members), cluster=cluster)
    with Progress(title, total=len(specs), unit="run", done=len(specs) - len(left)) as bar:
        needed = gpu_bytes(member for spec in left for member in spec.members)
        for index, records in map_parallel(execute, left, settings=cluster, gpu_bytes=needed):
            # A run on another node writes no measurements itself.
            curve = Curve(left[index].title)
            for point, result in enumerate(records[0]["curve"]):
                loss = {"loss": result["train_loss"]} if len(records) == 1 else {}
                curve.add(result["step"], **loss, **dev_scores(records, left[index].tasks, point=point))
            scores = {
                f"{task or 'dev'}_{record['score']}": round(best_score(record), 4)
                for task, record in zip(left[index].tasks, records, strict=True)
                if record["curve"]
            }
            bar.advance(1, labels=budget_name(records[0]["budget"]), **scores)


def clear(runs: Sequence[TrainedRun], *, cluster: ClusterSettings) -> None:
    """Remove the checkpoints of finished runs, and trim the cache of features."""
    for run in runs:
        for store in run.stores:
            store.clear()
    trim(Path(cluster.features), gigabytes=8)
