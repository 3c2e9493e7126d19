"""The repository that a flow works on: where it is, one run at a time, and the pipeline of a params file."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.artifacts import write_atomic
from components.errors import ConfigError
from flows.processes import mark

STATE = ".headstart"
PIPELINE = "dvc.yaml"


def find_root(start: Path) -> Path:
    """The DVC repository that `start` lies in.

    Raises:
        ConfigError: neither it nor a folder above it holds `.dvc`.
    """
    start = start.resolve()
    for folder in [start, *start.parents]:
        if (folder / ".dvc").is_dir():
            return folder
    raise ConfigError(f"{start}: neither here nor above is a DVC repository; run from the project's folder")


def environment(root: Path) -> dict[str, str]:
    """Of a stage's process: `headstart` and `dvc` are those of this interpreter, and lines come as they are printed."""
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, **mark(root), "PATH": f"{own}{os.pathsep}{path}", "PYTHONUNBUFFERED": "1"}


@contextmanager
def locked(root: Path, *, what: str, say: Callable[[str], None], poll_s: float = 0.5) -> Iterator[None]:
    """Hold the repository: a second run waits here, and says for whom, instead of failing on one of DVC's locks.

    The operating system frees the lock with the process that holds it, however that ends.
    """
    path = root / STATE / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        told = ""
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if (holder := _holder(path)) != told:
                    say(f"waiting: {holder} holds this repository")
                    told = holder
                time.sleep(poll_s)
        file.truncate(0)
        json.dump({"what": what, "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}, file)
        file.flush()
        try:
            yield
        finally:
            # Not while others may read it half-written: the lock itself goes with the file's close.
            file.truncate(0)


def _holder(path: Path) -> str:
    try:
        raw = json.loads(path.read_text())
        return f"{raw['what']} (process {raw['pid']}, since {raw['since']})"
    except (OSError, ValueError, KeyError):
        return "another run"


def pipeline_of(params: Path, *, root: Path) -> Path:
    """The dvc.yaml that belongs to a params file: the one beside it.

    For a row of `experiments/` it is derived from the root's: the same stages, other settings, other outputs.

    Raises:
        ConfigError: the params file does not exist, lies outside of the repository or is not called params.yaml.
    """
    params = params.resolve()
    if not params.is_file():
        raise ConfigError(f"{params}: does not exist; name the file of settings with --params")
    if params.name != "params.yaml" or root not in params.parents:
        raise ConfigError(f"{params}: must be called params.yaml and lie below {root}, in a folder of its own")
    pipeline = params.with_name(PIPELINE)
    if params.parent != root:
        text = derive((root / PIPELINE).read_text(encoding="utf-8"), folder=params.parent.relative_to(root))
        if not pipeline.is_file() or pipeline.read_text(encoding="utf-8") != text:
            write_atomic(pipeline, text)
    return pipeline


def derive(text: str, *, folder: Path) -> str:
    """The root's dvc.yaml for the params.yaml in `folder` (relative to the root): only the two `vars` differ.

    Raises:
        ConfigError: the text does not hold the two lines.
    """
    up = "/".join([".."] * len(folder.parts))
    for name, value in [("params_file", f"{folder.as_posix()}/params.yaml"), ("root", up)]:
        text, found = re.subn(rf"^(  - {name}: ).*$", rf"\g<1>{value}", text, flags=re.MULTILINE)
        if found != 1:
            raise ConfigError(f"dvc.yaml: `vars` must hold one line `  - {name}: ...`, found {found}")
    return f"# Derived from the dvc.yaml above for the params.yaml beside it; changes belong there.\n{text}"
