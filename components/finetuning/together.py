"""Stages `together` and `share`: several tasks learned by one encoder, and the results where those of one task lie.

`together` does every seed that the tasks of a group have in common and every label budget (see
`components.finetuning.joint`): each task's smallest with the others' smallest, and so on, for what a budget counts
differs from kind to kind. It writes one folder a task, each as the stage `finetune` writes it. `share` puts a task's
folder beside the others of that task, so that everything downstream finds single-task and multi-task systems in one
place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import Tensor

from components.artifacts import Draft, read_manifest, writing
from components.cluster import map_parallel
from components.errors import ConfigError
from components.finetuning.features import trim
from components.finetuning.frozen import compute_all
from components.finetuning.joint import JointSpec, execute_joint
from components.finetuning.runs import finished, unpack
from components.finetuning.stage import (
    FinetuneJob,
    for_start,
    inputs_of,
    precision_of,
    spec_of,
    write_classifier,
)  # fmt: skip
from components.models.encoder import KIND as ENCODER
from components.progress import Progress
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.names import WITH, Start
from components.settings.section import Section
from components.tasks.budgets import budget_name, refuse_unpaired
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.results import KIND as FINETUNED
from components.tasks.results import RunResult, best_score, write_results
from components.training.checkpoint import CheckpointStore, fingerprint
from components.training.precision import Precision

KIND = "together"


class TogetherJob(Section):
    """What the stage is told.

    Attributes:
        group: name of the block in `together`.
        family: name of the block in `pretrain` that the encoder comes from.
        examples: task -> output directory of the stage `examples`.
        encoder: encoder directory of this start.
        settings: `finetune.<family>`.
        temperature: tasks are drawn in proportion to rows^(1 / temperature).
    """

    group: str
    family: str
    start: Start
    examples: dict[str, Path] = Field(min_length=2)
    encoder: Path
    output: Path
    settings: FinetuneSettings
    temperature: float = 1.0
    cluster: ClusterSettings = ClusterSettings()

    @property
    def shared_start(self) -> str:
        """Name of the start in results: these systems are further starts of their family."""
        return f"{self.start}{WITH}{self.group}"

    @property
    def system(self) -> str:
        """Name of the system in results."""
        return f"{self.family}-{self.shared_start}"


class ShareJob(Section):
    """What the stage is told.

    Attributes:
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
    """Train an encoder with a head a task for every budget and seed that the tasks share.

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the tasks have different numbers of budgets or no seed in common, or the settings do not suit the
            encoder.
        TrainingError: a loss that is not finite, no space for a checkpoint.
    """
    encoder = read_manifest(job.encoder, kind=ENCODER)
    trained = bool(encoder.facts.get("trained", True))
    settings = for_start(job.settings, trained=trained).model_copy(update={"frozen": False})
    if settings.method != "finetune":
        raise ConfigError(
            f"finetune.{job.family}: tasks that learn together share an encoder that learns; set method to finetune"
        )
    members = [_member(job, task, settings, encoder.digest) for task in job.examples]
    precision = precision_of(members[0].job)
    specs = list(_specs(job, members, settings, precision, trained=trained))
    left = [spec for spec in specs if not finished(spec)]
    compute_all((member for spec in left for member in spec.members), cluster=job.cluster)
    with Progress(
        f"together {job.group} {job.system}", total=len(specs), unit="run", done=len(specs) - len(left)
    ) as bar:
        for index, records in map_parallel(execute_joint, left, settings=job.cluster):
            scores = {
                f"{task}_{record['score']}": round(best_score(record), 4)
                for task, record in zip(job.examples, records, strict=True)
            }
            bar.advance(1, labels=budget_name(left[index].members[0].budget), **scores)
    with writing(job.output, kind=KIND) as draft:
        facts = {
            member.job.task: _write(draft, place, member, specs, job) | {"encoder": encoder.digest}
            for place, member in enumerate(members)
        }
        numbers = {
            task: json.loads((draft.path / task / "metrics.json").read_text(encoding="utf-8")) for task in job.examples
        }
        (draft.path / "metrics.json").write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n")
        draft.facts |= {"group": job.group, "tasks": facts}
    for spec in specs:
        CheckpointStore(spec.storage, key=spec.key).clear()
    trim(Path(job.cluster.features), gigabytes=job.cluster.features_gigabytes)
    return job.output


