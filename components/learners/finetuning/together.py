"""Stage `together`: multi-task learning with one encoder, and its results by task.

An item of a group executes a run for every seed that its tasks have in common and every label budget. Budgets are
paired by rank, because their units differ between kinds. The item of a task copies its folder next to its other
results."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from pydantic import Field

from components.core.artifacts import json_of, read_manifest, write_json, writing
from components.core.errors import ConfigError
from components.data.tasks.budgets import refuse_unpaired
from components.data.tasks.examples import TaskFacts, read_facts
from components.data.tasks.results import KIND as FINETUNED
from components.learners.finetuning.execution import clear, train_all
from components.learners.finetuning.fit import EncoderJob, FinetuneJob, Fits, is_trained
from components.learners.finetuning.stage import fits_of, for_start, write_results_of
from components.settings.finetune import FinetuneSettings
from components.settings.section import Section, Start
from components.settings.systems import System
from components.training.checkpoint import fingerprint

KIND = "together"


class TogetherJob(EncoderJob):
    """Inputs of the stage `together`; examples and baselines by task.

    A step's task is sampled with probability proportional to rows^(1 / temperature)."""

    group: str
    start: Start
    examples: dict[str, Path] = Field(min_length=2)
    baselines: dict[str, Path] = Field(default={})
    temperature: float = 1.0


class ShareJob(Section):
    """Inputs of a task's results: its name, and the output directory of its group."""

    task: str
    together: Path
    output: Path


def together(job: TogetherJob | ShareJob) -> Path:
    """Train an encoder with one head per task for every budget and seed that the tasks have in common; or extract the
    results of a task (`share`).

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the tasks have different numbers of budgets or no seed in common, or the settings do not suit the
            encoder.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
    """
    if isinstance(job, ShareJob):
        return share(job)
    settings = for_start(job.settings, trained=is_trained(job.encoder))
    if settings.method not in ("finetune", "auto"):
        raise ConfigError(f"finetune.{job.family}.method: multi-task learning trains the encoder; set it to finetune")
    # The other ways do not train several tasks together.
    settings = settings.model_copy(update={"method": "finetune", "frozen": False})
    facts = {task: read_facts(examples) for task, examples in job.examples.items()}
    if len({each.selection for each in facts.values()}) > 1:
        named = "; ".join(f"{task} {each.selection}" for task, each in facts.items())
        raise ConfigError(f"together.{job.group}: its tasks must have the same selection, found {named}")
    # These systems are further initialisations of their family.
    start = System(job.family, job.start, "with", job.group).variant
    shared = {name: getattr(job, name) for name in EncoderJob.model_fields} | {"start": start}
    singles = [
        FinetuneJob(**shared | {"task": task, "examples": examples, "baselines": job.baselines.get(task)})
        for task, examples in job.examples.items()
    ]
    trainings = list(_trainings(job, facts, singles, settings))
    title = f"together {job.group} {singles[0].system}"
    trained = train_all({"finetune": trainings}, title=title, cluster=job.cluster)
    with writing(job.output, kind=KIND) as draft:
        written, numbers = {}, {}
        for single, *of_task in zip(singles, *trained, strict=True):
            folder = draft.path / single.task
            folder.mkdir()
            written[single.task] = write_results_of(folder, {start: of_task}, job=single)
            numbers[single.task] = json_of(folder / "metrics.json")
        write_json(draft.path / "metrics.json", numbers)
        draft.facts |= {"group": job.group, "tasks": written}
    clear(trainings, cluster=job.cluster)
    return job.output


def _trainings(
    job: TogetherJob, facts: Mapping[str, TaskFacts], singles: Sequence[FinetuneJob], settings: FinetuneSettings
) -> Iterator[Fits]:
    """The trainings of every tuple of budgets, one per task, and every common seed, the longest first."""
    budgets, seeds = ({task: getattr(each, name) for task, each in facts.items()} for name in ("budgets", "seeds"))
    refuse_unpaired(job.group, budgets=budgets, seeds=seeds)
    common = sorted(set.intersection(*map(set, seeds.values())))
    of_tasks = [fits_of(single, settings, list(product(budgets[single.task][::-1], common))) for single in singles]
    for fits in zip(*of_tasks, strict=True):
        key = f"together-{fingerprint(members=[fit.key for fit in fits], temperature=job.temperature)}"
        yield tuple(
            replace(fit, key=key, temperature=job.temperature, number=number) for number, fit in enumerate(fits)
        )


def share(job: ShareJob) -> Path:
    """Copy the results of one task from the output of its group to a directory as `finetune` writes it.

    Raises:
        ArtifactError: the output of `together` is incomplete or altered.
    """
    manifest = read_manifest(job.together, kind=KIND, verify=True)
    with writing(job.output, kind=FINETUNED) as draft:
        shutil.copytree(job.together / job.task, draft.path, dirs_exist_ok=True)
        draft.facts |= manifest.facts["tasks"][job.task]
    return job.output
