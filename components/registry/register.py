"""The stage `register`: register every model of a run as a version in MLflow.

DVC never caches this stage, because it acts on the registry. It is idempotent: a model whose content digest is already
registered is skipped. A registered model is a bundle: a complete directory of data, without timings or curves, so that
its digest identifies the model.

registered.json holds `schema`, `tracking` (address), `git_commit`, `git_dirty`, `dvc_lock`; `data`, path -> digest of
the data that the run has read; `models`, a list of {name, version, digest, kind, family, start, task, system, parent,
directory}; `challengers`, task -> {name, version, digest, system, metric, budget, dev_score}: the system with the best
score of selection at the largest label budget, of equal ones the cheapest: words, then a frozen encoder, then a
fine-tuned one; and `candidates`, task -> the best system of each of these three, in this order, with the same fields.
"""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas
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
from components.core.artifacts import SCHEMA as MANIFESTS
from components.core.data_version import DataVersion
from components.core.errors import ArtifactError, ConfigError, nearest
from components.data.tasks.budgets import ALL, budget_name
from components.data.tasks.examples import read_facts
from components.data.tasks.kinds import find_kind
from components.data.tasks.results import best_point
from components.learners.loading import load_model
from components.registry.drift.measurements import REFERENCE, record_reference
from components.registry.explain import CLASSIFIER, FROZEN_CLASSIFIER, Evaluated, read_leakage
from components.registry.lineage import Lineage, provenance, read_lineage
from components.registry.reading import PROVENANCE
from components.registry.tracking import Record, Version, connect
from components.settings.registry import RegistrySettings
from components.settings.section import BASELINES, VECTORS, Section, Start
from components.settings.systems import FROZEN, TASK_ADAPTED, System

REGISTERED = "registered.json"
#: Prefix of metrics of a recipe: means over the runs of its seeds, whose average is registered.
MEAN = "mean_over_seeds"
SCHEMA = 1
#: Family of models without a language model.
WORDS = "words"
#: Files of a model's directory that describe its training and are not part of the bundle.
EXCLUDED = ("metrics.json", "curve.csv")
#: A start of a language model, and of a classifier, in words.
ENCODERS = {"pretrained": "pretrained on general text", "adapted": "adapted to the domain's text"}
STARTS = {
    "scratch": "random weights",
    "vectors": "word vectors of the text, without a step of language modelling",
    "pretrained": "the pretrained language model",
    "adapted": "the language model that was adapted to the domain's text",
}
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
        section: of the settings that made it.
        computed_from: of an encoder: block of the model that its weights were computed from.
        system, part: of a classifier: name of its system in results, and its folder below `directory`.
        teachers: of a student: the systems whose predictions it has learned.
    """

    name: str
    directory: Path
    family: str
    start: str
    section: str
    task: str | None = None
    computed_from: str = ""
    system: str = ""
    part: str = CLASSIFIER
    teachers: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "encoder" if self.task is None else "classifier"

    @property
    def model(self) -> Path:
        """Directory of the model within its stage's output."""
        return self.directory if self.task is None else self.directory / self.part

    @property
    def cost(self) -> int:
        """Rank by the cost of training and serving: words, head on a frozen encoder, fine-tuned."""
        return 0 if self.family == WORDS else 1 if self.part == FROZEN_CLASSIFIER else 2

    @property
    def key(self) -> Key:
        """Identity within a run."""
        return (self.family, self.start, self.task)

    @property
    def parent(self) -> Key | None:
        """Key of the model that this one was initialised or computed from; None for random weights."""
        encoder: str | None = None
        family = self.computed_from or self.family
        if self.computed_from:
            encoder = self.start
        elif self.task is None:
            before = {"adapted": "pretrained"}
            encoder = "adapted" if self.start.startswith(TASK_ADAPTED) else before.get(self.start)
        elif self.family != WORDS:
            system = System.of(self.family, self.start)
            if system.way == "after":
                return (self.family, system.start, system.group)
            encoder = f"{TASK_ADAPTED}-{self.task}" if system.start == TASK_ADAPTED else system.start
        return None if encoder in (None, "scratch", VECTORS) else (family, encoder, None)


