"""What a drill is, and what drills share: the project before training, and the outcome of an undisturbed run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import psutil

from flows.drills.project import PRETRAINED, DrillError, Project, differences, left_over, make

#: Seconds in which processes that accompany a run (monitoring) may end after it.
END_S = 30.0
State = Literal["new", "before", "after"]
#: Stages that are run once, for all drills; the faults occur after them.
BEFORE = ("examples", "tokenize")
#: Prints the registry: model -> version number -> content digest, and model -> alias -> version number.
CONTENT = """
import json
from pathlib import Path
from components.settings.loading import load_params
from components.tracking import connect
registry = connect(load_params(Path("params.yaml")).registry)
names = ("headstart-drill", "headstart-ulmfit-pretrained", "headstart-ulmfit-adapted")
versions = {name: {one.number: one.digest for one in registry.versions(name)} for name in names}
champion = registry.alias("headstart-drill", "champion")
print(json.dumps({"versions": versions, "champion": champion.number if champion else None}))
"""


@dataclass(frozen=True)
class Drill:
    """A fault and what has to follow.

    Attributes:
        name: of the drill.
        broken: what is broken.
        expected: what has to follow.
        run: causes the fault; returns what was seen in words.
            Raises DrillError if it is not what is expected.
    """

    name: str
    broken: str
    expected: str
    run: Callable[[Session], str]


@dataclass(frozen=True)
class Outcome:
    """How a drill ended: `seen` in words, or the reason of the failure."""

    drill: Drill
    passed: bool
    seen: str
    seconds: float


@dataclass(frozen=True)
class Registered:
    """Content of the registry.

    Attributes:
        versions: model -> number -> content digest.
        champion: number of the champion of the task; None without one.
    """

    versions: dict[str, dict[str, str]]
    champion: str | None

    @property
    def contents(self) -> dict[str, list[str]]:
        """Model -> sorted content digests, a version registered twice included."""
        return {model: sorted(versions.values()) for model, versions in self.versions.items()}


@dataclass
class Session:
    """What the drills of one command share.

    Attributes:
        folder: below which every drill has its project.
        variables: environment of the projects' commands.
        seed: of the times of the faults.
        count: number of kills of `random-kills`.
        say: prints a line of progress.
    """

    folder: Path
    variables: dict[str, str]
    seed: int = 0
    count: int = 10
    say: Callable[[str], None] = print

    def chance(self, name: str) -> random.Random:
        """The random numbers of a drill."""
        return random.Random(f"{self.seed} {name}")

    @cached_property
    def before(self) -> Project:
        """The project before training."""
        project = make(self.folder / "before", variables=self.variables)
        done = project.start("dvc", "repro", "--quiet", *BEFORE).ended()
        if done.code:
            raise DrillError(f"the stages before training failed: {done.last}")
        return project

    @cached_property
    def undisturbed(self) -> Project:
        """A project after a run without a fault."""
        project = self.before.copy("undisturbed")
        began = time.monotonic()
        project.finish()
        self.seconds = time.monotonic() - began
        return project

    @cached_property
    def pretrained(self) -> dict[str, str]:
        """Digests of the output of an undisturbed pretraining."""
        if "undisturbed" in vars(self):
            return of_pretraining(self.undisturbed)
        project = self.before.copy("pretrained")
        project.pretrain()
        return of_pretraining(project)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the outputs of the undisturbed run."""
        return self.undisturbed.digests()

    @cached_property
    def registered(self) -> Registered:
        """The registry after the undisturbed run."""
        return registered(self.undisturbed)

    def project(self, name: str, *, launcher: str = "local", state: State = "before") -> Project:
        """A project for a drill: new, before training, or after an undisturbed run."""
        if state == "new":
            return make(self.folder / name, variables=self.variables, launcher=launcher)
        project = (self.before if state == "before" else self.undisturbed).copy(name)
        params = project.root / "params.yaml"
        text = params.read_text(encoding="utf-8")
        params.write_text(text.replace("launcher: local", f"launcher: {launcher}"), encoding="utf-8")
        return project

    def compare_pretrained(self, project: Project) -> str:
        """Compare the output of pretraining with that of an undisturbed one.

        Returns:
            What was found, in words.

        Raises:
            DrillError: they differ, or processes are left over.
        """
        _same(self.pretrained, of_pretraining(project), project)
        return "the same bits"

    def compare(self, project: Project) -> str:
        """Compare the outputs and the registry with those of the undisturbed run.

        Returns:
            What was found, in words.

        Raises:
            DrillError: they differ, or processes are left over.
        """
        _same(self.digests, project.digests(), project)
        if (found := registered(project).contents) != self.registered.contents:
            raise DrillError(f"the registry differs: {found}, expected {self.registered.contents}")
        return f"the same bits in {len(self.digests)} outputs"


def of_pretraining(project: Project) -> dict[str, str]:
    """Digests of the output of pretraining."""
    return {name: digest for name, digest in project.digests().items() if name.startswith(PRETRAINED)}


def _same(expected: dict[str, str], seen: dict[str, str], project: Project) -> None:
    if different := differences(expected, seen):
        raise DrillError(f"{len(different)} of {len(expected)} outputs differ: {', '.join(different[:5])}")
    deadline = time.monotonic() + END_S
    while left := left_over(project):
        if time.monotonic() > deadline:
            raise DrillError(f"{len(left)} processes are left over: {', '.join(map(command_of, left))}")
        time.sleep(0.5)


def command_of(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def registered(project: Project) -> Registered:
    """The content of a project's registry.

    Raises:
        DrillError: it cannot be read.
    """
    done = project.python(CONTENT)
    if done.code:
        raise DrillError(f"the registry cannot be read: {done.last}")
    return Registered(**json.loads(done.output.splitlines()[-1]))


def expect(condition: object, message: str) -> None:
    """Fail the drill unless the condition holds."""
    if not condition:
        raise DrillError(message)
