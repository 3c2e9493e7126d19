"""Every way to learn of a stage's trainings, the choices between them, and the training that is kept.

With `data.tasks.<name>.selection: budget`, no label outside the budget is used (Perez et al. 2021, "True few-shot
learning with language models"). The rows of a training are divided into folds; each fold is predicted by a training on
the others, without copies of the fold's rows and rows of the same group. By these predictions, the first candidate is
chosen that is not worse than the best one by more than one standard error (`components.learners.select`); on dev, the
best one, the first at a tie:

1. The L2 penalty of a head that is solved on frozen features, the largest first. With `head_norm: auto` also the
   normalisation of its inputs, with `label_names: auto` whether the names of the labels are training texts, and with
   `class_weight: auto` the weight of the classes. The training of a fold has the candidate that is chosen on the other
   folds.
2. The evaluation at which the training ends: the points of the schedule in order. Point 0 is the head on the frozen
   encoder. Some ways to learn prefer the end of their schedule (`Way.prefers_end`).
3. With `method: auto`, the way to learn.

For the score (`selected`), each fold is predicted with the choices of the other folds. The final training learns from
all rows with the same schedule and ends at the chosen point.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from components.cluster.launcher import kept_processes, map_parallel
from components.core import threads
from components.core.clock import OutOfTimeError, clock, seconds_left, until
from components.core.measurements import Curve
from components.core.processors import cores
from components.core.progress import Progress
from components.data.scoring.base import Vectors
from components.data.tasks.budgets import budget_name
from components.data.tasks.data import Answer
from components.data.tasks.results import best_score
from components.learners.base import Rows, per_row
from components.learners.finetuning.fit import (
    Fit,
    Fits,
    build,
    compute_all,
    gpu_bytes,
    load_initial_encoder,
    title_of,
    unpack,
)
from components.learners.finetuning.runs import (
    Member,
    at,
    dev_scores,
    evaluations_at,
    execute,
    finished,
    result,
    schedule_of,
)
from components.learners.select import Choice, choose_of
from components.learners.task_models.features import trim
from components.learners.task_models.heads import CalibratedHead
from components.learners.task_models.probe import HeadCandidate
from components.learners.task_models.words_part import WordsPart
from components.learners.ways import WAYS
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.finetune import Way as WayName
from components.training.checkpoint import CheckpointStore

#: Nominal speed in floating-point operations a minute: a cost in minutes must not depend on the machine or its load.
OPERATIONS = 50e9 * 60
#: Least share of a way's steps that is trained; a way for which `auto.minutes` leaves less is left out.
LEAST_SHARE = 0.125
#: With `selection: budget`: the way that is kept unless another is better by more than one standard error; then the
#: first of the ways that is not worse than the best by more than that. With few labels, differences between ways are
#: mostly chance; contrastive fine-tuning of MiniLM was better than its frozen features and than fine-tuning on TREC and
#: SST-2.
PREFERRED: WayName | None = "contrastive"


@dataclass(frozen=True)
class Trained:
    """One task of a training: as far as its choices are made, or finished.

    Attributes:
        fits: with the choices, of all tasks that are trained together.
        task: its index among them.
        answers: split -> answers: of `dev`, or of the rows of the budget (`OUT_OF_FOLD`), each by the training that has
            not learned from it, with the choices of the other folds; and of `test` if it is finished.
        record: entries of the results: `score`, `curve` with the scores at every point, of all folds together, the
            index of the `chosen` point, `by_fold` with the way and the choices that are made without each fold,
            `selected` with the scores of `answers`, the choices (`HeadCandidate.record`), `penalties`, `folds`, and the
            `tokens` and `seconds` of all trainings; with several ways, `way` and `ways`.
        raw: the answers out of fold at the chosen point before `Head.calibrate`.
        temperature: by which the logits of the stored model are divided.
        part: words beside the encoder; None: there are none.
    """

    fits: Fits
    task: int
    answers: dict[str, list[Answer]]
    record: dict[str, Any]
    raw: Sequence[Answer] = ()
    temperature: float = 1.0
    part: WordsPart | None = None

    @property
    def fit(self) -> Fit:
        return self.fits[self.task]

    @property
    def is_frozen(self) -> bool:
        """Whether the encoder is as it was before training."""
        return not self.record["best_step"] or not self.fit.way.trains_encoder


@dataclass(frozen=True)
class Heads:
    """The choice of a task's head: `candidates`, the simplest first; none for a head that is not solved."""

    candidates: Sequence[HeadCandidate] = ()
    choice: Choice | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def chosen(self, fold: int | None = None) -> HeadCandidate | None:
        """The choice without a fold, or of all."""
        if self.choice is None:
            return None
        return self.candidates[self.choice.index if fold is None else self.choice.by_fold[fold]]

    def record(self, fold: int | None = None) -> dict[str, Any]:
        head = self.chosen(fold)
        return {} if head is None else head.record


