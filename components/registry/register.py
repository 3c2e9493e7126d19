"""The stage `register`: register every model of a run as a version in MLflow.

DVC never caches this stage, because it acts on the registry. It is idempotent: a model whose content digest is already
registered is skipped. A registered model is a bundle: a complete directory of data, without timings or curves, so that
its digest identifies the model.

registered.json holds `schema`, `tracking` (address); `models`, a list of {name, version, digest, kind, family, start,
task, system, parent, directory}; `challengers`, task -> {name, version, digest, system, metric, budget, dev_score}: the
system with the best score of selection at the largest label budget, of equal ones the cheapest: words, then a frozen
encoder, then a fine-tuned one; and `candidates`, task -> the best system of each of these three, in this order, with
the same fields.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from components.core.artifacts import (
    MANIFEST,
    Manifest,
    flatten,
    json_of,
    link_or_copy,
    read_json,
    read_manifest,
    write_atomic,
    writing,
)
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.tasks.budgets import ALL, budget_name
from components.data.tasks.examples import read_facts
from components.data.tasks.kinds import find_kind
from components.data.tasks.results import best_point
from components.learners.loading import load_model
from components.registry.drift.measurements import REFERENCE, record_reference
from components.registry.explain import CLASSIFIER, FROZEN_CLASSIFIER, Evaluated, read_leakage
from components.registry.lineage import Lineage, provenance, read_lineage
from components.registry.tracking import Record, Version, connect
from components.settings.registry import RegistrySettings
from components.settings.section import BASELINES, VECTORS, Section, Start
from components.settings.systems import TASK_ADAPTED, System

REGISTERED = "registered.json"
SCHEMA = 1
#: Family of models without a language model.
WORDS = "words"
#: Files of a model's directory that describe its training and are not part of the bundle.
EXCLUDED = ("metrics.json", "curve.csv")
#: How a model of each cost learns a task.
WAYS = ("a linear model on words, without a language model", "a head on the frozen encoder", "fine-tuned")
#: A model of a run. Of an encoder the task is None; a words model is a system without a family.
Key = tuple[System, str | None]


class RegisterJob(Section):
    """Inputs of the stage.

    Attributes:
        out: `params.run.out`, with the encoders and classifiers; registered.json is written below it.
        starts: initialisations of the classifiers. The encoder of each, except `scratch`, is registered as well.
        systems: task -> its systems with a language model.
        parameters: section -> block -> settings (`pretrain`, `static`, `adapt`, `finetune`), logged with the
            models.
        parents: block -> blocks that its encoders are computed from; these are registered as well.
        data: output below `out` that is made from raw data (`corpus/general`, `examples/<task>`) -> path of the data.
    """

    registry: RegistrySettings
    out: Path
    families: list[str]
    tasks: list[str]
    starts: list[Start]
    systems: dict[str, list[System]]
    students: dict[str, list[str]] = Field(default_factory=dict)
    parameters: dict[str, dict[str, dict[str, Any]]]
    parents: dict[str, list[str]] = Field(default_factory=dict)
    metric: str | None = None
    data: dict[str, Path] = Field(default_factory=dict)
    project: Path = Path()


@dataclass(frozen=True)
class Candidate:
    """A model to register.

    Attributes:
        computed_from: of an encoder: block of the model that its weights were computed from.
        teachers: of a student: the systems whose predictions it has learned.
    """

    job: RegisterJob
    system: System
    task: str | None = None
    computed_from: str = ""
    teachers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.system, self.task

    @property
    def cost(self) -> int:
        """Rank by the cost of training and serving: words, head on a frozen encoder, fine-tuned."""
        return 0 if not self.system.family else 1 if self.system.frozen else 2

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "kind": "encoder" if self.task is None else "classifier",
            "family": self.system.family or WORDS,
            "start": self.system.variant,
            "task": self.task,
            "system": "" if self.task is None else str(self.system),
        }

    @property
    def section(self) -> str:
        """Section of the settings that made it."""
        if self.task is not None:
            return "finetune"
        return "static" if self.computed_from else "pretrain" if self.system.start == "pretrained" else "adapt"

    @property
    def name(self) -> str:
        """Name of the registered model."""
        return self.job.registry.model_name(self.task or str(self.system))

    @property
    def directory(self) -> Path:
        """Output of the stage that made it."""
        if self.task is None:
            return self.job.out / "encoder" / self.system.family / self.system.variant
        return self.job.out / "finetuned" / self.task / (str(self.system.tuned) if self.cost else BASELINES)

    @property
    def model(self) -> Path:
        """Directory of the model within its stage's output."""
        part = FROZEN_CLASSIFIER if self.system.frozen else CLASSIFIER
        return self.directory if self.task is None else self.directory / part

    @cached_property
    def content(self) -> Manifest:
        return model_content(self.model, kind=self.identity["kind"])

    @property
    def dev(self) -> dict[str, Any]:
        return read_dev_score(self.directory / "runs.json", system=str(self.system), metric=self.job.metric)

    @property
    def parent(self) -> Key | None:
        """The model that this one was initialised or computed from; None for random weights."""
        family, start = self.system.family, self.system.start
        if self.computed_from:
            return replace(self.system, family=self.computed_from), None
        if self.task is None:
            start = "pretrained" if start == "adapted" else "adapted" * start.startswith(TASK_ADAPTED)
        elif self.system.way == "after":
            return System(family, start), self.system.group
        elif start == TASK_ADAPTED:
            start = f"{TASK_ADAPTED}-{self.task}"
        return None if not family or start in ("", "scratch", VECTORS) else (System(family, start), None)

    def record(self, lineage: Lineage, models: Sequence[Candidate], versions: Mapping[Key, Version]) -> Record:
        """What is stored with its version, given the models before it and their versions."""
        job, directory, identity = self.job, self.directory, self.identity
        parent = versions.get(self.parent) if self.parent is not None else None
        teachers = [
            versions[each.key] for each in models if each.task == self.task and str(each.system) in self.teachers
        ]
        evaluated = Evaluated.read(job.out / "evaluation" / str(self.task))
        artifact = evaluated.artifacts.get(identity["system"], {})
        rows = job.out / "examples" / str(self.task)
        digest = read_facts(rows).digests["test"] if rows.is_dir() else ""
        metrics, about = dict[str, float](), f"Language models: {self.system.family}, {self.system.start}."
        about += " One version per retraining that changed them."
        if self.task is not None:
            about = (
                f"Models of the task {self.task}: one version per system and retraining that changed it. The "
                f"alias `{job.registry.alias}` marks the best one; `headstart champion` and "
                "`headstart champion --history` say since when and why."
            )
            # What its stage has measured is in the stage's run.
            copies, dev = read_leakage(job.out, self.task, identity["system"]), self.dev
            metrics |= {f"dev.{dev['metric']}": dev["dev_score"]}
            metrics |= {f"test.{name}": float(score["mean"]) for name, score in artifact.get("scores", {}).items()}
            metrics |= {f"leakage.test.{kind}": float(copies[kind]) for kind in ("exact", "near") if kind in copies}
        tags = {"digest": self.content.digest} | {key: value or "" for key, value in identity.items()}
        tags |= {"parent": parent.label} if parent else {}
        tags |= {"teacher": ", ".join(version.label for version in teachers)} if teachers else {}
        return Record(
            run_name=(directory if self.cost == 2 else self.model).relative_to(job.out).as_posix(),
            metrics=metrics,
            parameters=dict(flatten(job.parameters.get(self.section, {}).get(identity["family"], {}))),
            datasets=lineage.data_of(directory),
            tags=tags | lineage.tags(directory),
            provenance=provenance(lineage, out=job.out, output=directory),
            description="\n\n".join(self._description(evaluated.content, artifact)),
            about=about,
            tested=(f"{self.task}, test", digest[:36]) if digest else None,
        )

    def _description(self, evaluation: Mapping[str, Any], artifact: Mapping[str, Any]) -> Iterator[str]:
        """A version in words: what it is, and its score on test."""
        if self.task is None:
            yield f"Language model {self.system.family}, {self.system.start}."
        else:
            facts = self.content.facts
            budget = "" if (labels := facts.get("budget")) is None else f", with the label budget {budget_name(labels)}"
            seeds = f", seeds {', '.join(map(str, facts['seeds']))}" if facts.get("seeds") else ""
            yield f"Model of the task {self.task}: {self.system}, {WAYS[self.cost]}{budget}{seeds}."
        if artifact:
            main = evaluation["main"]
            yield (
                f"Score: {evaluation['titles'][main]} "
                + "{mean:.3f} [{low:.3f}, {high:.3f}]".format_map(artifact["scores"][main])
                + f" on {evaluation['rows']['test']:,} test rows ({evaluation['confidence']:.0%} interval), from "
                f"{artifact['labels']:,} labelled rows."
            )


