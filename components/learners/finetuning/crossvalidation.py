"""Choices within a label budget by cross-validation (`data.tasks.<name>.selection: budget`).

No label outside the budget is used (Perez et al. 2021, "True few-shot learning with language models"). The rows of a
run are divided into folds; each fold is predicted by a run that has learned from the others, without copies of the
fold's rows and rows of the same group. By these predictions, the first candidate is chosen that is not worse than the
best one by more than one standard error (`components.learners.select`):

1. The L2 penalty of a head that is solved on frozen features, the largest first. With `head_norm: auto` also the
   normalisation of its inputs, with `label_names: auto` whether the names of the labels are training texts, and with
   `class_weight: auto` the weight of the classes, `balanced` first. The run of a fold has the candidate that is
   chosen on the other folds.
2. The evaluation at which the run ends: the points of the schedule in order. Point 0 is the head on the frozen encoder.
   Some ways to learn prefer the end of their schedule (`Way.prefers_end`).

For the score (`selected`), each fold is predicted at the point that is chosen on the other folds. The final run learns
from all rows with the same schedule and ends at the chosen point.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.cluster.launcher import map_parallel
from components.core.processors import cores
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.data import Answer
from components.data.tasks.examples import read_facts
from components.learners.base import Rows, per_row
from components.learners.finetuning.member import Member
from components.learners.finetuning.packing import held, unpack
from components.learners.finetuning.runs import (
    GroupSpec,
    evaluations_at,
    execute,
    finished,
    result,
    schedule_of,
)
from components.learners.finetuning.specs import (
    Chosen,
    RunSpec,
    gpu_bytes,
    load_initial_encoder,
    number_of_folds,
    rows_of,
)
from components.learners.select import Choice, choose_of
from components.learners.task_models.heads import CalibratedHead
from components.learners.task_models.kinds import find_task
from components.learners.task_models.probe import HeadCandidate
from components.learners.ways import way_of
from components.settings.cluster import ClusterSettings
from components.training.checkpoint import CheckpointStore


@dataclass(frozen=True)
class Selection:
    """Result of the cross-validation of one member of a run.

    Attributes:
        chosen: for the final run.
        answers: predictions of the rows of the budget, in the order of their indices, each by the run that has not
            learned from it, at the point that is chosen on the other folds.
        record: entries of the run's record: `score`, `curve` with the scores of all folds together at every point, the
            index of the `chosen` point, `by_fold` with the way and the choices (`Chosen`) that are made without each
            fold, `selected` with the scores of `answers`, `penalty`, `penalties`, `head_norm`,
            `label_names`, `class_weight`, `folds`, and the `tokens` and `seconds` of all folds.
    """

    chosen: Chosen
    answers: list[Answer]
    record: dict[str, Any]


def cross_validate(specs: Sequence[GroupSpec], *, title: str, cluster: ClusterSettings) -> list[list[Selection]]:
    """The choices of each run, one per member. What earlier, interrupted calls have finished is not repeated.

    Args:
        specs: runs without fold and choices.
        title: of the progress line.
        cluster: where the folds are trained.

    Raises:
        ConfigError: a budget has fewer than two rows.
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
    """
    needed = gpu_bytes(member for spec in specs for member in spec.members)
    heads = dict(map_parallel(_heads, specs, settings=cluster, gpu_bytes=needed))
    folds = [(number, fold) for number, spec in enumerate(specs) for fold in _folds(spec, heads[number])]
    left = [fold for _, fold in folds if not finished(fold)]
    with Progress(f"{title} folds", total=len(folds), unit="run", done=len(folds) - len(left)) as bar:
        for _, records in map_parallel(execute, left, settings=cluster, gpu_bytes=needed):
            bar.advance(1, labels=budget_name(records[0]["budget"]))
    return [
        [
            _select(spec, member, [fold for run, fold in folds if run == number], heads[number][member])
            for member in range(len(spec.members))
        ]
        for number, spec in enumerate(specs)
    ]


def final(spec: GroupSpec, selections: Sequence[Selection]) -> GroupSpec:
    """The run that learns from all rows with the chosen settings."""
    members = (replace(member, chosen=result.chosen) for member, result in zip(spec.members, selections, strict=True))
    return replace(spec, members=tuple(members))


def stores(spec: GroupSpec) -> Iterator[CheckpointStore]:
    """The stores of everything that a run's cross-validation has written."""
    for fold in range(max(map(number_of_folds, spec.members))):
        yield CheckpointStore(spec.members[0].storage, key=f"{spec.key}-fold{fold}")