def _chosen(rows: Rows, candidates: Sequence[Vectors]) -> Choice:
    """The choice of one of several answers to the judged rows; on dev the best, the first at a tie."""
    if rows.folds is not None:
        return choose_of(rows, candidates)
    index = int(np.argmax([rows.score(list(answers))[rows.scoring.main] for answers in candidates]))
    return Choice(index, {}, list(candidates[index]))


def judging(fits: Fits, heads: Sequence[Heads]) -> Iterator[Fits]:
    """The trainings by which a training is judged: one for each fold, or itself, which is scored on dev. Every task has
    the same number of folds. No task reads what belongs to the rows on which another one is scored."""
    count = number_of_folds(fits)
    for fold in range(count):
        rounds = 1 + math.ceil((count - fold) / min(count, cores()))
        part = [
            replace(fit, fold=fold, folds=count, head=head.chosen(fold), rounds=rounds, key=f"{fit.key}-fold{fold}")
            for fit, head in zip(fits, heads, strict=True)
        ]
        if len(part) > 1:
            held = frozenset[bytes]().union(*(fit.rows().left_out for fit in part))
            part = [replace(fit, left_out=held) for fit in part]
        yield tuple(part)
    if not count:
        yield tuple(replace(fit, head=head.chosen()) for fit, head in zip(fits, heads, strict=True))


def number_of_folds(fits: Fits) -> int:
    """Number of folds within the label budgets; 0 if choices are made on dev.

    Raises:
        ConfigError: a budget has too few rows.
    """
    return min(len(replace(fit, fold=None, folds=0).rows().fold_numbers) for fit in fits)


def choose_heads(fits: Fits) -> list[Heads]:
    """The choice of each task's head."""
    encoder, tokenizer = load_initial_encoder(fits[0])
    parts = [[Member(fit, encoder, tokenizer) for fit in part] for part in judging(fits, [Heads()] * len(fits))]
    result: list[Heads] = []
    for task in range(len(fits)):
        members = [part[task] for part in parts]
        if not members[0].is_solved:
            result.append(Heads())
            continue
        by_part = [member.answers_by_candidate() for member in members]
        candidates, rows = list(by_part[0]), members[0].rows.run
        if rows.folds is not None:
            # Of equal penalties, first with names, then with class weights, then the first normalisation.
            candidates.sort(key=lambda candidate: -candidate.penalty)
        tried = [_calibrated(fits[task], rows, [part[candidate] for part in by_part])[0] for candidate in candidates]
        scores = [rows.score(answers)[rows.scoring.main] for answers in tried]
        result.append(Heads(candidates, _chosen(rows, tried), dict(zip(map(str, candidates), scores, strict=True))))
    return result


def _calibrated(fit: Fit, rows: Rows, parts: Sequence[Sequence[Answer]]) -> tuple[list[Answer], float | None]:
    """The predictions of the judged rows after `Head.calibrate`, and the parameter that it has fitted; None: the head
    has none."""
    raw = list(parts[0]) if rows.folds is None else rows.joined(parts)
    head = fit.task.head(fit.settings, 1, rows.labels)
    answers = head.calibrate(lambda: raw, per_row(rows.scoring, rows.judged[1]))
    return answers, head.calibration if isinstance(head, CalibratedHead) else None