def candidates(job: RegisterJob) -> Iterator[Candidate]:
    """The models of a run, parents before children."""
    computed_from = [name for names in job.parents.values() for name in names]
    for family in dict.fromkeys([*computed_from, *sorted(job.families, key=job.parents.__contains__)]):
        teacher = next(iter(job.parents.get(family, ())), "")
        for start in ("pretrained", "adapted"):
            if start in job.starts:
                yield Candidate(job, System(family, start), computed_from=teacher)
    for family in job.families:
        for task, systems in job.systems.items():
            if System(family, TASK_ADAPTED) in systems:
                yield Candidate(job, System(family, f"{TASK_ADAPTED}-{task}"))
    # The models of intermediate tasks come before those that start from them, and teachers before their students.
    yield from sorted(_classifiers(job), key=lambda each: (bool(each.teachers), each.system.way == "after"))


def _classifiers(job: RegisterJob) -> Iterator[Candidate]:
    for task, systems in job.systems.items():
        for system in systems:
            tuned = Candidate(job, system, task, teachers=tuple(job.students.get(str(system), ())))
            # Not every task has a frozen encoder or a words model.
            frozen = replace(tuned, system=replace(system, frozen=True))
            yield from [tuned, *[frozen] * (not tuned.teachers and (frozen.model / MANIFEST).is_file())]
        words = job.out / "finetuned" / task / BASELINES / CLASSIFIER
        if (words / MANIFEST).is_file():
            yield Candidate(job, System("", str(read_manifest(words).facts["system"])), task)


