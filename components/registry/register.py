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
from typing import Any, NamedTuple

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
from components.settings.systems import FROZEN, TASK_ADAPTED, System

REGISTERED = "registered.json"
SCHEMA = 1
#: Family of models without a language model.
WORDS = "words"
#: Files of a model's directory that describe its training and are not part of the bundle.
EXCLUDED = ("metrics.json", "curve.csv")
#: How a model of each cost learns a task.
WAYS = ("a linear model on words, without a language model", "a head on the frozen encoder", "fine-tuned")
#: (family, start, task) of a model, unique within a run.
Key = tuple[str, str, str | None]


class RegisterJob(Section):
    """Inputs of the stage.

    Attributes:
        out: `params.run.out`, with the encoders and classifiers; registered.json is written below it.
        starts: initialisations of the classifiers. The encoder of each, except `scratch`, is registered as well.
        further: task -> additional initialisations of its classifiers (`adapt_task`, `together`).
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
    further: dict[str, list[str]] = Field(default_factory=dict)
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
        start: initialisation of the encoder, and how it is continued (`System.variant`); of a words model its system.
        computed_from: of an encoder: block of the model that its weights were computed from.
        teachers: of a student: the systems whose predictions it has learned.
    """

    job: RegisterJob
    family: str
    start: str
    task: str | None = None
    computed_from: str = ""
    teachers: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "encoder" if self.task is None else "classifier"

    @property
    def cost(self) -> int:
        """Rank by the cost of training and serving: words, head on a frozen encoder, fine-tuned."""
        return 0 if self.family == WORDS else 1 if self.start.endswith(FROZEN) else 2

    @property
    def system(self) -> str:
        """Of a classifier: its name in results."""
        name = self.start if self.family == WORDS else f"{self.family}-{self.start}"
        return "" if self.task is None else name

    @property
    def section(self) -> str:
        """Section of the settings that made it."""
        if self.task is not None:
            return "finetune" if self.cost else "baseline"
        return "static" if self.computed_from else "pretrain" if self.start == "pretrained" else "adapt"

    @property
    def name(self) -> str:
        """Name of the registered model."""
        return f"{self.job.registry.prefix}-{self.task or f'{self.family}-{self.start}'}"

    @property
    def directory(self) -> Path:
        """Output of the stage that made it."""
        if self.task is None:
            return self.job.out / "encoder" / self.family / self.start
        folder = self.system.removesuffix(FROZEN) if self.cost else BASELINES
        return self.job.out / "finetuned" / self.task / folder

    @property
    def model(self) -> Path:
        """Directory of the model within its stage's output."""
        part = FROZEN_CLASSIFIER if self.cost == 1 else CLASSIFIER
        return self.directory if self.task is None else self.directory / part

    @cached_property
    def content(self) -> Manifest:
        return model_content(self.model, kind=self.kind)

    @property
    def key(self) -> Key:
        """Identity within a run."""
        return (self.family, self.start, self.task)

    @property
    def identity(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("kind", "family", "start", "task", "system")}

    @property
    def dev(self) -> DevScore:
        return read_dev_score(self.directory / "runs.json", system=self.system, metric=self.job.metric)

    @property
    def parent(self) -> Key | None:
        """Key of the model that this one was initialised or computed from; None for random weights."""
        system, encoder = System.of(self.family, self.start), ""
        if self.computed_from:
            return (self.computed_from, self.start, None)
        if self.task is None:
            encoder = "pretrained" if self.start == "adapted" else "adapted" * self.start.startswith(TASK_ADAPTED)
        elif self.cost:
            if system.way == "after":
                return (self.family, system.start, system.group)
            encoder = f"{TASK_ADAPTED}-{self.task}" if system.start == TASK_ADAPTED else system.start
        return None if encoder in ("", "scratch", VECTORS) else (self.family, encoder, None)

    def record(self, lineage: Lineage, models: Sequence[Candidate], versions: Mapping[Key, Version]) -> Record:
        """What is stored with its version, given the models before it and their versions."""
        job, directory = self.job, self.directory
        parent = versions.get(self.parent) if self.parent is not None else None
        teachers = [versions[each.key] for each in models if each.task == self.task and each.system in self.teachers]
        about = f"Language models: {self.family}, {self.start}. One version per retraining that changed them."
        if self.task is not None:
            about = (
                f"Models of the task {self.task}: one version per system and retraining that changed it. The "
                f"alias `{job.registry.alias}` marks the best one; `headstart champion` and "
                "`headstart champion --history` say since when and why."
            )
        tags = {"digest": self.content.digest} | {key: value or "" for key, value in self.identity.items()}
        tags |= {"parent": parent.label} if parent else {}
        tags |= {"teacher": ", ".join(version.label for version in teachers)} if teachers else {}
        evaluated = Evaluated.read(job.out / "evaluation" / str(self.task))
        rows = job.out / "examples" / str(self.task)
        digest = read_facts(rows).digests["test"] if rows.is_dir() else ""
        return Record(
            run_name=(directory if self.cost == 2 else self.model).relative_to(job.out).as_posix(),
            metrics=self._metrics(evaluated),
            parameters=dict(flatten(job.parameters.get(self.section, {}).get(self.family, {}))),
            datasets=lineage.data_of(directory),
            tags=tags | lineage.tags(directory),
            provenance=provenance(lineage, out=job.out, output=directory),
            description="\n\n".join(self._description(evaluated)),
            about=about,
            tested=(f"{self.task}, test", digest[:36]) if digest else None,
        )

    def _metrics(self, evaluated: Evaluated) -> dict[str, float]:
        """Scores of a classifier on test (`test.`), its score of selection (`dev.`), and leaks. What its stage has
        measured is in the stage's run."""
        if self.task is None:
            return {}
        copies = read_leakage(self.job.out, self.task, self.system)
        scores = evaluated.artifact(self.system).get("scores", {})
        return (
            {f"dev.{self.dev.metric}": self.dev.dev_score}
            | {f"test.{name}": float(score["mean"]) for name, score in scores.items()}
            | {f"leakage.test.{kind}": float(copies[kind]) for kind in ("exact", "near") if kind in copies}
        )

    def _description(self, evaluated: Evaluated) -> Iterator[str]:
        """A version in words: what it is, and its score on test."""
        if self.task is None:
            yield f"Language model {self.family}, {self.start}."
        else:
            facts = self.content.facts
            budget = "" if (labels := facts.get("budget")) is None else f", with the label budget {budget_name(labels)}"
            seeds = f", seeds {', '.join(map(str, facts['seeds']))}" if facts.get("seeds") else ""
            yield f"Model of the task {self.task}: {self.system}, {WAYS[self.cost]}{budget}{seeds}."
        if artifact := evaluated.artifact(self.system):
            content, main = evaluated.content, evaluated.content["main"]
            yield (
                f"Score: {content['titles'][main]} "
                + "{mean:.3f} [{low:.3f}, {high:.3f}]".format_map(artifact["scores"][main])
                + f" on {content['rows']['test']:,} test rows ({content['confidence']:.0%} interval), from "
                f"{artifact['labels']:,} labelled rows."
            )