def choose_points(trainings: Sequence[Fits], *, title: str, cluster: ClusterSettings) -> list[list[Trained]]:
    """The choices of each training, for each of its tasks. What earlier, interrupted calls have finished is not
    repeated.

    Args:
        trainings: without fold and choices.
        title: of the progress line.
        cluster: where they are executed.

    Raises:
        ConfigError: a budget has fewer than two rows.
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
    """
    every = [fit for fits in trainings for fit in fits]
    compute_all(every, cluster=cluster)
    heads = dict(map_parallel(choose_heads, trainings, settings=cluster, gpu_bytes=gpu_bytes(every)))
    parts = [list(judging(fits, heads[number])) for number, fits in enumerate(trainings)]
    folds = f"{title} folds" if any(fit.fold is not None for of in parts for fit in of[0]) else title
    execute_all([part for of_training in parts for part in of_training], title=folds, cluster=cluster)
    return [
        [_point(fits, task, parts[number], heads[number][task]) for task in range(len(fits))]
        for number, fits in enumerate(trainings)
    ]


def _point(fits: Fits, task: int, parts: Sequence[Fits], heads: Heads) -> Trained:
    fit, way = fits[task], fits[task].way
    rows, results = replace(fit, folds=len(parts)).rows(), [result(part, task) for part in parts]
    tensors, records = zip(*results, strict=True)
    choices = heads.record() | ({"penalties": dict(heads.scores)} if heads.candidates else {})
    if rows.folds is None:
        (record,) = records
        return Trained(parts[0], task, {"dev": unpack(at(record["stop"]), tensors[0])}, record | choices)
    epoch = epoch_of(fits)
    steps, evaluations = schedule_of(fit, epoch=epoch)
    step_of = {number: step for step, numbers in evaluations_at(steps, count=evaluations).items() for number in numbers}
    curve: list[dict[str, Any]] = []
    points: list[tuple[int, float | None, list[Answer], list[list[Answer]]]] = []
    for number in range(evaluations + 1):
        step = step_of.get(number, 0)
        # A training of which nothing is left has one point.
        if f"{at(number)}.lengths" not in tensors[0] or (curve and step == curve[-1]["step"]):
            continue
        raw = [unpack(at(number), each) for each in tensors]
        answers, calibration = _calibrated(fit, rows, raw)
        points.append((number, calibration, answers, raw))
        curve.append({"step": step, "epoch": round(step / epoch, 3), "train_loss": None, **rows.score(answers)})
    order = list(range(len(curve)))[:: -1 if way.prefers_end else 1]
    choice = _chosen(rows, [points[point][2] for point in order])
    stop, calibration, _, raw = points[order[choice.index]]
    by_fold = [
        {"way": fit.settings.method, "stop": points[order[choice.by_fold[fold]]][0]} | heads.record(fold)
        for fold in rows.fold_numbers
    ]
    chosen = replace(fit, head=heads.chosen(), stop=stop, calibration=calibration)
    name = rows.judged[0]
    record = choices | {
        "curve": curve,
        "chosen": order[choice.index],
        "by_fold": by_fold,
        "selected": rows.score(choice.answers),
        "score": rows.scoring.main,
        "folds": len(parts),
        **{key: sum(record[key] for record in records) for key in ("tokens", "seconds")},
    }
    return Trained((*fits[:task], chosen, *fits[task + 1 :]), task, {name: choice.answers}, record, rows.joined(raw))