def share(job: ShareJob) -> Path:
    """Copy what `together` wrote for a task into a directory of its own, as `finetune` writes it.

    Of a task that does not belong to the group the directory is empty but for its manifest.

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
        encoder=job.encoder,
        output=job.output,
        settings=job.settings,
        cluster=job.cluster,
    )
    facts = read_facts(job.examples[task])
    return _Member(single, facts, inputs_of(settings, facts, encoder=encoder))


def _common(job: TogetherJob, members: list[_Member]) -> tuple[list[tuple[int, ...]], list[int]]:
    """The budgets of all tasks, smallest first, one of each task together; and the seeds that all have."""
    budgets = {member.job.task: member.facts.budgets for member in members}
    seeds = {member.job.task: member.facts.seeds for member in members}
    refuse_unpaired(job.group, budgets=budgets, seeds=seeds)
    return list(zip(*budgets.values(), strict=True)), sorted(set.intersection(*map(set, seeds.values())))


def _specs(
    job: TogetherJob, members: list[_Member], settings: FinetuneSettings, precision: Precision, *, trained: bool
) -> Iterator[JointSpec]:
    """The longest runs first, so that no core waits for one at the end."""
    budgets, seeds = _common(job, members)
    for row in reversed(budgets):
        for seed in seeds:
            specs = tuple(
                spec_of(member.job, settings, member.inputs, budget, seed, precision, trained=trained)
                for member, budget in zip(members, row, strict=True)
            )
            key = fingerprint(members=[spec.key for spec in specs], temperature=job.temperature)
            yield JointSpec(specs, job.temperature, f"together-{key}")


def _write(draft: Draft, place: int, member: _Member, specs: list[JointSpec], job: TogetherJob) -> dict[str, Any]:
    """A task's folder; returns the facts that `finetune` would put in its manifest."""
    folder = draft.path / member.job.task
    folder.mkdir()
    splits = {name: read_split(member.job.examples, name) for name in ("dev", "test")}
    records = write_results(folder, _results(place, specs, job), splits=splits, labels=member.facts.labels)
    largest = specs[0].members[place].budget
    scores = {record["seed"]: best_score(record) for record in records if record["budget"] == largest}
    own = [spec for spec in specs if spec.members[place].budget == largest]
    best = max(own, key=lambda spec: scores[spec.seed])
    tensors, _ = _stored(best, place)
    write_classifier(folder / "classifier", best.members[place], tensors, task=member.job.task, start=job.shared_start)
    return {
        "task": member.job.task,
        "system": job.system,
        "family": job.family,
        "start": job.shared_start,
        "precision": specs[0].members[place].precision,
        "examples": member.facts.digests,
        "runs": len(records),
    }


def _results(place: int, specs: list[JointSpec], job: TogetherJob) -> Iterator[RunResult]:
    for spec in sorted(specs, key=lambda spec: ((budget := spec.members[place].budget) < 0, budget, spec.seed)):
        tensors, record = _stored(spec, place)
        answers = {name: unpack(name, tensors) for name in ("dev", "test")}
        yield RunResult(job.system, job.family, job.shared_start, dict(record), answers)


def _stored(spec: JointSpec, place: int) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """What a finished run says of the task at `place`: tensors under the names of `runs.execute`, and its record."""
    stored = CheckpointStore(spec.storage, key=spec.key).latest()
    assert stored is not None
    prefix = f"{place}."
    tensors = {name.removeprefix(prefix): value for name, value in stored.tensors.items() if name.startswith(prefix)}
    return tensors, stored.numbers["records"][place]
