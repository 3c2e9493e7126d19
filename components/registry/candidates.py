"""The models of a run, with their names in the registry and their parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.artifacts import MANIFEST, read_manifest
from components.registry.runs import BASELINES
from components.settings.names import AFTER, FROM, FROZEN, TASK_ADAPTED, VECTORS, WITH

if TYPE_CHECKING:
    from components.registry.stage import RegisterJob

#: (family, start, task) of a model, unique within a run.
Key = tuple[str, str, str | None]
#: Folders of classifiers in the results of a system; the second is the head on the frozen encoder.
CLASSIFIER = "classifier"
FROZEN_CLASSIFIER = "classifier-frozen"
#: Family of models without a language model.
WORDS = "words"


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
    computed_from: tuple[str, ...] = ()
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
    def is_frozen(self) -> bool:
        """Whether it is a head on a frozen encoder."""
        return self.part == FROZEN_CLASSIFIER

    @property
    def cost(self) -> int:
        """Rank by the cost of training and serving: words, frozen, fine-tuned."""
        return 0 if self.is_words else 1 if self.is_frozen else 2

    @property
    def key(self) -> Key:
        """Identity within a run."""
        return (self.family, self.start, self.task)

    @property
    def parent(self) -> Key | None:
        """Key of the model that this one was initialised from; of an encoder that is computed from others, of the first
        of them. None for random weights."""
        if self.computed_from:
            return (self.computed_from[0], self.start, None)
        if self.is_words:
            return None
        if self.task is not None and AFTER in self.start:
            start, _, source = self.start.removesuffix(FROZEN).partition(AFTER)
            return (self.family, start, source)
        if self.task is not None:
            encoder = self.start.removesuffix(FROZEN).partition(WITH)[0].partition(FROM)[0]
            encoder = f"{encoder}-{self.task}" if encoder == TASK_ADAPTED else encoder
            return None if encoder in ("scratch", VECTORS) else (self.family, encoder, None)
        if self.start.startswith(TASK_ADAPTED):
            return (self.family, "adapted", None)
        return (self.family, "pretrained", None) if self.start == "adapted" else None


def candidates(job: RegisterJob) -> Iterator[Candidate]:
    """The models of a run, parents before children."""
    trained = [name for name in job.families if not job.parents.get(name)]
    known = [parent for parents in job.parents.values() for parent in parents]
    # Trained encoders first, then those that are computed from them, in the order in which they depend on each other.
    others = [name for name in known if name not in job.parents]
    computed = [name for name in job.parents if name not in job.families]
    for family in _in_order([*others, *trained, *computed, *job.families], job.parents):
        for start, section in (("pretrained", "pretrain"), ("adapted", "adapt")):
            if start in job.starts:
                name = f"{job.registry.prefix}-{family}-{start}"
                origins = tuple(job.parents.get(family, ()))
                section = "static" if origins else section
                directory = job.out / "encoder" / family / start
                yield Candidate(name, directory, "encoder", family, start, section, computed_from=origins)
    for family in job.families:
        for task, starts in job.further.items():
            if TASK_ADAPTED in starts:
                start = f"{TASK_ADAPTED}-{task}"
                name = f"{job.registry.prefix}-{family}-{start}"
                yield Candidate(name, job.out / "encoder" / family / start, "encoder", family, start, "adapt")
    # The models of intermediate tasks come before those that start from them, and teachers before their students.
    yield from sorted(_classifiers(job), key=lambda one: (bool(one.teachers), AFTER in one.start))


def _classifiers(job: RegisterJob) -> Iterator[Candidate]:
    for task in job.tasks:
        name = f"{job.registry.prefix}-{task}"
        for family in job.families:
            for start in [*job.starts, *job.further.get(task, [])]:
                system = f"{family}-{start}"
                directory = job.out / "finetuned" / task / system
                yield Candidate(name, directory, "classifier", family, start, "finetune", task, system=system)
                if _exists(directory / FROZEN_CLASSIFIER):
                    yield Candidate(
                        name,
                        directory,
                        "classifier",
                        family,
                        f"{start}{FROZEN}",
                        "finetune",
                        task,
                        system=f"{system}{FROZEN}",
                        part=FROZEN_CLASSIFIER,
                    )
        for system, teachers in job.students.items():
            family, start = _parts(job, system)
            directory = job.out / "finetuned" / task / system
            yield Candidate(
                name,
                directory,
                "classifier",
                family,
                start,
                "finetune",
                task,
                system=system,
                teachers=tuple(teachers),
            )
        directory = job.out / "finetuned" / task / BASELINES
        if _exists(directory / CLASSIFIER):
            system = str(read_manifest(directory / CLASSIFIER).facts["system"])
            yield Candidate(name, directory, "classifier", WORDS, system, "baseline", task, system=system)


def _parts(job: RegisterJob, system: str) -> tuple[str, str]:
    """Block and initialisation of a student."""
    without, _, group = system.partition(FROM)
    return next(
        (family, f"{start}{FROM}{group}")
        for family in job.families
        for start in job.starts
        if without == f"{family}-{start}"
    )


def _exists(directory: Path) -> bool:
    """Whether the stage has written a classifier; not every task has a words model."""
    return (directory / MANIFEST).is_file()


def _in_order(names: Sequence[str], parents: Mapping[str, Sequence[str]]) -> list[str]:
    """The names, each once, after those that it is computed from."""
    found: dict[str, None] = {}
    waiting = list(dict.fromkeys(names))
    while waiting:
        ready = [name for name in waiting if not set(parents.get(name, ())) & set(waiting)]
        found |= dict.fromkeys(ready)
        waiting = [name for name in waiting if name not in ready]
    return list(found)
