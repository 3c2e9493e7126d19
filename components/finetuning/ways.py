"""The ways to learn of a run: one, or with `method: auto` several, of which the one with the best score is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.errors import ConfigError
from components.finetuning.crossvalidation import epoch_of
from components.finetuning.runs import GroupSpec, schedule_of
from components.finetuning.specs import build, encode, number_of_folds, rows_of
from components.settings.finetune import FinetuneSettings, Way
from components.task_models.base import Task, refuse_settings
from components.task_models.kinds import find_task
from components.tasks.examples import read_facts, read_split

#: Nominal speed in floating-point operations a minute: a cost in minutes must not depend on the machine or its load.
OPERATIONS = 50e9 * 60


def ways_of(settings: FinetuneSettings, task: Task) -> dict[Way, FinetuneSettings]:
    """Way to learn -> settings of its runs, in the order in which they are tried.

    With `method: auto`, ways that do not suit the kind of task are left out. Contrastive training is left out for
    pairs: on SICK, with MiniLM, it lowered the score of the head on the frozen encoder. With `method: consistency`,
    training without unlabelled text is tried too; it is kept where unlabelled text does not improve the score.

    Raises:
        ConfigError: no way is left.
    """
    names: list[Way] = ["finetune", "consistency"]
    if settings.method == "auto":
        names = list(settings.auto.ways)
    elif settings.method != "consistency":
        return {settings.method: settings}
    ways = {way: settings.model_copy(update={"method": way}) for way in dict.fromkeys(names)}
    if "features" in ways:
        frozen = {"mixout": 0.0, "reinitialised": 0, "interpolations": []}
        ways["features"] = ways["features"].model_copy(update=frozen)
    if task.kind == "pair" and len(ways) > 1:
        ways.pop("contrastive", None)
    suitable = {
        way: changed
        for way, changed in ways.items()
        if refuse_settings(task, changed) is None and (way != "consistency" or _suits_consistency(task, changed))
    }
    if not suitable:
        raise ConfigError(f"auto.ways: none of {', '.join(ways)} suits kind {task.kind}; add finetune")
    return suitable


def _suits_consistency(task: Task, settings: FinetuneSettings) -> bool:
    """Whether a kind has probabilities of labels, and there is text without labels."""
    return settings.unlabelled is not None and task.labels_rows


@dataclass(frozen=True)
class Attempt:
    """What one way to learn has brought in one run.

    Attributes:
        way: the way.
        minutes: estimated cost (`minutes`).
        score: of selection, mean over the members; None if the way was left out (`auto.minutes`, `auto.finetune_rows`).
        tokens, seconds: of training, before the final run of the way that is kept.
    """

    way: Way
    minutes: float
    score: float | None = None
    tokens: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The entry of a run's record."""
        return asdict(self) | {"minutes": round(self.minutes, 3)}


def minutes(spec: GroupSpec) -> float:
    """Estimated cost of a run with its cross-validation, in minutes at `OPERATIONS`.

    A forward pass takes 2 operations per parameter and piece, a training step 6 (Kaplan et al. 2020, section 2.1);
    parameters of the embeddings are not counted.
    """
    total = 0.0
    for member in spec.members:
        facts, whole = read_facts(member.examples), read_split(member.examples, "train")
        rows = whole.take(rows_of(member, whole).learned)
        model, tokenizer = build(member)
        pieces = sum(len(pieces) for row in encode(member, model, tokenizer, rows.fields) for pieces in row.pieces)
        layers = model.encoder.layer_groups()[1:]
        parameters = sum(parameter.numel() for group in layers for parameter in group)
        folds = number_of_folds(member) if facts.selection == "budget" else 0
        passes = 2.0
        if spec.settings.method != "features":
            # The steps of all folds together are those of `folds - 1` final runs; each row is in one fold.
            epoch = epoch_of(spec)
            steps, evaluations = schedule_of(spec, epoch=epoch)
            # Each unlabelled text is read by the teacher too.
            free = spec.settings.unlabelled.ratio if spec.settings.unlabelled is not None else 0
            step: float = 6 + 8 * free * (spec.settings.method == "consistency")
            if member.distillation is not None:
                step = 6 + 6 * member.distillation.settings.batch_size / spec.settings.step_rows
            passes += step * steps / epoch * max(1, folds) + 2 * evaluations
        total += passes * parameters * pieces
    return total / OPERATIONS


def has_few_rows(spec: GroupSpec) -> bool:
    """Whether a run whose rows have labels has fewer than `auto.finetune_rows`."""
    labelled = all(find_task(read_facts(member.examples).kind).labels_rows for member in spec.members)
    return labelled and rows_in(spec) < spec.settings.auto.finetune_rows


def rows_in(spec: GroupSpec) -> int:
    """Number of training rows of a run, over all members."""
    return sum(len(rows_of(member, read_split(member.examples, "train")).learned) for member in spec.members)


def affordable(attempts: Sequence[Attempt], cost: float, *, limit: float | None) -> bool:
    """Whether a further way of this cost may be tried after these attempts; the first always is.

    Args:
        attempts: so far.
        cost: in minutes.
        limit: `auto.minutes`.
    """
    spent = sum(attempt.minutes for attempt in attempts if attempt.score is not None)
    return not attempts or limit is None or spent + cost <= limit


def left_out(
    specs: Sequence[GroupSpec], costs: Sequence[float], *, fit: Sequence[int], tried: Sequence[int]
) -> list[str]:
    """In how many runs a way to learn is not tried, and why.

    Args:
        specs: the runs.
        costs: of the runs in minutes.
        fit: indices of the runs in which the cost is within the limit.
        tried: those of them that have enough rows.
    """
    lines = []
    if costly := [run for run in range(len(specs)) if run not in fit]:
        limit = specs[costly[0]].settings.auto.minutes
        most = max(costs[run] for run in costly)
        lines.append(
            f"left out of {len(costly)} of {len(specs)} run(s): it costs {most:.1f} minutes at a nominal speed, more "
            f"than auto.minutes ({limit:g}) leaves"
        )
    if few := [run for run in fit if run not in tried]:
        rows = specs[few[0]].settings.auto.finetune_rows
        lines.append(f"left out of {len(few)} of {len(specs)} run(s): fewer rows than auto.finetune_rows ({rows})")
    return lines