def epoch_of(fits: Fits) -> int:
    """Steps per epoch of a training on all rows, over all tasks."""
    return sum(-(-len(fit.rows().labelled) // fit.settings.step_rows) for fit in fits)


def execute_all(trainings: Sequence[Fits], *, title: str, cluster: ClusterSettings) -> None:
    """Execute the trainings that are not finished, in parallel; their features are there (`compute_all`).

    Args:
        trainings: the longest first, so that no core is idle while the last one finishes.
        title: of the progress line.
        cluster: where they are executed.
    """
    left = [fits for fits in trainings if not finished(fits)]
    every = [fit for fits in left for fit in fits]
    with Progress(title, total=len(trainings), unit="run", done=len(trainings) - len(left)) as bar:
        for index, records in map_parallel(execute, left, settings=cluster, gpu_bytes=gpu_bytes(every)):
            # A training on another node writes no measurements itself.
            fits, curve = left[index], Curve(title_of(left[index]))
            for point, scores in enumerate(records[0]["curve"]):
                loss = {"loss": scores["train_loss"]} if len(records) == 1 else {}
                curve.add(scores["step"], **loss, **dev_scores(fits, records, point=point))
            best = {
                f"{fit.job.examples.name if len(fits) > 1 else 'dev'}_{record['score']}": round(best_score(record), 4)
                for fit, record in zip(fits, records, strict=True)
                if record["curve"]
            }
            bar.advance(1, labels=budget_name(records[0]["budget"]), **best)


@kept_processes()
def train_all(ways: Mapping[WayName, Sequence[Fits]], *, title: str, cluster: ClusterSettings) -> list[list[Trained]]:
    """Train in each way to learn, in their order, and keep the best (`_best`): each training's tasks. `ways`: the same
    trainings in the same order for each way; several only of trainings of one task."""
    several, count = len(ways) > 1, len(next(iter(ways.values())))
    candidates: list[list[list[Trained]]] = [[] for _ in range(count)]
    attempts: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    # Each training's ways in order, without those that its number of rows rules out.
    suited = [suited_ways({way: of_way[run][0] for way, of_way in ways.items()}) for run in range(count)]
    for way, of_way in ways.items():
        is_late = seconds_left() < 0
        costs = [cost_of(fits[0]) if several and not is_late else Cost(0.0) for fits in of_way]
        shares = [
            share_left(fits[0].settings, cost, tried, ways=names)
            for fits, cost, tried, names in zip(of_way, costs, attempts, suited, strict=True)
        ]
        few = {run for run in range(count) if way not in suited[run]}
        for line in notes(of_way[0][0].settings, costs, shares, few=few):
            print(f"{title} {way}: {line}", flush=True)
        tried = [run for run in range(count) if shares[run]]
        done: dict[int, list[Trained]] = {}
        try:
            if is_late:
                raise OutOfTimeError
            if tried:
                trainings = [shortened(of_way[run], costs[run], shares[run]) for run in tried]
                named = f"{title} {way}" if several else title
                done = dict(zip(tried, choose_points(trainings, title=named, cluster=cluster), strict=True))
        except OutOfTimeError:
            clock().left_out.append(f"{title} {way}")
        for run, (cost, share) in enumerate(zip(costs, shares, strict=True)):
            attempts[run].append(attempt_of(way, cost, share, done[run][0].record if run in done else None))
            candidates[run] += [done[run]] if run in done else []
    return [
        [_finished(task, attempts[run] if several else []) for task in tasks]
        for run, tasks in enumerate(_finish(candidates, title=title, cluster=cluster))
    ]


def _finish(
    candidates: Sequence[Sequence[list[Trained]]], *, title: str, cluster: ClusterSettings
) -> list[list[Trained]]:
    """The best candidate of each training, whose final training is finished. If there is no time for one, the encoder
    stays frozen.

    Raises:
        OutOfTimeError: a training has no candidate.
    """
    if not all(candidates):
        raise OutOfTimeError
    chosen = list(map(_best, candidates))
    try:
        # With choices on dev, it is finished.
        compute_all((fit for tasks in chosen for fit in tasks[0].fits if fit.stop is not None), cluster=cluster)
        execute_all([tasks[0].fits for tasks in chosen], title=title, cluster=cluster)
    except OutOfTimeError:
        clock().left_out.append(f"{title} {chosen[0][0].fit.settings.method}")
        frozen = [[tasks for tasks in of if not tasks[0].fit.way.trains_encoder] for of in candidates]
        if not all(frozen):
            raise
        chosen = list(map(_best, frozen))
        # The processes have ended; its features are there.
        with until(math.inf), threads.limited(1), threadpool_limits(1, user_api="blas"):
            compute_all((fit for tasks in chosen for fit in tasks[0].fits), cluster=cluster)
            for tasks in chosen:
                execute(tasks[0].fits)
    return chosen


def _best(candidates: Sequence[list[Trained]]) -> list[Trained]:
    """The way that is kept, with the predictions and scores of the ways that are chosen without the row's fold; with
    cross-validation, the preferred one (`PREFERRED`) comes before the others."""
    if len(candidates) > 1:
        ways = [tasks[0] for tasks in candidates]
        rows = replace(ways[0].fit, fold=None, folds=0).rows()
        if rows.folds is not None:
            ways.sort(key=lambda way: way.fit.settings.method != PREFERRED)
        name = rows.judged[0]
        choice = _chosen(rows, [way.answers[name] for way in ways])
        best = ways[choice.index]
        if rows.folds is None:
            return [best]
        by_fold = [ways[choice.by_fold[fold]].record["by_fold"][fold] for fold in rows.fold_numbers]
        record = best.record | {"selected": rows.score(choice.answers), "by_fold": by_fold}
        return [replace(best, answers={name: choice.answers}, record=record)]
    tasks = candidates[0]
    fits = tuple(each.fit for each in tasks)
    return [replace(each, fits=fits) for each in tasks]


def _finished(trained: Trained, attempts: Sequence[Mapping[str, Any]]) -> Trained:
    """With the predictions of test, and the record of all that led to it."""
    tensors, record = result(trained.fits, trained.task)
    added = {}
    if trained.fit.stop is not None:
        added = {name: record[name] + trained.record[name] for name in ("tokens", "seconds")}
    record = record | trained.record | added
    if attempts:
        way = trained.fit.settings.method
        others = [attempt for attempt in attempts if attempt["way"] != way]
        record |= {
            "way": way,
            "ways": [
                {**each, "minutes": round(each["minutes"], 3), "share": round(each["share"], 3)} for each in attempts
            ],
            "tokens": record["tokens"] + sum(attempt["tokens"] for attempt in others),
            "seconds": round(record["seconds"] + sum(attempt["seconds"] for attempt in others), 3),
        }
    return replace(trained, answers=trained.answers | {"test": unpack("test", tensors)}, record=record)


def clear(trainings: Iterable[Fits], *, cluster: ClusterSettings) -> None:
    """Remove the checkpoints of trainings and of their folds, and trim the cache of features."""
    for fits in trainings:
        key = fits[0].key
        for each in [key, *(f"{key}-fold{fold}" for fold in range(number_of_folds(fits)))]:
            CheckpointStore(fits[0].job.cluster.storage, key=each).clear()
    trim(Path(cluster.features), gigabytes=8)


# -- `auto.minutes` --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Estimated cost of a training with its cross-validation, in minutes at `OPERATIONS`.

    Attributes:
        fixed: what does not depend on the number of steps: features of all rows, evaluations.
        step: of one step of the final training and the corresponding steps in the folds.
        steps: of the final training.
    """

    fixed: float
    step: float = 0.0
    steps: int = 0

    @property
    def minutes(self) -> float:
        """The cost of all steps and of what is fixed."""
        return self.fixed + self.step * self.steps


def cost_of(fit: Fit) -> Cost:
    """Estimated cost of a training: 2 operations per parameter and piece in a forward pass, 6 in a training step
    (Kaplan et al. 2020, section 2.1), without the parameters of the embeddings."""
    rows, (model, tokenizer) = fit.rows().labelled, build(fit)
    pieces = sum(len(pieces) for row in fit.encode(model, tokenizer, rows.fields) for pieces in row.pieces)
    parameters = sum(parameter.numel() for group in model.encoder.layer_groups()[1:] for parameter in group)
    # Of one operation per parameter and piece of all rows.
    unit = parameters * pieces / OPERATIONS
    if not fit.way.trains_encoder:
        return Cost(2 * unit)
    epoch, folds = epoch_of((fit,)), number_of_folds((fit,))
    steps, evaluations = schedule_of(fit, epoch=epoch)
    # Each row is in one fold: all folds together have the steps of `folds - 1` final trainings, unless the number of
    # steps does not depend on the number of rows (`min_steps`, the pairs of contrastive training).
    times = 1 + folds if schedule_of(fit, epoch=2 * epoch)[0] == steps else max(1, folds)
    return Cost(2 * unit * (1 + evaluations), unit * fit.way.operations(fit.settings) / epoch * times, steps)


def attempt_of(way: WayName, cost: Cost, share: float, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a way to learn has brought in one training: its estimated cost in `minutes`, and of all its steps if it was
    left out (no record); the score of selection; tokens and seconds before the final training; and the share of the
    steps of the settings that `auto.minutes` has left."""
    if record is None:
        return {"way": way, "minutes": cost.minutes, "score": None, "tokens": 0, "seconds": 0.0, "share": 1.0}
    minutes = cost.fixed + share * cost.steps * cost.step
    of_record = {name: record[name] for name in ("tokens", "seconds")}
    return {"way": way, "minutes": minutes, "score": best_score(record), **of_record, "share": share}


def share_left(
    settings: FinetuneSettings, cost: Cost, attempts: Sequence[Mapping[str, Any]], *, ways: Sequence[WayName]
) -> float:
    """The share of its steps that a training has after earlier attempts; 0: the way is left out. What is left of
    `auto.minutes` is divided equally among the `ways` still to be tried; the first one, and one with teachers, has
    no limit."""
    if settings.method == "auto" or settings.method not in ways:
        return 0.0
    limit = settings.auto.minutes
    tried = [attempt["minutes"] for attempt in attempts if attempt["score"] is not None]
    if WAYS[settings.method].has_teachers or limit is None or not tried:
        return 1.0
    spent = sum(tried)
    return share_within(cost, max(0.0, limit - spent) / (len(ways) - ways.index(settings.method)))


def share_within(cost: Cost, minutes: float) -> float:
    """The share of a way's steps whose cost is within `minutes`; 0 if that is less than `LEAST_SHARE`."""
    if cost.minutes <= minutes:
        return 1.0
    if not cost.steps or minutes <= cost.fixed:
        return 0.0
    share = math.floor((minutes - cost.fixed) / cost.step) / cost.steps
    return share if share >= LEAST_SHARE else 0.0


def shortened(fits: Fits, cost: Cost, share: float) -> Fits:
    if share == 1.0:
        return fits
    (fit,) = fits
    short = fit.way.shortened(fit.settings, epochs=share * cost.steps / epoch_of(fits))
    return (replace(fit, job=fit.job.model_copy(update={"settings": short})),)


def suited_ways(fits: Mapping[WayName, Fit]) -> list[WayName]:
    """The ways that are tried: none that needs more labelled rows (`Way.least_rows`) if there is a cheaper one."""
    fit = next(iter(fits.values()))
    if all(WAYS[name].least_rows or WAYS[name].has_teachers for name in fits) or not fit.task.labels_rows:
        return list(fits)
    rows = len(fit.rows().labelled)
    return [name for name in fits if rows >= WAYS[name].least_rows]


def notes(settings: FinetuneSettings, costs: Sequence[Cost], shares: Sequence[float], *, few: Set[int]) -> list[str]:
    """Messages about the trainings in which a way to learn is shortened or not tried, and the reason: their cost, or,
    for the indices in `few`, too few rows."""
    count = len(costs)
    out = [cost.minutes for run, cost in enumerate(costs) if not shares[run] and run not in few]
    short = [cost.minutes for run, cost in enumerate(costs) if 0 < shares[run] < 1]
    least = min((share for share in shares if share), default=1.0)
    beyond = f"more than auto.minutes ({settings.auto.minutes}) leaves"
    lines = []
    if out:
        lines.append(
            f"left out of {len(out)} of {count} run(s): it costs {max(out):.1f} minutes at a nominal speed, {beyond}"
        )
    if short:
        lines.append(
            f"shortened in {len(short)} of {count} run(s), to {least:.0%} of its steps or more: the whole way costs "
            f"{max(short):.1f} minutes at a nominal speed, {beyond}"
        )
    if few and settings.method != "auto":
        rows = WAYS[settings.method].least_rows
        lines.append(f"left out of {len(few)} of {count} run(s): fewer than {rows} rows")
    return lines
