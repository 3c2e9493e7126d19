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

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from components.cluster.launcher import kept_processes, map_parallel
from components.core import threads
from components.core.clock import OutOfTimeError, check_time, clock, until
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.calibration import calibrated, tempered
from components.data.tasks.data import Answer
from components.data.tasks.results import best_score, read_answers
from components.learners.base import Rows, per_row
from components.learners.finetuning.fit import Fit, Fits, build, epoch_of, gpu_bytes, load_initial_encoder, unpack
from components.learners.finetuning.runs import Member, at, execute, finished, result
from components.learners.select import choose_of, select
from components.learners.task_models.features import trim
from components.learners.ways import WAYS
from components.learners.words.classifier import WordsPart, mean
from components.learners.words.systems import BESIDE, probable
from components.settings.cluster import ClusterSettings
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
#: Candidates for the weight of the words beside an encoder, the simplest first.
WEIGHTS: Final = tuple(number / 10 for number in range(11))
#: Split -> answers.
Answers = dict[str, list[Answer]]
Result = TypeVar("Result")
#: A task of a training, the trainings by which it is judged, and what its record says about candidates of its head.
Judged = tuple[Fit, Sequence[Fit], dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """One task of a training: as far as its choices are made, or finished.

    Attributes:
        fit: with the choices.
        answers: split -> answers: of `dev`, or of the rows of the budget (`OUT_OF_FOLD`), each by the training that has
            not learned from it, with the choices of the other folds; and of `test` if it is finished. Then they are
            calibrated, and include the words beside the encoder.
        record: entries of the results: `score`, `curve` with the scores at every point, of all folds together, the
            index of the `chosen` point, `by_fold` with the way and the choices that are made without each fold,
            `selected` with the scores of `answers`, the choices (`HeadCandidate.record`), `penalties`, `folds`, and the
            `tokens` and `seconds` of all trainings; with several ways, `way` and `ways`; with words, `words`.
        raw: the answers out of fold at the chosen point before `Head.calibrate`.
        temperature: by which the logits of the stored model are divided.
        part: words beside the encoder; None: there are none.
    """

    fit: Fit
    answers: Answers
    record: dict[str, Any]
    raw: Sequence[Answer] = ()
    temperature: float = 1.0
    part: WordsPart | None = None


def judging(fits: Fits) -> list[Fits]:
    """The trainings by which a training is judged: one for each fold, or itself, which is scored on dev. Every task has
    the same number of folds. No task reads what belongs to the rows on which another one is scored.

    Raises:
        ConfigError: a budget has too few rows.
    """
    count = min(len(fit.rows().fold_numbers) for fit in fits)
    parts = []
    for fold in range(count) if count else [None]:
        part = [replace(fit, fold=fold, folds=count) for fit in fits]
        if len(part) > 1:
            held = frozenset[bytes]().union(*(fit.rows().left_out for fit in part))
            part = [replace(fit, left_out=held) for fit in part]
        parts.append(tuple(part))
    return parts


def choose_heads(fits: Fits) -> list[Judged]:
    """Each task with the choice of its head, of all folds, and of the trainings by which it is judged the choice
    without their fold; a head that is not solved has none."""
    encoder, tokenizer = load_initial_encoder(fits[0])
    result: list[Judged] = []
    for fit, *parts in zip(fits, *judging(fits), strict=True):
        members = [Member(part, encoder, tokenizer) for part in parts]
        if not members[0].is_solved:
            result.append((fit, parts, {}))
            continue
        by_part, rows = [member.answers_by_candidate() for member in members], members[0].rows.run
        if rows.folds is not None:
            # Of equal penalties, first with names, then with class weights, then the first normalisation.
            by_part[0] = dict(sorted(by_part[0].items(), key=lambda entry: -entry[0].penalty))
        calibrate = partial(members[0].head.calibrate, score=per_row(rows.scoring, rows.judged[1]))
        # On dev the best one, the first at a tie.
        pooled, chosen, _ = select(rows, by_part, calibrate=calibrate, errors=rows.folds is not None)
        penalties = {str(each): rows.score(answers)[rows.scoring.main] for each, answers in pooled.items()}
        parts = [replace(part, head=chosen[part.fold]) for part in parts]
        result.append((replace(fit, head=chosen[None]), parts, chosen[None].record | {"penalties": penalties}))
    return result


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
    judged = dict(_parallel(choose_heads, trainings, cluster))
    parts = [part for number in sorted(judged) for part in zip(*(of for _, of, _ in judged[number]), strict=True)]
    execute_all(parts, title=title if parts[0][0].fold is None else f"{title} folds", cluster=cluster)
    return [[_point(*of_task, epoch_of(fits)) for of_task in judged[number]] for number, fits in enumerate(trainings)]


def _point(fit: Fit, parts: Sequence[Fit], record: Mapping[str, Any], epoch: int) -> Trained:
    tensors, records = zip(*map(result, parts), strict=True)
    if parts[0].fold is None:
        return Trained(parts[0], {"dev": unpack(at(records[0]["stop"]), tensors[0])}, records[0] | record)
    fit = replace(fit, folds=len(parts))
    rows = fit.rows()
    steps = {0: 0} | {numbers[0]: step for step, numbers in fit.schedule(epoch=epoch)[1].items()}
    # A training of which nothing is left has one point.
    points = [number for number in steps if f"{at(number)}.lengths" in tensors[0]]
    head = fit.task.head(fit.settings, 1, rows.labels)
    calibrate = partial(head.calibrate, score=per_row(rows.scoring, rows.judged[1]))
    preferred = points[:: -1 if fit.way.prefers_end else 1]
    parts_of = [{number: unpack(at(number), each) for number in preferred} for each in tensors]
    pooled, chosen, answers = select(rows, parts_of, calibrate=calibrate)
    stop = chosen[None]
    raw = rows.joined([part[stop] for part in parts_of])
    calibrate(raw)
    choices = {
        "curve": [
            {
                "step": steps[number],
                "epoch": round(steps[number] / epoch, 3),
                "train_loss": None,
                **rows.score(pooled[number]),
            }
            for number in points
        ],
        "chosen": points.index(stop),
        "by_fold": [
            {"way": fit.settings.method, "stop": chosen[part.fold]} | (part.head.record if part.head else {})
            for part in parts
        ],
        "selected": rows.score(answers),
        "score": rows.scoring.main,
        "folds": len(parts),
        **{key: sum(each[key] for each in records) for key in ("tokens", "seconds")},
    }
    ended = replace(fit, stop=stop, calibration=head.calibration)
    return Trained(ended, {rows.judged[0]: answers}, {**record, **choices}, raw)


def _parallel(
    function: Callable[[Fits], Result], trainings: Sequence[Fits], cluster: ClusterSettings
) -> Iterator[tuple[int, Result]]:
    return map_parallel(function, trainings, settings=cluster, gpu_bytes=gpu_bytes(chain(*trainings)))


def execute_all(trainings: Sequence[Fits], *, title: str, cluster: ClusterSettings) -> None:
    """Execute the trainings that are not finished, in parallel.

    Args:
        trainings: the longest first, so that no core is idle while the last one finishes.
        title: of the progress line.
        cluster: where they are executed.
    """
    left = [fits for fits in trainings if not finished(fits[0])]
    with Progress(title, total=len(trainings), unit="run", done=len(trainings) - len(left)) as bar:
        for index, records in _parallel(execute, left, cluster):
            tasks = [f"{fit.job.task}_" if len(records) > 1 else "" for fit in left[index]]
            best = {
                f"dev_{task}{each['score']}": round(best_score(each), 4)
                for task, each in zip(tasks, records, strict=True)
                if each["curve"]
            }
            bar.advance(1, labels=budget_name(records[0]["budget"]), **best)


@kept_processes()
def train_all(ways: Mapping[WayName, Sequence[Fits]], *, title: str, cluster: ClusterSettings) -> list[list[Trained]]:
    """Train in each way to learn, in their order, and keep the best (`_best`): each training's tasks. `ways`: the same
    trainings in the same order for each way; several only of trainings of one task.

    Raises:
        OutOfTimeError: a training has no way that ends in time.
    """
    runs = [dict(zip(ways, of_run, strict=True)) for of_run in zip(*ways.values(), strict=True)]
    attempts: list[list[Attempt]] = [[] for _ in runs]
    for way in ways:
        named = f"{title} {way}" if len(ways) > 1 else title
        planned = [attempt(way, run, earlier) for run, earlier in zip(runs, attempts, strict=True)]
        try:
            check_time()
            for line in notes(planned):
                print(f"{named}: {line}", flush=True)
            tried = [each for each in planned if each.share]
            of_tried = choose_points([each.fits for each in tried], title=named, cluster=cluster) if tried else []
            for each, trained in zip(tried, of_tried, strict=True):
                each.trained = trained
        except OutOfTimeError:
            clock().left_out.append(f"{title} {way}")
        for earlier, each in zip(attempts, planned, strict=True):
            earlier.append(each)
    chosen = _finish([[each.trained for each in of if each.trained] for of in attempts], title=title, cluster=cluster)
    return [[_finished(task, of_run) for task in tasks] for tasks, of_run in zip(chosen, attempts, strict=True)]


def _finish(
    candidates: Sequence[Sequence[Sequence[Trained]]], *, title: str, cluster: ClusterSettings
) -> list[Sequence[Trained]]:
    """The best candidate of each training, whose final training is finished. If there is no time for one, the encoder
    stays frozen."""
    if not all(candidates):
        raise OutOfTimeError
    chosen = list(map(_best, candidates))
    try:
        # With choices on dev, it is finished.
        execute_all(list(map(_fits, chosen)), title=title, cluster=cluster)
    except OutOfTimeError:
        clock().left_out.append(f"{title} {chosen[0][0].fit.settings.method}")
        frozen = [[tasks for tasks in of if not tasks[0].fit.way.trains_encoder] for of in candidates]
        if not all(frozen):
            raise
        chosen = list(map(_best, frozen))
        # The processes have ended; its features are there.
        with until(math.inf), threads.limited(1), threadpool_limits(1, user_api="blas"):
            for tasks in chosen:
                execute(_fits(tasks))
    return chosen


def _fits(tasks: Sequence[Trained]) -> Fits:
    return tuple(task.fit for task in tasks)


def _best(candidates: Sequence[Sequence[Trained]]) -> Sequence[Trained]:
    """The way that is kept, with the predictions and scores of the ways that are chosen without the row's fold; with
    cross-validation, the preferred one (`PREFERRED`) comes before the others."""
    if len(candidates) == 1:
        return candidates[0]
    ways = [way for (way,) in candidates]
    rows = ways[0].fit.rows()
    if rows.folds is not None:
        ways.sort(key=lambda way: way.fit.settings.method != PREFERRED)
    name = rows.judged[0]
    of_ways = {number: way.answers[name] for number, way in enumerate(ways)}
    chosen, answers = choose_of(rows, of_ways, errors=rows.folds is not None)
    best = ways[chosen[None]]
    if rows.folds is None:
        return [best]
    by_fold = [ways[chosen[fold]].record["by_fold"][fold] for fold in rows.fold_numbers]
    record = best.record | {"selected": rows.score(answers), "by_fold": by_fold}
    return [replace(best, answers={name: answers}, record=record)]


def _finished(trained: Trained, attempts: Sequence[Attempt]) -> Trained:
    """With calibrated probabilities and words, the predictions of test, and the record of all that led to it."""
    fit, rows = trained.fit, trained.fit.rows()
    (tensors, final), (name, judged) = result(fit), rows.judged
    answers, temperature = trained.answers | {"test": unpack("test", tensors)}, 1.0
    if labels := rows.scoring.shares:
        temperature, of_judged = calibrated(rows.scoring, judged.targets, answers[name], folds=rows.folds)
        answers = {name: of_judged, "test": tempered(answers["test"], temperature, exclusive=labels == "exclusive")}
    answers, part, described = with_words(fit, rows, answers)
    record, spent = final | trained.record | described, [final] if fit.stop is not None else []
    if len(attempts) > 1:
        ways = [each.record for each in attempts]
        record |= {"way": fit.settings.method, "ways": ways}
        spent += [each for each in ways if each["way"] != record["way"]]
    record["tokens"] += sum(each["tokens"] for each in spent)
    record["seconds"] = round(record["seconds"] + sum(each["seconds"] for each in spent), 3)
    if rows.folds is not None:
        record["selected"] = rows.score(answers[name])
    else:
        curve, chosen = record["curve"], record["chosen"]
        record["curve"] = [*curve[:chosen], curve[chosen] | rows.score(answers[name]), *curve[chosen + 1 :]]
    return replace(trained, answers=answers, record=record, temperature=temperature, part=part)


def with_words(fit: Fit, rows: Rows, encoders: Answers) -> tuple[Answers, WordsPart | None, dict[str, Any]]:
    """The mean of the answers of a finished training and of the chosen words model of the stage `baseline` for the same
    rows, if `words` is `auto`. The weight is chosen on the rows of the training's other choices, and scored without the
    row's fold. A kind without probabilities of labels has no words.

    Returns:
        The answers to the judged rows and to test; the words model, None without words; entries of the record.
    """
    facts, baselines = fit.facts, fit.job.baselines
    if fit.settings.words == "none" or baselines is None or not (systems := probable(facts.kind)):
        return encoders, None, {}
    judged = rows.judged[0]
    stored = {split: read_answers(baselines, split) for split in (judged, "test")}
    keys = [key for name in systems if (key := (name, fit.budget, fit.seed)) in stored[judged]]
    words, answers_of_words = choose_of(rows, {key: stored[judged][key] for key in keys})
    of_words = {judged: answers_of_words, "test": stored["test"][words[None]]}

    def mixed(split: str, weight: float) -> list[Answer]:
        return list(mean(np.stack(encoders[split]), np.stack(of_words[split]), weight)) if weight else encoders[split]

    chosen, of_judged = choose_of(rows, {weight: mixed(judged, weight) for weight in WEIGHTS})
    answers = {judged: of_judged, "test": mixed("test", weight := chosen[None])}
    if not weight:
        return answers, None, {"words": {"how": "none"}}
    described = {"how": "mean", "weight": weight}
    part = WordsPart.read(baselines / BESIDE / f"{fit.budget}.{fit.seed}", described, labels=facts.labels)
    return answers, part, {"words": described | {"system": words[None][0]}}


def clear(trainings: Iterable[Fits], *, cluster: ClusterSettings) -> None:
    """Remove the checkpoints of trainings and of their folds, and trim the cache of features."""
    for fit, *_ in trainings:
        CheckpointStore(fit.job.cluster.storage, key=fit.key).clear()
    trim(Path(cluster.features), gigabytes=8)


# -- `auto.minutes` --------------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """A way to learn in one training.

    Attributes:
        share: of the steps that `auto.minutes` leaves; 0: the way is left out.
        few: whether it is left out because the training has too few rows.
        trained: its tasks; none if it is left out, or did not end in time.
    """

    fits: Fits
    share: float = 1.0
    few: bool = False
    trained: Sequence[Trained] = ()

    @cached_property
    def cost(self) -> tuple[float, float, int]:
        """In minutes at `OPERATIONS` (`cost_of`), of all steps."""
        return cost_of(self.fits[0])

    @property
    def minutes(self) -> float:
        """Its cost; of all steps if it is left out."""
        fixed, steps, _ = self.cost
        return fixed + (self.share if self.trained else 1.0) * steps

    @property
    def record(self) -> dict[str, Any]:
        """The entry of a run's record, with tokens and seconds before the final training."""
        result = {"way": self.fits[0].settings.method, "minutes": round(self.minutes, 3)}
        if not self.trained:
            return result | {"score": None, "tokens": 0, "seconds": 0.0, "share": 1.0}
        record = self.trained[0].record
        spent = {name: record[name] for name in ("tokens", "seconds")}
        return result | {"score": best_score(record), **spent, "share": self.share}


def attempt(way: WayName, ways: Mapping[WayName, Fits], earlier: Sequence[Attempt]) -> Attempt:
    """The attempt at one of a training's ways after earlier ones. What is left of `auto.minutes` is divided equally
    among the ways still to be tried; the first one, and one with teachers, has no limit. A way that needs more labelled
    rows (`Way.least_rows`) is left out if there is a cheaper one."""
    result, (fit, *_), left = Attempt(ways[way]), ways[way], list(ways)
    limit = fit.settings.auto.minutes
    if fit.task.labels_rows and not all(WAYS[name].least_rows or WAYS[name].has_teachers for name in ways):
        left = [name for name in ways if len(fit.rows().labelled) >= WAYS[name].least_rows]
    tried = [each.minutes for each in earlier if each.trained]
    if way not in left:
        result.share, result.few = 0.0, True
    elif tried and limit is not None and not WAYS[way].has_teachers:
        result.share = share_within(max(0.0, limit - sum(tried)) / (len(left) - left.index(way)), *result.cost)
        result.fits = tuple(replace(each, share=result.share) for each in result.fits)
    return result


def share_within(limit: float, fixed: float, minutes: float, steps: int) -> float:
    """The share of `steps` steps that cost `minutes`, beside what is fixed, whose cost is within `limit` minutes; 0 if
    that is less than `LEAST_SHARE`."""
    if fixed + minutes <= limit:
        return 1.0
    share = math.floor((limit - fixed) / (minutes / steps)) / steps if steps else 0.0
    return share if share >= LEAST_SHARE else 0.0


def cost_of(fit: Fit) -> tuple[float, float, int]:
    """Estimated cost of a training with its cross-validation in minutes at `OPERATIONS`: what does not depend on the
    number of steps, and all steps; and the number of steps. 2 operations per parameter and piece in a forward pass, 6
    in a training step (Kaplan et al. 2020, section 2.1), without the parameters of the embeddings and the texts of
    teachers."""
    rows, (model, tokenizer) = fit.rows(), build(fit)
    encoded = model.encode(rows.labelled.fields, tokenizer)
    parameters = sum(parameter.numel() for group in model.encoder.layer_groups()[1:] for parameter in group)
    # Of one operation per parameter and piece of all rows.
    unit = parameters * sum(len(pieces) for row in encoded for pieces in row.pieces) / OPERATIONS
    if not fit.way.trains_encoder:
        return 2 * unit, 0.0, 0
    epoch, folds = epoch_of((fit,)), len(rows.fold_numbers)
    steps, evaluations = fit.schedule(epoch=epoch)
    # Each row is in one fold: all folds together have the steps of `folds - 1` final trainings, unless the number of
    # steps does not depend on the number of rows (`min_steps`, the pairs of contrastive training).
    times = 1 + folds if fit.schedule(epoch=2 * epoch)[0] == steps else max(1, folds)
    return 2 * unit * (1 + sum(map(len, evaluations.values()))), 6 * unit / epoch * times * steps, steps


def notes(attempts: Sequence[Attempt]) -> list[str]:
    """Messages about the trainings in which a way to learn is shortened or not tried, and the reason: their cost, or
    too few rows."""
    way, count = attempts[0].fits[0], len(attempts)
    out = [each.minutes for each in attempts if not each.share and not each.few]
    short = [each for each in attempts if 0 < each.share < 1]
    few, lines = sum(each.few for each in attempts), list[str]()
    beyond = f"more than auto.minutes ({way.settings.auto.minutes}) leaves"
    if out:
        lines.append(
            f"left out of {len(out)} of {count} run(s): it costs {max(out):.1f} minutes at a nominal speed, {beyond}"
        )
    if short:
        least, most = min(each.share for each in short), max(each.minutes for each in short)
        lines.append(
            f"shortened in {len(short)} of {count} run(s), to {least:.0%} of its steps or more: the whole way costs "
            f"{most:.1f} minutes at a nominal speed, {beyond}"
        )
    if few:
        lines.append(f"left out of {few} of {count} run(s): fewer than {way.way.least_rows} rows")
    return lines
