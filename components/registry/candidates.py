"""The models of a run: names in the registry, parents, files, descriptions. A registered model is a bundle: a complete
directory of data, without timings or curves, so that its digest identifies the model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from components.core.artifacts import MANIFEST, SCHEMA, Manifest, link_or_copy, read_json, read_manifest, writing
from components.core.errors import ArtifactError
from components.data.tasks.budgets import budget_name
from components.registry.runs import CLASSIFIER, FROZEN_CLASSIFIER, artifact_of
from components.registry.tracking import Version
from components.settings.registry import RegistrySettings
from components.settings.section import BASELINES, VECTORS, Section, Start
from components.settings.systems import FROZEN, TASK_ADAPTED, System


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


#: (family, start, task) of a model, unique within a run.
Key = tuple[str, str, str | None]
#: Family of models without a language model.
WORDS = "words"
#: Files of a model's directory that describe its training and are not part of the bundle.
EXCLUDED = ("metrics.json", "curve.csv")
ENCODERS = {"pretrained": "pretrained on general text", "adapted": "adapted to the domain's text"}
STARTS = {
    "scratch": "random weights",
    "vectors": "word vectors of the text, without a step of language modelling",
    "pretrained": "the pretrained language model",
    "adapted": "the language model that was adapted to the domain's text",
}


@dataclass(frozen=True)
class Candidate:
    """A model to register."""

    name: str
    directory: Path
    kind: str
    family: str
    start: str
    section: str
    task: str | None = None
    _: KW_ONLY
    #: Of an encoder: block of the model that its weights were computed from.
    computed_from: str = ""
    #: Of a classifier: name of its system in results, and its folder below `directory`.
    system: str = ""
    part: str = CLASSIFIER
    #: Of a student: the systems whose predictions it has learned.
    teachers: tuple[str, ...] = ()

    @property
    def model(self) -> Path:
        """Directory of the model within its stage's output."""
        return self.directory / self.part if self.task is not None else self.directory

    @property
    def is_words(self) -> bool:
        """Whether it is a words model, without an encoder."""
        return self.section == "baseline"

    @property
    def cost(self) -> int:
        """Rank by the cost of training and serving: words, head on a frozen encoder, fine-tuned."""
        return 0 if self.is_words else 1 if self.part == FROZEN_CLASSIFIER else 2

    @property
    def key(self) -> Key:
        """Identity within a run."""
        return (self.family, self.start, self.task)

    @property
    def parent(self) -> Key | None:
        """Key of the model that this one was initialised or computed from; None for random weights."""
        if self.computed_from:
            return (self.computed_from, self.start, None)
        if self.is_words:
            return None
        if self.task is not None:
            system = System.of(self.family, self.start)
            if system.way == "after":
                return (self.family, system.start, system.group)
            encoder = f"{TASK_ADAPTED}-{self.task}" if system.start == TASK_ADAPTED else system.start
            return None if encoder in ("scratch", VECTORS) else (self.family, encoder, None)
        if self.start.startswith(TASK_ADAPTED):
            return (self.family, "adapted", None)
        return (self.family, "pretrained", None) if self.start == "adapted" else None


def candidates(job: RegisterJob) -> Iterator[Candidate]:
    """The models of a run, parents before children."""
    teachers = [name for names in job.parents.values() for name in names]
    for family in dict.fromkeys([*teachers, *sorted(job.families, key=job.parents.__contains__)]):
        for start, section in (("pretrained", "pretrain"), ("adapted", "adapt")):
            if start in job.starts:
                teacher = next(iter(job.parents.get(family, ())), "")
                yield _encoder(job, family, start, "static" if teacher else section, teacher)
    for family in job.families:
        for task, starts in job.further.items():
            if TASK_ADAPTED in starts:
                yield _encoder(job, family, f"{TASK_ADAPTED}-{task}", "adapt")

    # The models of intermediate tasks come before those that start from them, and teachers before their students.
    def rank(candidate: Candidate) -> tuple[bool, bool]:
        return bool(candidate.teachers), System.of(candidate.family, candidate.start).way == "after"

    yield from sorted(_classifiers(job), key=rank)