def uncalibrated(spec: GroupSpec, member: int, *, stop: int) -> list[Answer]:
    """The predictions of the rows of a member's budget out of fold after evaluation `stop`, before `Head.calibrate`.

    Args:
        spec: a run whose folds are stored.
    """
    count = min(map(number_of_folds, spec.members))
    of_folds = [result(replace(spec, key=f"{spec.key}-fold{fold}"), member)[0] for fold in range(count)]
    return _rows(spec.members[member], count).joined([unpack(held(stop), tensors) for tensors in of_folds])


@dataclass(frozen=True)
class _Head:
    """The choice of a member's head.

    Attributes:
        candidates: the simplest first; empty for a head that is not solved.
        choice: of one of them.
        scores: of every candidate.
    """

    candidates: Sequence[HeadCandidate] = ()
    choice: Choice | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def chosen(self, fold: int | None) -> Chosen:
        """The choices of the run of a fold, or of the final run."""
        if self.choice is None:
            return Chosen()
        return Chosen(self.candidates[self.choice.index if fold is None else self.choice.by_fold[fold]])


def _folds(spec: GroupSpec, heads: Sequence[_Head]) -> Iterator[GroupSpec]:
    """The runs of a cross-validation; every member has the same number of folds. No member reads what belongs to the
    rows on which another one is scored."""
    count = min(map(number_of_folds, spec.members))
    at_once = min(count, cores())
    for fold in range(count):
        members = [
            replace(
                member, fold=fold, folds=count, chosen=head.chosen(fold), rounds=1 + math.ceil((count - fold) / at_once)
            )
            for member, head in zip(spec.members, heads, strict=True)
        ]
        if len(members) > 1:
            held = frozenset[bytes]().union(*(rows_of(member).left_out for member in members))
            members = [replace(member, left_out=held) for member in members]
        yield replace(spec, members=tuple(members), key=f"{spec.key}-fold{fold}")


def _heads(spec: GroupSpec) -> list[_Head]:
    """The choice of each member's head."""
    encoder, tokenizer = load_initial_encoder(spec.members[0])
    by_fold = [
        [Member(member, encoder, tokenizer) for member in fold.members]
        for fold in _folds(spec, [_Head()] * len(spec.members))
    ]
    heads: list[_Head] = []
    for number, member in enumerate(spec.members):
        of_folds = [members[number] for members in by_fold]
        if not of_folds[0].is_solved:
            heads.append(_Head())
            continue
        answers = [item.answers_by_candidate() for item in of_folds]
        rows = _rows(member, len(by_fold))
        # Of equal penalties, first with names, then with class weights, then the first normalisation.
        candidates = sorted(answers[0], key=lambda candidate: -candidate.penalty)
        tried = [_calibrated(member, rows, [item[candidate] for item in answers])[0] for candidate in candidates]
        scores = [rows.score(each)[rows.scoring.main] for each in tried]
        heads.append(_Head(candidates, choose_of(rows, tried), dict(zip(map(str, candidates), scores, strict=True))))
    return heads


def _rows(spec: RunSpec, folds: int) -> Rows:
    return Rows.of(spec.examples, spec.budget, spec.seed, most=folds)


