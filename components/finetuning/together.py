"""Stages `together` and `share`: multi-task learning with one encoder, and its results by task.

`together` executes a run (`components.finetuning.runs`) for every seed that the tasks of a group have in common and
every label budget. Budgets are paired by rank (each task's smallest with the others' smallest, and so on), because
their units differ between kinds. The stage writes one folder per task, as the stage `finetune` does. `share` copies a
task's folder next to the other results of that task, so that single-task and multi-task systems are in one folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from components.artifacts import read_manifest, writing
from components.errors import ConfigError
from components.finetuning.execution import clear, train_all
from components.finetuning.runs import GroupSpec
from components.finetuning.stage import (
    FinetuneJob,
    for_start,
    inputs_of,
    precision_of,
    spec_of,
    write_member,
)
from components.models.encoder import KIND as ENCODER
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.names import Start
from components.settings.section import Section
from components.settings.systems import System
from components.tasks.budgets import refuse_unpaired
from components.tasks.examples import TaskFacts, read_facts
from components.tasks.results import KIND as FINETUNED
from components.training.checkpoint import fingerprint
from components.training.precision import Precision

KIND = "together"


class TogetherJob(Section):
    """Inputs of the stage `together`.

    Attributes:
        group: block of `together`.
        family: block of `pretrain` that the encoder comes from.
        start: initialisation of the encoder.
        examples: task -> output directory of the stage `examples`.
        words: task -> as in `FinetuneJob`.
        encoder: encoder directory.
        settings: `finetune.<family>`.
        temperature: a step's task is sampled with probability proportional to rows^(1 / temperature).
        code: as in `FinetuneJob`.
    """

    group: str
    family: str
    start: Start
    examples: dict[str, Path] = Field(min_length=2)
    words: dict[str, Path] = Field(default={})
    encoder: Path
    output: Path
    settings: FinetuneSettings
    temperature: float = 1.0
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()

    @property
    def shared_start(self) -> str:
        """Name of the initialisation in results: these systems are further initialisations of their family."""
        return System(self.family, self.start, "with", self.group).variant

    @property
    def system(self) -> str:
        """Name of the system in results."""
        return f"{self.family}-{self.shared_start}"


class ShareJob(Section):
    """Inputs of the stage `share`.

    Attributes:
        task: name of the task.
        together: output directory of the stage `together`.
    """

    task: str
    together: Path
    output: Path


@dataclass(frozen=True)
class _Member:
    """One task of the group."""

    job: FinetuneJob
    facts: TaskFacts
    inputs: dict[str, Any]


def together(job: TogetherJob) -> Path:
    """Train an encoder with one head per task for every budget and seed that the tasks have in common.

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the tasks have different numbers of budgets or no seed in common, or the settings do not suit the
            encoder.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
    """
    encoder = read_manifest(job.encoder, kind=ENCODER)
    trained = bool(encoder.facts.get("trained", True))
    settings = for_start(job.settings, trained=trained).model_copy(update={"frozen": False, "unlabelled": None})
    if settings.method == "auto":
        # The other ways do not train several tasks together.
        settings = settings.model_copy(update={"method": "finetune"})
    if settings.method != "finetune":
        raise ConfigError(f"finetune.{job.family}.method: multi-task learning trains the encoder; set it to finetune")
    members = [_member(job, task, settings, encoder.digest) for task in job.examples]
    precision = precision_of(members[0].job)
    specs = list(_specs(job, members, settings, precision, trained=trained))
    title = f"together {job.group} {job.system}"
    selections = {member.job.task: member.facts.selection for member in members}
    if len(set(selections.values())) > 1:
        each = "; ".join(f"{task} {selection}" for task, selection in selections.items())
        raise ConfigError(f"together.{job.group}: its tasks must have the same selection, found {each}")
    runs = train_all(
        {"finetune": specs},
        title=title,
        names=list(job.examples),
        selection=members[0].facts.selection,
        cluster=job.cluster,
    )
    with writing(job.output, kind=KIND) as draft:
        facts, numbers = {}, {}
        for index, member in enumerate(members):
            folder = draft.path / member.job.task
            folder.mkdir()
            facts[member.job.task] = write_member(folder, runs, index, job=member.job, start=job.shared_start) | {
                "encoder": encoder.digest
            }
            numbers[member.job.task] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        (draft.path / "metrics.json").write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n")
        draft.facts |= {"group": job.group, "tasks": facts}
    clear(runs, cluster=job.cluster)
    return job.output


def share(job: ShareJob) -> Path:
    """Copy the results of one task from the output of `together` to a directory as `finetune` writes it.

    If the task does not belong to the group, the directory holds only its manifest.

    Raises:
        ArtifactError: the output of `together` is incomplete or altered.
    """
    manifest = read_manifest(job.together, kind=KIND, verify=True)
    with writing(job.output, kind=FINETUNED) as draft:
        if job.task in manifest.facts["tasks"]:
            shutil.copytree(job.together / job.task, draft.path, dirs_exist_ok=True)
            draft.facts |= manifest.facts["tasks"][job.task]
    return job.output


def _member(job: TogetherJob, task: str, settings: FinetuneSettings, encoder: str) -> _Member:
    single = FinetuneJob(
        task=task,
        family=job.family,
        start=job.start,
        examples=job.examples[task],
        words=job.words.get(task),
        encoder=job.encoder,
        output=job.output,
        settings=job.settings,
        cluster=job.cluster,
    )
    facts = read_facts(job.examples[task])
    return _Member(single, facts, inputs_of(settings, facts, encoder=encoder, code=job.code))


def _common(job: TogetherJob, members: list[_Member]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Tuples of one budget per task, smallest first; and the seeds that all tasks have in common."""
    budgets = {member.job.task: member.facts.budgets for member in members}
    seeds = {member.job.task: member.facts.seeds for member in members}
    refuse_unpaired(job.group, budgets=budgets, seeds=seeds)
    return list(zip(*budgets.values(), strict=True)), sorted(set.intersection(*map(set, seeds.values())))


def _specs(
    job: TogetherJob, members: list[_Member], settings: FinetuneSettings, precision: Precision, *, trained: bool
) -> Iterator[GroupSpec]:
    """The longest runs first."""
    budgets, seeds = _common(job, members)
    for row in reversed(budgets):
        for seed in seeds:
            specs = tuple(
                spec_of(member.job, settings, member.inputs, budget, seed, precision, trained=trained)
                for member, budget in zip(members, row, strict=True)
            )
            key = fingerprint(members=[spec.key for spec in specs], temperature=job.temperature)
            yield GroupSpec(specs, key=f"together-{key}", temperature=job.temperature)