def _encoder(job: RegisterJob, family: str, start: str, section: str, teacher: str = "") -> Candidate:
    name, directory = f"{job.registry.prefix}-{family}-{start}", job.out / "encoder" / family / start
    return Candidate(name, directory, "encoder", family, start, section, computed_from=teacher)


def _classifiers(job: RegisterJob) -> Iterator[Candidate]:
    def model(task: str, folder: str, family: str, start: str, section: str = "finetune", **more: Any) -> Candidate:
        name, directory = f"{job.registry.prefix}-{task}", job.out / "finetuned" / task / folder
        return Candidate(name, directory, "classifier", family, start, section, task, **more)

    for task in job.tasks:
        finetuned = job.out / "finetuned" / task
        for family in job.families:
            for start in [*job.starts, *job.further.get(task, [])]:
                system = f"{family}-{start}"
                yield model(task, system, family, start, system=system)
                if _exists(finetuned / system / FROZEN_CLASSIFIER):
                    frozen = {"system": f"{system}{FROZEN}", "part": FROZEN_CLASSIFIER}
                    yield model(task, system, family, f"{start}{FROZEN}", **frozen)
        for system, teachers in job.students.items():
            yield model(task, system, *_parts(job, system), system=system, teachers=tuple(teachers))
        if _exists(finetuned / BASELINES / CLASSIFIER):
            system = str(read_manifest(finetuned / BASELINES / CLASSIFIER).facts["system"])
            yield model(task, BASELINES, WORDS, system, "baseline", system=system)


def _parts(job: RegisterJob, system: str) -> tuple[str, str]:
    group = System.named(system).group
    students = (System(family, start, "from", group) for family in job.families for start in job.starts)
    return next((student.family, student.variant) for student in students if str(student) == system)


def _exists(directory: Path) -> bool:
    # Not every task has a words model.
    return (directory / MANIFEST).is_file()


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
        return Manifest(kind=self.kind, schema=SCHEMA, files=self.files, facts={}).digest


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


def describe_model(candidate: Candidate, *, alias: str) -> str:
    """A registered model in words: what its versions are."""
    if candidate.task is None:
        how = ENCODERS.get(candidate.start, candidate.start)
        return f"Language models of the family {candidate.family}, {how}: one version per retraining that changed them."
    return (
        f"Models of the task {candidate.task}: one version per system and retraining that changed it. The alias "
        f"`{alias}` marks the best one; `headstart champion` and `headstart champion --history` say since when and why."
    )


def describe_version(
    candidate: Candidate,
    *,
    out: Path,
    facts: Mapping[str, Any],
    data: Mapping[str, str],
    parent: Version | None,
    teachers: Sequence[Version] = (),
) -> str:
    """A version in words: what it is, the data (path -> digest) that it has learned from, its score on test."""
    lines = [_what(candidate, facts), f"Initialised from {parent.label}." if parent is not None else ""]
    if candidate.teachers:
        labels = f" ({', '.join(teacher.label for teacher in teachers)})" if teachers else ""
        lines.append(f"Learned from the predictions of {', '.join(candidate.teachers)}{labels}.")
    read = ", ".join(f"{path} (version {digest[:12]})" for path, digest in data.items())
    lines.append(f"Data: {read or 'unknown'}.")
    path = out / "evaluation" / str(candidate.task) / "evaluation.json"
    evaluation = read_json(path, made_by="the stage evaluate", missing_ok=True)
    if artifact := artifact_of(evaluation, candidate.system):
        score, title = artifact["scores"][evaluation["main"]], evaluation["titles"][evaluation["main"]]
        lines.append(
            f"Score: {title} {score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}] on "
            f"{evaluation['rows']['test']:,} test rows ({evaluation['confidence']:.0%} interval), from "
            f"{artifact['labels']:,} labelled rows."
        )
    return "\n\n".join(filter(None, lines))


def _what(candidate: Candidate, facts: Mapping[str, Any]) -> str:
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
