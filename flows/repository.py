"""The repository of a flow: its root, its locks, and the pipeline of a settings file."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import psutil

from components.core.artifacts import try_lock
from components.core.data_version import read_yaml
from components.core.errors import ArtifactError, ConfigError
from components.core.liveness import is_alive
from components.core.resources import PIPELINE
from components.pipeline.dvc_yaml import write_dvc_yaml
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.registry import find_repository
from flows import flow_run
from flows.processes import end, mark, orphans
from flows.terminal import terminal

STATE = ".headstart"
#: A file that exists while data.dvc names a version of the data that `headstart sync` has not pulled yet.
DATA_TO_PULL = Path(STATE, "data-to-pull")
PARAMS = "params.yaml"


def find_root(start: Path) -> Path:
    """The root of the project that contains `start`: the nearest repository, else `start` with its params.yaml, which
    the first run makes a repository (`make_project`).

    Raises:
        ConfigError: neither `start` nor a parent folder contains `.dvc`, and `start` has no params.yaml.
    """
    if (root := find_repository(start)) is not None:
        return root
    if (start / PARAMS).is_file():
        return start.resolve()
    raise ConfigError(
        f"{start.resolve()}: no {PARAMS} here; run the command in the project's folder, or make a project of a "
        "labelled file: headstart fit FILE"
    )


class Project:
    """A settings file and the repository that it is in. Its settings are read once, when they are first used."""

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()

    @cached_property
    def root(self) -> Path:
        """Of the repository (`find_root`)."""
        return find_root(self.file.parent)

    @cached_property
    def settings(self) -> Params:
        """Raises ConfigError: they are invalid."""
        return load_params(self.file)

    @property
    def name(self) -> str:
        """Path of the settings file relative to the root."""
        return os.path.relpath(self.file, self.root)

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Work in the repository, and hold its lock, within the block; `what`: the command."""
        with chdir(self.root), locked(self.root, what=f"{what} {self.name}", say=terminal.say):
            yield

    @property
    def out(self) -> Path:
        """The run's folder."""
        return self.root / self.settings.run.out


def environment(root: Path) -> dict[str, str]:
    """Environment of a stage's process: `headstart` and `dvc` of this interpreter first in PATH, unbuffered output."""
    binaries = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, **mark(root), "PATH": f"{binaries}{os.pathsep}{path}", "PYTHONUNBUFFERED": "1"}


def recorded_outputs(lock: Path) -> dict[str, list[dict[str, Any]]]:
    """Stage -> its outputs in a dvc.lock, each with `path`, `md5` and `size`; empty without a readable file."""
    with suppress(ArtifactError):
        stages = (read_yaml(lock) or {}).get("stages") or {}
        return {name: list(stage.get("outs", ())) for name, stage in stages.items()}
    return {}


@contextmanager
def locked(root: Path, *, what: str, say: Callable[[str], None], poll_s: float = 0.5) -> Iterator[None]:
    """Hold the repository's lock; a second run waits and names the holder. The operating system releases it at the end
    of the process, SIGKILL included; the processes of a killed holder are ended first, and its entries in DVC's locks
    removed."""
    path = root / STATE / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        shown = ""
        while not try_lock(file):
            if (holder := _holder(file)) != shown:
                say(f"waiting: {holder} holds the lock of this repository")
                shown = holder
            time.sleep(poll_s)
        if shown:
            # A killed process releases its lock shortly before it ends.
            time.sleep(poll_s)
        # A run that was not killed has cleared the file; its last processes may still be ending.
        killed = os.fstat(file.fileno()).st_size > 0
        before = read_locked(file) if killed else {}
        began = time.strftime("%Y-%m-%d %H:%M:%S")
        write_locked(file, what=what, pid=os.getpid(), since=began, run=flow_run.identifier())
        try:
            if left := orphans(root):
                if killed:
                    say(f"ending {len(left)} processes of a run that was killed")
                end(left)
            flow_run.mark_crashed(str(before.get("run", "")))
            release_dvc_locks(root)
            yield
        finally:
            # Cleared before the lock is released (by closing the file), so that no waiting run reads a stale holder.
            file.truncate(0)


def active_run(root: Path) -> str | None:
    """A description of the run that holds the repository's lock; None if there is none."""
    path = root / STATE / "lock"
    if not path.is_file():
        return None
    with path.open("a+") as file:
        return None if try_lock(file) else _holder(file)


def _holder(file: TextIO) -> str:
    facts = read_locked(file)
    return "{what} (process {pid}, since {since})".format(**facts) if facts else "another run"


def write_locked(file: TextIO, **facts: Any) -> None:
    """Write into the file of a lock that this process holds, for the others."""
    file.truncate(0)
    json.dump(facts, file)
    file.flush()


def read_locked(file: TextIO) -> dict[str, Any]:
    """What the holder of a lock has written into its file, right after taking it; empty if it does not."""
    for _ in range(50):
        file.seek(0)
        with suppress(ValueError, TypeError):
            return dict(json.loads(file.read()))
        time.sleep(0.02)
    return {}


def release_dvc_locks(root: Path) -> None:
    """Remove DVC's temporary file of read and write locks, unless a command of DVC runs in the repository: entries of a
    zombie, of an unrelated process with the pid, or a half-written file would block every later `dvc repro`."""
    table = root / ".dvc" / "tmp" / "rwlock"
    if table.is_file() and not any(_is_dvc(process, root) for process in psutil.process_iter()):
        table.unlink(missing_ok=True)


def _is_dvc(process: psutil.Process, root: Path) -> bool:
    """Whether a process is a command of DVC in a repository. That of a run acts only while the run holds the lock of
    the repository."""
    try:
        # `dvc`, `python PATH/dvc` or `python -m dvc`.
        is_dvc = any("dvc" in Path(argument).parts for argument in process.cmdline()[:3])
        return is_dvc and is_alive(process) and Path(process.cwd()).is_relative_to(root)
    except psutil.Error:
        return False


def pipeline_of(project: Project) -> Path:
    """The dvc.yaml of a settings file, in the same folder; it is written if the settings have changed.

    Raises:
        ConfigError: the settings file does not exist or is not called params.yaml, or the settings are invalid.
    """
    file = project.file
    if not file.is_file():
        raise ConfigError(f"{file}: does not exist; name the settings file with --params")
    if file.name != PARAMS:
        raise ConfigError(f"{file}: must be called {PARAMS} and be in a folder of its own below {project.root}")
    write_dvc_yaml(project.settings, file)
    return file.with_name(PIPELINE)