def candidates(job: RegisterJob) -> Iterator[Candidate]:
    """The models of a run, parents before children."""
    computed_from = [name for names in job.parents.values() for name in names]
    for family in dict.fromkeys([*computed_from, *sorted(job.families, key=job.parents.__contains__)]):
        teacher = next(iter(job.parents.get(family, ())), "")
        for start in ("pretrained", "adapted"):
            if start in job.starts:
                yield Candidate(job, family, start, computed_from=teacher)
    for family in job.families:
        for task, starts in job.further.items():
            if TASK_ADAPTED in starts:
                yield Candidate(job, family, f"{TASK_ADAPTED}-{task}")

    # The models of intermediate tasks come before those that start from them, and teachers before their students.
    def rank(candidate: Candidate) -> tuple[bool, bool]:
        return bool(candidate.teachers), System.of(candidate.family, candidate.start).way == "after"

    yield from sorted(_classifiers(job), key=rank)


def _classifiers(job: RegisterJob) -> Iterator[Candidate]:
    for task in job.tasks:
        for family in job.families:
            for start in [*job.starts, *job.further.get(task, [])]:
                yield Candidate(job, family, start, task)
                # Not every task has a frozen encoder or a words model.
                frozen = Candidate(job, family, f"{start}{FROZEN}", task)
                yield from [frozen] * (frozen.model / MANIFEST).is_file()
        for name, teachers in job.students.items():
            student = System.named(name)
            yield Candidate(job, student.family, student.variant, task, teachers=tuple(teachers))
        words = job.out / "finetuned" / task / BASELINES / CLASSIFIER
        if (words / MANIFEST).is_file():
            yield Candidate(job, WORDS, str(read_manifest(words).facts["system"]), task)


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
                bundle = write_bundle(model.model, Path(draft) / "bundle", kind=model.kind)
                versions[model.key] = registry.record(model.name, bundle, form, record)
        else:
            versions[model.key] = registered
        print(f"{versions[model.key].label}: {'already ' if registered else ''}registered", flush=True)
    ranked = {task: _ranked(task, models, versions) for task in job.tasks}
    # Among equal scores `max` finds the first, which is the cheapest.
    challengers = {task: max(best, key=lambda entry: float(entry["dev_score"])) for task, best in ranked.items()}
    for model in models:
        # Of the versions that are promoted automatically, frozen encoders as first champions apart. `headstart drift`
        # measures the reference of another version.
        if model.cost == 0 or (model.task and model.system == challengers[model.task]["system"]):
            version, examples = versions[model.key], job.out / "examples" / str(model.task)
            if registry.document(version, REFERENCE) is None and examples.is_dir():
                record_reference(registry, version, load_model(model.model), examples=examples)
    listing = {
        "schema": SCHEMA,
        "tracking": registry.address,
        "models": [
            (version := versions[model.key]).identity
            | model.identity
            | {"parent": version.tags.get("parent") or None, "directory": model.directory.as_posix()}
            for model in models
        ],
        "challengers": challengers,
        "candidates": ranked,
    }
    path = job.out / "registry" / REGISTERED
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(listing, indent=1) + "\n")
    return path