def model_content(directory: Path, *, kind: str) -> Manifest:
    """The model in a complete directory, according to its manifest; no other file is read."""
    manifest = read_manifest(directory, kind=kind)
    files = {name: entry for name, entry in manifest.files.items() if name not in EXCLUDED}
    if not any(name.endswith(".safetensors") for name in files):
        raise ArtifactError(f"{directory}: holds no weights (*.safetensors); run its stage again")
    return replace(manifest, files=files)


def write_bundle(directory: Path, path: Path, *, kind: str) -> Path:
    """Make the bundle `path` of the model in a directory, by links where that is possible, and verify their content
    against the digests in the manifest."""
    content = model_content(directory, kind=kind)
    with writing(path, kind=kind) as draft:
        draft.facts.update(content.facts)
        for name in content.files:
            target = draft.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # The file itself, not a link to a cache.
            link_or_copy((directory / name).resolve(), target)
    written = read_manifest(path)
    for name, entry in content.files.items():
        if written.files[name]["sha256"] != entry["sha256"]:
            raise ArtifactError(
                f"{directory / name}: altered since it was written (SHA-256 differs); "
                "restore it with `dvc checkout` or run the stage again"
            )
    return path


def register(job: RegisterJob) -> Path:
    """Register every model; write registered.json."""
    models = list(candidates(job))
    for model in models:
        assert model.content  # all of them are complete before the first is registered
    registry = connect(job.registry)
    lineage = read_lineage(job.project, out=job.out, data=job.data)
    versions: dict[Key, Version] = {}
    for model in models:
        registered = next(reversed(registry.versions(model.name, digest=model.content.digest)), None)
        if registered is None:
            record = model.record(lineage, models[: len(versions)], versions)
            config = model.task and read_json(model.model / "config.json", made_by="the stage finetune")
            form = find_kind(config["kind"]).io if config else None
            # On the disk of the outputs, so that the bundle is made of links.
            with tempfile.TemporaryDirectory(prefix=".register-", dir=job.out) as draft:
                bundle = write_bundle(model.model, Path(draft) / "bundle", kind=model.identity["kind"])
                versions[model.key] = registry.record(model.name, bundle, form, record)
        else:
            versions[model.key] = registered
        print(f"{versions[model.key].label}: {'already ' if registered else ''}registered", flush=True)

    def best(task: str, cost: int) -> list[dict[str, Any]]:
        entries = [
            versions[model.key].identity | {"system": str(model.system)} | model.dev
            for model in models
            if (model.task, model.cost) == (task, cost)
        ]
        return sorted(entries, key=lambda entry: -entry["dev_score"])[:1]

    ranked = {task: [entry for cost in range(len(WAYS)) for entry in best(task, cost)] for task in job.tasks}
    # Among equal scores `max` finds the first, which is the cheapest.
    challengers = {task: max(entries, key=lambda entry: float(entry["dev_score"])) for task, entries in ranked.items()}
    for model in models:
        # Of the versions that are promoted automatically, frozen encoders as first champions apart. `headstart drift`
        # measures the reference of another version.
        if model.cost == 0 or (model.task and str(model.system) == challengers[model.task]["system"]):
            version, examples = versions[model.key], job.out / "examples" / str(model.task)
            if registry.document(version, REFERENCE) is None and examples.is_dir():
                record_reference(registry, version, load_model(model.model), examples=examples)
    described = [
        versions[model.key].identity
        | model.identity
        | {"parent": versions[model.key].tags.get("parent") or None, "directory": model.directory.as_posix()}
        for model in models
    ]
    listing = {"schema": SCHEMA, "tracking": registry.address, "models": described}
    path = job.out / "registry" / REGISTERED
    write_atomic(path, json.dumps(listing | {"challengers": challengers, "candidates": ranked}, indent=1) + "\n")
    return path


def read_dev_score(path: Path, *, system: str, metric: str | None = None) -> dict[str, Any]:
    """The score of selection of a system in a `runs.json`: {budget, metric, dev_score}, the mean over the seeds of the
    largest label budget (-1: all labels), each run at its best."""
    try:
        runs = [run for run in json_of(path) if run["system"] == system]
        largest = max((run["budget"] for run in runs), key=lambda budget: (budget == ALL, budget))
        best = [best_point(run) for run in runs if run["budget"] == largest]
        name = metric or str(runs[0]["score"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run the stage finetune again") from error
    if unknown := [point for point in best if name not in point]:
        raise ConfigError(f"promote.metric: {name!r} is not a metric of {path}{nearest(name, unknown[0])}")
    return {"budget": largest, "metric": name, "dev_score": sum(point[name] for point in best) / len(best)}
