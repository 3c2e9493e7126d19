"""The ways to learn of a run: one, or with `method: auto` several, of which the one with the best score is used."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from components.core.errors import ConfigError
from components.data.tasks.examples import read_facts
from components.learners.finetuning.crossvalidation import epoch_of
from components.learners.finetuning.runs import GroupSpec, schedule_of
from components.learners.finetuning.specs import build, encode, number_of_folds, rows_of
from components.learners.task_models.base import Task
from components.learners.task_models.kinds import find_task
from components.learners.ways import WAYS, refuse, way_of
from components.settings.finetune import FinetuneSettings
from components.settings.finetune import Way as WayName

#: Nominal speed in floating-point operations a minute: a cost in minutes must not depend on the machine or its load.
OPERATIONS = 50e9 * 60
#: Least share of a way's steps that is trained; a way for which `auto.minutes` leaves less is left out.
LEAST_SHARE = 0.125
#: With `selection: budget`: the way that is kept unless another is better by more than one standard error; then the
#: first of the ways that is not worse than the best by more than that. With few labels, differences between ways are
#: mostly chance; contrastive fine-tuning of MiniLM was better than its frozen features and than fine-tuning on TREC and
#: SST-2.
PREFERRED: WayName | None = "contrastive"


def ways_of(settings: FinetuneSettings, task: Task) -> dict[WayName, FinetuneSettings]:
    """Way to learn -> settings of its runs, in the order in which they are tried.

    With `method: auto`, ways that do not suit the kind of task are left out.

    Raises:
        ConfigError: no way is left, or the method of the settings does not suit the kind.
    """
    if settings.method != "auto":
        if problem := refuse(task, settings):
            raise ConfigError(problem)
        return {settings.method: settings}
    names = list(dict.fromkeys(settings.auto.ways))
    suitable = [name for name in names if WAYS[name].is_tried(task)] or [
        name for name in names if WAYS[name].refuse(task) is None
    ]
    if not suitable:
        raise ConfigError(f"auto.ways: none of {', '.join(names)} suits kind {task.kind}; add finetune")
    return {name: settings.model_copy(update={"method": name}) for name in suitable}


@dataclass(frozen=True)
class Attempt:
    """What one way to learn has brought in one run.

    Attributes:
        minutes: estimated cost (`Cost`); of the whole way if it was left out.
        score: of selection, mean over the members; None if the way was left out (`auto.minutes`, `Way.least_rows`).
        tokens, seconds: of training, before the final run of the way that is kept.
        share: of the steps of the settings; below 1 where `auto.minutes` has shortened the training.
    """

    way: WayName
    minutes: float
    score: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    share: float = 1.0

    def as_dict(self) -> dict[str, Any]:
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
        """The cost of all steps and of what is fixed."""
        return self.fixed + self.step * self.steps


def cost_of(spec: GroupSpec) -> Cost:
    """Estimated cost of a run: 2 operations per parameter and piece in a forward pass, 6 in a training step (Kaplan et
    al. 2020, section 2.1), without the parameters of the embeddings."""
    fixed = step = 0.0
    steps = 0
    for member in spec.members:
        rows, (model, tokenizer) = rows_of(member).labelled, build(member)
        pieces = sum(len(pieces) for row in encode(member, model, tokenizer, rows.fields) for pieces in row.pieces)
        layers = model.encoder.layer_groups()[1:]
        parameters = sum(parameter.numel() for group in layers for parameter in group)
        # Of one operation per parameter and piece of all rows.
        unit = parameters * pieces / OPERATIONS
        fixed += 2 * unit
        way = way_of(spec.settings)
        if not way.trains_encoder:
            continue
        epoch = epoch_of(spec)
        steps, evaluations = schedule_of(spec, epoch=epoch)
        folds = number_of_folds(member)
        # Each row is in one fold: all folds together have the steps of `folds - 1` final runs, unless the number of
        # steps does not depend on the number of rows (`min_steps`, the pairs of contrastive training).
        constant = schedule_of(spec, epoch=2 * epoch)[0] == steps
        fixed += 2 * unit * evaluations
        step += unit * way.operations(spec.settings) / epoch * (1 + folds if constant else max(1, folds))
    return Cost(fixed, step, steps)


def share_left(spec: GroupSpec, cost: Cost, attempts: Sequence[Attempt], *, ways: Sequence[WayName]) -> float:
    """The share of its steps that a run is trained for after earlier attempts; 0: the way is left out. What is left of
    `auto.minutes` is divided equally among the `ways` still to be tried; the first one, and one with teachers, has
    no limit."""
    settings = spec.settings
    if settings.method not in ways:
        return 0.0
    limit = settings.auto.minutes
    if way_of(settings).has_teachers or limit is None or not attempts:
        return 1.0
    spent = sum(attempt.minutes for attempt in attempts if attempt.score is not None)
    return share_within(cost, max(0.0, limit - spent) / (len(ways) - ways.index(settings.method)))


def share_within(cost: Cost, minutes: float) -> float:
    """The share of a way's steps whose cost is within `minutes`; 0 if that is less than `LEAST_SHARE`."""
    if cost.minutes <= minutes:
        return 1.0
    if not cost.steps or minutes <= cost.fixed:
        return 0.0
    share = math.floor((minutes - cost.fixed) / cost.step) / cost.steps
    return share if share >= LEAST_SHARE else 0.0


def shortened(spec: GroupSpec, cost: Cost, share: float) -> GroupSpec:
    if share == 1.0:
        return spec
    short = way_of(spec.settings).shortened(spec.settings, epochs=share * cost.steps / epoch_of(spec))
    return replace(spec, members=tuple(replace(member, settings=short) for member in spec.members))


def suited_ways(specs: Mapping[WayName, GroupSpec]) -> list[WayName]:
    """The ways that a run tries: none that needs more labelled rows (`Way.least_rows`) if there is a cheaper one."""
    if all(WAYS[name].least_rows or WAYS[name].has_teachers for name in specs):
        return list(specs)
    spec = next(iter(specs.values()))
    labelled = all(find_task(read_facts(member.examples).kind).labels_rows for member in spec.members)
    rows = sum(len(rows_of(member).labelled) for member in spec.members)
    return [name for name in specs if not labelled or rows >= WAYS[name].least_rows]


def notes(settings: FinetuneSettings, costs: Sequence[Cost], shares: Sequence[float], *, few: Set[int]) -> list[str]:
    """Messages about the runs in which a way to learn is shortened or not tried, and the reason: their cost, or, for
    the indices in `few`, too few rows."""
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
    if few:
        lines.append(f"left out of {len(few)} of {count} run(s): fewer than {way_of(settings).least_rows} rows")
    return lines