def candidates(job: RegisterJob) -> Iterator[Candidate]:
    """The models of a run, parents before children."""

    def encoder(family: str, start: str, section: str, teacher: str = "") -> Candidate:
        name, directory = f"{job.registry.prefix}-{family}-{start}", job.out / "encoder" / family / start
        return Candidate(name, directory, family, start, section, computed_from=teacher)

    teachers = [name for names in job.parents.values() for name in names]
    for family in dict.fromkeys([*teachers, *sorted(job.families, key=job.parents.__contains__)]):
        for start, section in (("pretrained", "pretrain"), ("adapted", "adapt")):
            if start in job.starts:
                teacher = next(iter(job.parents.get(family, ())), "")
                yield encoder(family, start, "static" if teacher else section, teacher)
    for family in job.families:
        for task, starts in job.further.items():
            if TASK_ADAPTED in starts:
                yield encoder(family, f"{TASK_ADAPTED}-{task}", "adapt")

    # The models of intermediate tasks come before those that start from them, and teachers before their students.
    def rank(candidate: Candidate) -> tuple[bool, bool]:
        return bool(candidate.teachers), System.of(candidate.family, candidate.start).way == "after"

    yield from sorted(_classifiers(job), key=rank)


def _classifiers(job: RegisterJob) -> Iterator[Candidate]:
    def model(task: str, folder: str, family: str, start: str, section: str = "finetune", **more: Any) -> Candidate:
        name, directory = f"{job.registry.prefix}-{task}", job.out / "finetuned" / task / folder
        return Candidate(name, directory, family, start, section, task, **more)

    for task in job.tasks:
        finetuned = job.out / "finetuned" / task
        for family in job.families:
            for start in [*job.starts, *job.further.get(task, [])]:
                system = f"{family}-{start}"
                yield model(task, system, family, start, system=system)
                # Not every task has a frozen encoder or a words model.
                if (finetuned / system / FROZEN_CLASSIFIER / MANIFEST).is_file():
                    more = {"system": f"{system}{FROZEN}", "part": FROZEN_CLASSIFIER}
                    yield model(task, system, family, f"{start}{FROZEN}", **more)
        for system, teachers in job.students.items():
            group = System.named(system).group
            students = (System(family, start, "from", group) for family in job.families for start in job.starts)
            parts = next((student.family, student.variant) for student in students if str(student) == system)
            yield model(task, system, *parts, system=system, teachers=tuple(teachers))
        if (finetuned / BASELINES / CLASSIFIER / MANIFEST).is_file():
            system = str(read_manifest(finetuned / BASELINES / CLASSIFIER).facts["system"])
            yield model(task, BASELINES, WORDS, system, "baseline", system=system)


@dataclass(frozen=True)
class Content:
    """The part of a stage's output directory that is the model. `files`: relative name -> size and SHA-256, from the
    directory's manifest."""

    directory: Path
    kind: str
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]

    @property
    def digest(self) -> str:
        """Digest of the bundle's manifest."""
        return Manifest(kind=self.kind, schema=MANIFESTS, files=self.files, facts={}).digest


def model_content(directory: Path, *, kind: str) -> Content:
    """The model in a complete directory, according to its manifest; no other file is read."""
    manifest = read_manifest(directory, kind=kind)
    files = {name: entry for name, entry in manifest.files.items() if name not in EXCLUDED}
    if not any(name.endswith(".safetensors") for name in files):
        raise ArtifactError(f"{directory}: holds no weights (*.safetensors); run its stage again")
    return Content(directory=directory, kind=kind, files=files, facts=manifest.facts)


def write_bundle(content: Content, path: Path) -> Path:
    """Make the bundle `path` of a model's files, by links where that is possible, and verify their content against the
    digests in the manifest."""
    with writing(path, kind=content.kind) as draft:
        draft.facts.update(content.facts)
        for name in content.files:
            target = draft.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # The file itself, not a link to a cache.
            link_or_copy((content.directory / name).resolve(), target)
    written = read_manifest(path)
    for name, entry in content.files.items():
        if written.files[name]["sha256"] != entry["sha256"]:
            raise ArtifactError(
                f"{content.directory / name}: altered since it was written (SHA-256 differs); "
                "restore it with `dvc checkout` or run the stage again"
            )
    return path


