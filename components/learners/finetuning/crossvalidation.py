"""Choices within a label budget by cross-validation (`data.tasks.<name>.selection: budget`).

No label outside the budget is used (Perez et al. 2021, "True few-shot learning with language models"). The rows of a
run are divided into folds; each fold is predicted by a run that has learned from the others, without copies of the
fold's rows and rows of the same group. By these predictions, the first candidate is chosen that is not worse than the
best one by more than one standard error (`components.data.tasks.choice`):

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
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.cluster.launcher import map_parallel
from components.core.processors import cores
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.choice import Choice, choose
from components.data.tasks.data import Answer, Split
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.member import Member, per_row
from components.learners.finetuning.packing import held, unpack
from components.learners.finetuning.probe import HeadCandidate
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
from components.learners.task_models.heads import CalibratedHead
from components.learners.task_models.kinds import find_task
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
        frozen: predictions of the same rows by the head on the frozen encoder.
        record: entries of the run's record: `score`, `curve` with the scores of all folds together at every point, the
            index of the `chosen` point, `by_fold` with the way and the choices (`Chosen`) that are made without each
            fold, `selected` with the scores of `answers`, `penalty`, `penalties`, `head_norm`,
            `label_names`, `class_weight`, `folds`, and the `tokens` and `seconds` of all folds.
    """

    chosen: Chosen
    answers: list[Answer]
    frozen: list[Answer]
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
    each, count = spec.members[member], min(map(number_of_folds, spec.members))
    whole = read_split(each.examples, "train")
    by_row: dict[int, Answer] = {}
    for fold in range(count):
        rows = rows_of(replace(each, fold=fold, folds=count), whole).held
        assert rows is not None
        stored = result(replace(spec, key=f"{spec.key}-fold{fold}"), member)[0]
        by_row |= dict(zip(rows.tolist(), unpack(held(stop), stored), strict=True))
    return [by_row[row] for row in sorted(by_row)]


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
        head = self.candidates[self.choice.index if fold is None else self.choice.by_fold[fold]]
        return Chosen(head.penalty, norm=head.norm, names=head.names, weight=head.weight)


def _folds(spec: GroupSpec, heads: Sequence[_Head]) -> Iterator[GroupSpec]:
    """The runs of a cross-validation; every member has the same number of folds. No member reads what belongs to the
    rows on which another one is scored."""
    count = min(map(number_of_folds, spec.members))
    at_once = min(count, cores())
    whole = [read_split(member.examples, "train") for member in spec.members]
    for fold in range(count):
        members = [
            replace(
                member, fold=fold, folds=count, chosen=head.chosen(fold), rounds=1 + math.ceil((count - fold) / at_once)
            )
            for member, head in zip(spec.members, heads, strict=True)
        ]
        held = frozenset[bytes]().union(
            *(rows_of(member, train).left_out for member, train in zip(members, whole, strict=True))
        )
        members = [replace(member, left_out=held) for member in members] if len(members) > 1 else members
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
        pooled = _Pooled(member, [item.rows.indices.held for item in of_folds])
        # Of equal penalties, first with names, then with class weights, then the first normalisation.
        candidates = sorted(answers[0], key=lambda candidate: -candidate.penalty)
        tried = [pooled.answers([item[candidate] for item in answers]) for candidate in candidates]
        scores = [pooled.scores(each)[pooled.scoring.main] for each in tried]
        heads.append(_Head(candidates, pooled.choose(tried), dict(zip(map(str, candidates), scores, strict=True))))
    return heads