class DevScore(NamedTuple):
    """Mean score of selection over the seeds of the largest label budget (-1: all labels), each run at its best."""

    budget: int
    metric: str
    dev_score: float


def read_dev_score(path: Path, *, system: str, metric: str | None = None) -> DevScore:
    """The score of selection of a system in a `runs.json`."""
    try:
        runs = [run for run in json_of(path) if run["system"] == system]
        largest = max((run["budget"] for run in runs), key=lambda budget: (budget == ALL, budget))
        best = [best_point(run) for run in runs if run["budget"] == largest]
        name = metric or str(runs[0]["score"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run the stage finetune again") from error
    if unknown := [point for point in best if name not in point]:
        raise ConfigError(f"promote.metric: {name!r} is not a metric of {path}{nearest(name, unknown[0])}")
    return DevScore(int(largest), name, sum(float(point[name]) for point in best) / len(best))


def _ranked(task: str, models: Sequence[Candidate], versions: Mapping[Key, Version]) -> list[dict[str, Any]]:
    """The task's system with the best score of selection of each class of cost, the cheapest first."""
    best: dict[int, dict[str, Any]] = {}
    for model in models:
        if model.task == task:
            entry = versions[model.key].identity | {"system": model.system} | model.dev._asdict()
            if model.cost not in best or entry["dev_score"] > best[model.cost]["dev_score"]:
                best[model.cost] = entry
    return [best[cost] for cost in sorted(best)]