def register(job: RegisterJob) -> Path:
    """Register every model; write registered.json."""
    models = {each.key: Model(job, each, model_content(each.model, kind=each.kind)) for each in candidates(job)}
    registry = connect(job.registry)
    lineage = read_lineage(job.project, out=job.out, data=job.data)
    versions: dict[Key, Version] = {}
    for key, model in models.items():
        name = model.candidate.name
        registered = registry.find(name, digest=model.content.digest)
        if registered is None:
            systems = [models[other].candidate.system for other in versions]
            record, form = model.record(lineage, versions, systems), None
            if model.candidate.task is not None:
                config = read_json(model.content.directory / "config.json", made_by="the stage finetune")
                form = find_kind(config["kind"]).io
            # On the disk of the outputs, so that the bundle is made of links.
            with tempfile.TemporaryDirectory(prefix=".register-", dir=job.out) as draft:
                versions[key] = registry.record(name, write_bundle(model.content, Path(draft) / "bundle"), form, record)
        else:
            versions[key] = registered
        print(f"{versions[key].label}: {'already ' if registered else ''}registered", flush=True)
    ranked = {task: _ranked(task, models, versions) for task in job.tasks}
    # Among equal scores `max` finds the first, which is the cheapest.
    challengers = {task: max(best, key=lambda entry: float(entry["dev_score"])) for task, best in ranked.items()}
    for key, version in versions.items():
        candidate = models[key].candidate
        # Of the versions that are promoted automatically, frozen encoders as first champions apart. `headstart drift`
        # measures the reference of another version.
        if candidate.cost == 0 or (candidate.task and candidate.system == challengers[candidate.task]["system"]):
            examples = job.out / "examples" / str(candidate.task)
            if registry.attached(version, REFERENCE) is None and examples.is_dir():
                record_reference(registry, version, load_model(candidate.model), examples=examples)
    listing = {
        "schema": SCHEMA,
        "tracking": registry.address,
        "git_commit": lineage.commit,
        "git_dirty": lineage.dirty,
        "dvc_lock": lineage.lock,
        "data": lineage.data,
        "models": [
            version.identity
            | model.identity
            | {"parent": version.tags.get("parent") or None, "directory": model.candidate.directory.as_posix()}
            for model, version in zip(models.values(), versions.values(), strict=True)
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


@dataclass(frozen=True)
class Model:
    """A candidate with its files, as it is described in the registry."""

    job: RegisterJob
    candidate: Candidate
    content: Content

    @property
    def identity(self) -> dict[str, Any]:
        return {key: getattr(self.candidate, key) for key in ("kind", "family", "start", "task", "system")}

    @property
    def dev(self) -> DevScore:
        path = self.candidate.directory / "runs.json"
        return read_dev_score(path, system=self.candidate.system, metric=self.job.metric)

    def record(self, lineage: Lineage, versions: Mapping[Key, Version], systems: Sequence[str]) -> Record:
        """What is stored with its version, given the versions of the models before it and their systems."""
        job, candidate, directory = self.job, self.candidate, self.candidate.directory
        parent = versions.get(candidate.parent) if candidate.parent is not None else None
        teachers = [
            version
            for ((*_, task), version), system in zip(versions.items(), systems, strict=True)
            if task == candidate.task and system in candidate.teachers
        ]
        about = (
            f"Language models of the family {candidate.family}, {ENCODERS.get(candidate.start, candidate.start)}: one "
            "version per retraining that changed them."
        )
        if candidate.task is not None:
            about = (
                f"Models of the task {candidate.task}: one version per system and retraining that changed it. The "
                f"alias `{job.registry.alias}` marks the best one; `headstart champion` and "
                "`headstart champion --history` say since when and why."
            )
        tags = {"digest": self.content.digest} | {key: value or "" for key, value in self.identity.items()}
        tags |= {"parent": parent.label if parent else "", "parent_digest": parent.digest if parent else ""}
        evaluated = Evaluated.read(job.out / "evaluation" / str(candidate.task))
        rows = job.out / "examples" / str(candidate.task)
        tested = (
            {"test": DataVersion(f"{candidate.task}, test", read_facts(rows).digests["test"])} if rows.is_dir() else {}
        )
        return Record(
            run_name=(directory if candidate.cost == 2 else candidate.model).relative_to(job.out).as_posix(),
            metrics=self._metrics(evaluated),
            parameters=dict(flatten(job.parameters.get(candidate.section, {}).get(candidate.family, {}))),
            curves=_curves(directory / "curve.csv"),
            datasets=lineage.datasets(directory),
            tags={**tags, **self._teacher_tags(teachers), **lineage.tags(directory)},
            documents={
                PROVENANCE: provenance(lineage, out=job.out, output=directory, parent=parent, teachers=teachers)
            },
            description="\n\n".join(self._description(lineage, evaluated, parent, teachers)),
            about=about,
            scored_on=tested,
        )

    def _teacher_tags(self, teachers: list[Version]) -> dict[str, str]:
        """Tags of a student: the versions, systems and digests of its teachers, and the imported models among these."""
        if not self.candidate.teachers:
            return {}
        blocks = dict.fromkeys(version.tags["family"] for version in teachers)
        names = dict.fromkeys(name for block in blocks for name in (block, *self.job.parents.get(block, [])))
        sources = [self.job.parameters["pretrain"].get(name, {}) for name in names]
        return {
            "teacher": ", ".join(version.label for version in teachers),
            "teacher_system": ", ".join(self.candidate.teachers),
            "teacher_digest": ", ".join(version.digest for version in teachers),
            "teacher_source": ", ".join(f"{each['source']} {each['digest']}" for each in sources if each.get("source")),
        }

    def _metrics(self, evaluated: Evaluated) -> dict[str, float]:
        """Scores of the artifact on test (`test.`), its score of selection (`dev.`), means of its system's runs (MEAN),
        and leaks."""
        candidate, job = self.candidate, self.job
        metrics = _numbers(candidate.directory / "metrics.json")
        if candidate.task is None:
            return metrics
        prefix = f"{candidate.system}."
        # The files may hold several systems.
        tested = _numbers(job.out / "evaluation" / candidate.task / "metrics.json")
        means = {key: value for key, value in metrics.items() if key.startswith(prefix)} | {
            f"test.{key.removeprefix(prefix)}": value for key, value in tested.items() if key.startswith(prefix)
        }
        copies = read_leakage(job.out, candidate.task, candidate.system)
        scores = evaluated.artifact(candidate.system).get("scores", {})
        return (
            {f"{MEAN}.{key}": value for key, value in means.items()}
            | {f"dev.{self.dev.metric}": self.dev.dev_score}
            | {f"test.{name}": float(score["mean"]) for name, score in scores.items()}
            | {f"leakage.test.{kind}": float(copies[kind]) for kind in ("exact", "near") if kind in copies}
        )

    def _description(
        self, lineage: Lineage, evaluated: Evaluated, parent: Version | None, teachers: list[Version]
    ) -> Iterator[str]:
        """A version in words: what it is, the data that it has learned from, its score on test."""
        yield self._what()
        if parent is not None:
            yield f"Initialised from {parent.label}."
        if names := self.candidate.teachers:
            labels = f" ({', '.join(teacher.label for teacher in teachers)})" if teachers else ""
            yield f"Learned from the predictions of {', '.join(names)}{labels}."
        data = lineage.data_of(self.candidate.directory)
        yield f"Data: {', '.join(f'{path} (version {digest[:12]})' for path, digest in data.items()) or 'unknown'}."
        if artifact := evaluated.artifact(self.candidate.system):
            content, main = evaluated.content, evaluated.content["main"]
            yield (
                f"Score: {content['titles'][main]} "
                + "{mean:.3f} [{low:.3f}, {high:.3f}]".format_map(artifact["scores"][main])
                + f" on {content['rows']['test']:,} test rows ({content['confidence']:.0%} interval), from "
                f"{artifact['labels']:,} labelled rows."
            )

    def _what(self) -> str:
        candidate, facts = self.candidate, self.content.facts
        if candidate.computed_from:
            return f"{candidate.family}, computed from {candidate.computed_from}, {ENCODERS[candidate.start]}."
        if candidate.task is None:
            return f"Language model {candidate.family}, {ENCODERS.get(candidate.start, candidate.start)}."
        budget, seeds = facts.get("budget"), facts.get("seeds", [])
        labels = "" if budget is None else f" with the label budget {budget_name(budget)}"
        labels += f", seed {seeds[0]}" if len(seeds) == 1 else f", the average of {len(seeds)} seeds" if seeds else ""
        value = System.of(candidate.family, candidate.start)
        start = value.start if value.way == "from" else value.tuned.variant
        start = STARTS.get(start, start)
        what = (
            f"{candidate.system}, a linear model on words, without a language model",
            f"{candidate.family}, a head on {start} without fine-tuning",
            f"{candidate.family}, fine-tuned from {start}",
        )[candidate.cost]
        return f"Model of the task {candidate.task}: {what}{labels}."


def _ranked(task: str, models: Mapping[Key, Model], versions: Mapping[Key, Version]) -> list[dict[str, Any]]:
    """The task's system with the best score of selection of each class of cost, the cheapest first."""
    best: dict[int, dict[str, Any]] = {}
    for key, model in models.items():
        if model.candidate.task == task:
            entry = versions[key].identity | {"system": model.candidate.system} | model.dev._asdict()
            cost = model.candidate.cost
            if cost not in best or entry["dev_score"] > best[cost]["dev_score"]:
                best[cost] = entry
    return [best[cost] for cost in sorted(best)]


def _numbers(path: Path) -> dict[str, float]:
    leaves = flatten(read_json(path, made_by="its stage", missing_ok=True))
    return {key: float(leaf) for key, leaf in leaves if isinstance(leaf, (int, float)) and math.isfinite(leaf)}


def _curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Columns of curve.csv, without empty cells: name -> (step, value) pairs."""
    if not path.is_file():
        return {}
    table = pandas.read_csv(path, index_col=0).apply(pandas.to_numeric, errors="coerce")
    points = {name: [(int(step), value) for step, value in table[name].items()] for name in table}
    points = {name: [point for point in column if math.isfinite(point[1])] for name, column in points.items()}
    return {f"curve.{name}": column for name, column in points.items() if column}
