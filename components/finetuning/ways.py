"""The ways to learn of a run: one, or with `method: auto` several, of which the one with the best score is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from components.errors import ConfigError
from components.finetuning.crossvalidation import epoch_of
from components.finetuning.runs import GroupSpec, schedule_of
from components.finetuning.specs import build, encode, number_of_folds, rows_of
from components.settings.finetune import FinetuneSettings, Way
from components.task_models.base import Task, refuse_settings
from components.task_models.distillation import TAUGHT_ROWS
from components.task_models.kinds import find_task
from components.tasks.examples import read_facts, read_split

#: Nominal speed in floating-point operations a minute: a cost in minutes must not depend on the machine or its load.
OPERATIONS = 50e9 * 60
#: Least share of a way's steps that is trained; a way for which `auto.minutes` leaves less is left out.
LEAST_SHARE = 0.125


def ways_of(settings: FinetuneSettings, task: Task) -> dict[Way, FinetuneSettings]:
    """Way to learn -> settings of its runs, in the order in which they are tried.

    With `method: auto`, ways that do not suit the kind of task are left out. Contrastive training is left out for
    pairs: on SICK, with MiniLM, it lowered the score of the head on the frozen encoder.

    Raises:
        ConfigError: no way is left.
    """
    if settings.method != "auto":
        return {settings.method: settings}
    ways: dict[Way, FinetuneSettings] = {
        way: settings.model_copy(update={"method": way}) for way in dict.fromkeys(settings.auto.ways)
    }
    if task.kind == "pair" and len(ways) > 1:
        ways.pop("contrastive", None)
    suitable = {way: changed for way, changed in ways.items() if refuse_settings(task, changed) is None}
    if not suitable:
        raise ConfigError(f"auto.ways: none of {', '.join(ways)} suits kind {task.kind}; add finetune")
    return suitable


@dataclass(frozen=True)
class Attempt:
    """What one way to learn has brought in one run.

    Attributes:
        way: the way.
        minutes: estimated cost (`Cost`); of the whole way if it was left out.
        score: of selection, mean over the members; None if the way was left out (`auto.minutes`, `auto.finetune_rows`).
        tokens, seconds: of training, before the final run of the way that is kept.
        share: of the steps of the settings; below 1 where `auto.minutes` has shortened the training.
    """

    way: Way
    minutes: float
    score: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    share: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """The entry of a run's record."""
        return asdict(self) | {"minutes": round(self.minutes, 3), "share": round(self.share, 3)}


@dataclass(frozen=True)
class Cost:
    """Estimated cost of a run with its cross-validation, in minutes at `OPERATIONS`.

    Attributes:
        fixed: what does not depend on the number of steps: features of all rows, evaluations.
        step: of one step of the final run and the corresponding steps in the folds' runs.
        steps: of the final run.
    """

    fixed: float
    step: float = 0.0
    steps: int = 0

    @property
    def minutes(self) -> float:
        """Of everything."""
        return self.fixed + self.step * self.steps


def cost_of(spec: GroupSpec) -> Cost:
    """Estimated cost of a run.

    A forward pass takes 2 operations per parameter and piece, a training step 6 (Kaplan et al. 2020, section 2.1);
    parameters of the embeddings are not counted.
    """
    fixed = step = 0.0
    steps = 0
    for member in spec.members:
        facts, whole = read_facts(member.examples), read_split(member.examples, "train")
        rows = whole.take(rows_of(member, whole).learned)
        model, tokenizer = build(member)
        pieces = sum(len(pieces) for row in encode(member, model, tokenizer, rows.fields) for pieces in row.pieces)
        layers = model.encoder.layer_groups()[1:]
        parameters = sum(parameter.numel() for group in layers for parameter in group)
        # Of one operation per parameter and piece of all rows.
        unit = parameters * pieces / OPERATIONS
        fixed += 2 * unit
        if spec.settings.method == "features":
            continue
        epoch = epoch_of(spec)
        steps, evaluations = schedule_of(spec, epoch=epoch)
        operations: float = 6
        if member.distillation is not None:
            operations = 6 + 6 * TAUGHT_ROWS / spec.settings.step_rows
        folds = number_of_folds(member) if facts.selection == "budget" else 0
        # Each row is in one fold: all folds together have the steps of `folds - 1` final runs, unless the number of
        # steps does not depend on that of rows (`min_steps`, `contrastive.pairs`).
        constant = schedule_of(spec, epoch=2 * epoch)[0] == steps
        fixed += 2 * unit * evaluations
        step += unit * operations / epoch * (1 + folds if constant else max(1, folds))
    return Cost(fixed, step, steps)