class _Pooled:
    """The rows of a member's budget, scored on the predictions of all folds together.

    Args:
        spec: of the member, without fold.
        held: indices of each fold's rows in the train split.
    """

    def __init__(self, spec: RunSpec, held: Sequence[NDArray[np.int64] | None]) -> None:
        whole, facts = read_split(spec.examples, "train"), read_facts(spec.examples)
        indices = np.concatenate([rows for rows in held if rows is not None])
        self.spec = spec
        self.order = np.argsort(indices)
        sizes = [0 if rows is None else len(rows) for rows in held]
        self.folds = np.repeat(np.arange(len(held)), sizes)[self.order]
        self.rows: Split = whole.take(indices[self.order])
        self.scoring = scoring_for(facts.kind, facts.labels)
        self.head = find_task(facts.kind).head(spec.settings, 1, facts.labels)

    def answers(self, by_fold: Sequence[Sequence[Answer]]) -> list[Answer]:
        """The predictions of the folds in the order of the rows' indices, after `Head.calibrate`."""
        flat = [answer for answers in by_fold for answer in answers]
        raw = [flat[row] for row in self.order]
        return self.head.calibrate(lambda: raw, per_row(self.scoring, self.rows))

    @property
    def calibration(self) -> float | None:
        """The parameter that `answers` has fitted; None: the head has none."""
        return self.head.calibration if isinstance(self.head, CalibratedHead) else None

    def scores(self, answers: Sequence[Answer]) -> dict[str, float]:
        """The values of all metrics."""
        return self.scoring.score(self.rows.fields, self.rows.targets, answers)

    def choose(self, candidates: Sequence[Sequence[Answer]]) -> Choice:
        """The choice of one of several predictions of these rows, the simplest first."""
        return choose(self.scoring, self.rows, candidates, folds=self.folds)


def _select(spec: GroupSpec, member: int, folds: Sequence[GroupSpec], heads: _Head) -> Selection:
    whole = read_split(spec.members[member].examples, "train")
    pooled = _Pooled(spec.members[member], [rows_of(fold.members[member], whole).held for fold in folds])
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
        answers = pooled.answers([unpack(held(number), tensors) for tensors, _ in results])
        scores, step = pooled.scores(answers), step_of.get(number, 0)
        if curve and step == curve[-1]["step"]:
            continue
        points.append((replace(heads.chosen(None), stop=number, calibration=pooled.calibration), answers))
        curve.append({"step": step, "epoch": round(step / epoch, 3), "train_loss": None, **scores})
    order = list(range(len(curve)))
    if way_of(spec.settings).prefers_end:
        order.reverse()
    choice = pooled.choose([points[point][1] for point in order])
    chosen = points[order[choice.index]][0]
    way = spec.settings.method
    by_fold = [
        {"way": way} | asdict(replace(heads.chosen(fold), stop=points[order[choice.by_fold[fold]]][0].stop))
        for fold in range(len(folds))
    ]
    records = [record for _, record in results]
    named = {
        "penalty": chosen.penalty,
        "head_norm": chosen.norm,
        "label_names": chosen.names,
        "class_weight": chosen.weight,
    }
    return Selection(
        chosen,
        choice.answers,
        points[0][1],
        {
            "curve": curve,
            "chosen": order[choice.index],
            "by_fold": by_fold,
            "selected": pooled.scores(choice.answers),
            "score": pooled.scoring.main,
            "folds": len(folds),
            **{name: sum(record[name] for record in records) for name in ("tokens", "seconds")},
            **({"penalties": dict(heads.scores)} if heads.candidates else {}),
            **{name: value for name, value in named.items() if value is not None},
        },
    )


def choose_way(specs: Sequence[GroupSpec], selections: Sequence[Selection]) -> tuple[int, Selection]:
    """The choice of one of several ways to learn of a run with one member: its index, and its cross-validation with the
    predictions and scores of the ways that are chosen without the row's fold.

    Args:
        specs: the run in each way, the preferred one first.
        selections: of each way.
    """
    spec, whole = specs[0].members[0], read_split(specs[0].members[0].examples, "train")
    count = number_of_folds(spec)
    held = [rows_of(replace(spec, fold=fold, folds=count), whole).held for fold in range(count)]
    pooled = _Pooled(spec, held)
    choice = pooled.choose([each.answers for each in selections])
    best = selections[choice.index]
    by_fold = [selections[choice.by_fold[fold]].record["by_fold"][fold] for fold in range(count)]
    record = best.record | {"selected": pooled.scores(choice.answers), "by_fold": by_fold}
    return choice.index, replace(best, answers=choice.answers, record=record)


def epoch_of(spec: GroupSpec) -> int:
    """Steps per epoch of the final run, over all members."""
    size = spec.settings.step_rows
    return sum(
        -(-len(rows_of(member, read_split(member.examples, "train")).learned) // size) for member in spec.members
    )