def _calibrated(spec: RunSpec, rows: Rows, by_fold: Sequence[Sequence[Answer]]) -> tuple[list[Answer], float | None]:
    """The predictions of the folds in the order of the rows after `Head.calibrate`, and the parameter that it has
    fitted; None: the head has none."""
    facts, raw = read_facts(spec.examples), rows.joined(by_fold)
    head = find_task(facts.kind).head(spec.settings, 1, facts.labels)
    answers = head.calibrate(lambda: raw, per_row(rows.scoring, rows.labelled))
    return answers, head.calibration if isinstance(head, CalibratedHead) else None


def _select(spec: GroupSpec, member: int, folds: Sequence[GroupSpec], heads: _Head) -> Selection:
    rows = _rows(spec.members[member], len(folds))
    results = [result(fold, member) for fold in folds]
    epoch = epoch_of(spec)
    steps, evaluations = schedule_of(spec, epoch=epoch)
    step_of = {number: step for step, numbers in evaluations_at(steps, count=evaluations).items() for number in numbers}
    curve: list[dict[str, Any]] = []
    points: list[tuple[Chosen, list[Answer]]] = []
    for number in range(evaluations + 1):
        # A run of which nothing is left to train has one point.
        if f"{held(number)}.lengths" not in results[0][0]:
            continue
        by_fold = [unpack(held(number), tensors) for tensors, _ in results]
        answers, calibration = _calibrated(spec.members[member], rows, by_fold)
        scores, step = rows.score(answers), step_of.get(number, 0)
        if curve and step == curve[-1]["step"]:
            continue
        points.append((replace(heads.chosen(None), stop=number, calibration=calibration), answers))
        curve.append({"step": step, "epoch": round(step / epoch, 3), "train_loss": None, **scores})
    order = list(range(len(curve)))
    if way_of(spec.settings).prefers_end:
        order.reverse()
    choice = choose_of(rows, [points[point][1] for point in order])
    chosen = points[order[choice.index]][0]
    way = spec.settings.method
    choices = [
        {"way": way, "stop": points[order[choice.by_fold[fold]]][0].stop} | recorded(heads.chosen(fold).head)
        for fold in range(len(folds))
    ]
    records = [record for _, record in results]
    return Selection(
        chosen,
        choice.answers,
        {
            "curve": curve,
            "chosen": order[choice.index],
            "by_fold": choices,
            "selected": rows.score(choice.answers),
            "score": rows.scoring.main,
            "folds": len(folds),
            **{name: sum(record[name] for record in records) for name in ("tokens", "seconds")},
            **({"penalties": dict(heads.scores)} if heads.candidates else {}),
            **recorded(chosen.head),
        },
    )


def recorded(head: HeadCandidate | None) -> dict[str, Any]:
    """Entries of a record; empty for a head that is not solved."""
    return {} if head is None else head.record


def choose_way(specs: Sequence[GroupSpec], selections: Sequence[Selection]) -> tuple[int, Selection]:
    """The choice of one of several ways to learn of a run with one member: its index, and its cross-validation with the
    predictions and scores of the ways that are chosen without the row's fold.

    Args:
        specs: the run in each way, the preferred one first.
        selections: of each way.
    """
    spec = specs[0].members[0]
    rows = Rows.of(spec.examples, spec.budget, spec.seed)
    choice = choose_of(rows, [each.answers for each in selections])
    best = selections[choice.index]
    by_fold = [selections[choice.by_fold[fold]].record["by_fold"][fold] for fold in rows.fold_numbers]
    record = best.record | {"selected": rows.score(choice.answers), "by_fold": by_fold}
    return choice.index, replace(best, answers=choice.answers, record=record)


def epoch_of(spec: GroupSpec) -> int:
    """Steps per epoch of the final run, over all members."""
    size = spec.settings.step_rows
    return sum(-(-len(rows_of(member).labelled) // size) for member in spec.members)