def share_within(cost: Cost, minutes: float) -> float:
    """The share of a way's steps whose cost is within `minutes`; 0 if that is less than `LEAST_SHARE`."""
    if cost.minutes <= minutes:
        return 1.0
    if not cost.steps or minutes <= cost.fixed:
        return 0.0
    share = math.floor((minutes - cost.fixed) / cost.step) / cost.steps
    return share if share >= LEAST_SHARE else 0.0


def shortened(spec: GroupSpec, cost: Cost, share: float) -> GroupSpec:
    """A run with a share of its steps."""
    if share == 1.0:
        return spec
    settings, epochs = spec.settings, share * cost.steps / epoch_of(spec)
    if settings.method == "contrastive":
        changed: dict[str, Any] = {"contrastive": settings.contrastive.model_copy(update={"epochs": epochs})}
    else:
        changed = {"epochs": epochs, "min_steps": 0}
    short = settings.model_copy(update=changed)
    return replace(spec, members=tuple(replace(member, settings=short) for member in spec.members))


def left_of(attempts: Sequence[Attempt], limit: float | None, *, further: int) -> float:
    """Minutes that remain for the next way to learn. The first way has no limit.

    Args:
        attempts: so far.
        limit: `auto.minutes`.
        further: number of ways after the next one; the remaining time is divided equally among all of them.
    """
    if limit is None or not attempts:
        return math.inf
    spent = sum(attempt.minutes for attempt in attempts if attempt.score is not None)
    return max(0.0, limit - spent) / (1 + further)


def has_few_rows(spec: GroupSpec) -> bool:
    """Whether a run whose rows have labels has fewer than `auto.finetune_rows`."""
    labelled = all(find_task(read_facts(member.examples).kind).labels_rows for member in spec.members)
    return labelled and rows_in(spec) < spec.settings.auto.finetune_rows


def rows_in(spec: GroupSpec) -> int:
    """Number of training rows of a run, over all members."""
    return sum(len(rows_of(member, read_split(member.examples, "train")).learned) for member in spec.members)


def notes(
    specs: Sequence[GroupSpec], costs: Sequence[Cost], *, shares: Sequence[float], few: Sequence[int]
) -> list[str]:
    """Messages about the runs in which a way to learn is shortened or not tried, and the reason.

    Args:
        specs: the runs.
        costs: of the runs.
        shares: of their steps that are trained; 0: the way is left out.
        few: indices of runs in which it is left out because they have too few rows.
    """
    lines = []
    count, auto = len(specs), specs[0].settings.auto
    runs = [run for run in range(count) if run not in few]
    leaves = f"more than auto.minutes ({auto.minutes}) leaves"
    if out := [run for run in runs if not shares[run]]:
        most = max(costs[run].minutes for run in out)
        lines.append(
            f"left out of {len(out)} of {count} run(s): it costs {most:.1f} minutes at a nominal speed, {leaves}"
        )
    if short := [run for run in runs if 0 < shares[run] < 1]:
        least, most = min(shares[run] for run in short), max(costs[run].minutes for run in short)
        lines.append(
            f"shortened in {len(short)} of {count} run(s), to {least:.0%} of its steps or more: the whole way costs "
            f"{most:.1f} minutes at a nominal speed, {leaves}"
        )
    if few:
        lines.append(
            f"left out of {len(few)} of {count} run(s): fewer rows than auto.finetune_rows ({auto.finetune_rows})"
        )
    return lines
