"""The throw-away project of a drill: a DVC repository with this checkout's code and tiny data, and its commands."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from components.errors import ConfigError, HeadstartError
from flows.drills import data
from flows.processes import end, is_alive, orphans
from flows.server import ADDRESS, AUTH, protection

CHECKOUT = Path(__file__).resolve().parents[2]
#: What the project has in common with the checkout.
FILES = ("dvc.yaml", "requirements.lock", ".dvc/config", ".dvcignore")
FOLDERS = ("components", "flows")
#: Prefixes of the caller's variables that would lead to the user's servers and stores.
FOREIGN = ("AWS_", "HEADSTART_", "MLFLOW_", "PREFECT_", "RAY_")
#: A variable that every process of the drills inherits, so that none is left over.
MARKER = "HEADSTART_DRILL"
#: Budget of pretraining and of adaptation: some seconds.
TOKENS = 60_000
#: Keys and columns of outputs that hold times or counts of workers, which differ from run to run.
VOLATILE = re.compile(r"second|time|latency|workers|_at$|^date$|commit|speed|per_s|mlflow|host|run_id|^source$")
#: The stage in which faults of training occur, and its output.
PRETRAIN, PRETRAINED = "pretrain@ulmfit", "encoder/ulmfit/pretrained/"
#: Folders of the checkpoints of pretraining and adaptation.
LANGUAGE_MODELS = "*-ulmfit-*"
#: Outputs that consist of the others, with their times.
DERIVED = ("report/", "registry/", "metrics/", "curves/", "identity/")


class DrillError(HeadstartError):
    """What had to follow a fault did not."""


@dataclass
class Ended:
    """A command that has ended: its exit code (negative: the signal) and its output, both streams."""

    code: int
    output: str

    @property
    def last(self) -> str:
        """The last line of the output, or the last error message."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line]
        return (errors or lines or [""])[-1]


@dataclass
class Running:
    """A command in the background; its output goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ended(self, *, limit_s: float = 900) -> Ended:
        """Wait for its end.

        Raises:
            DrillError: it takes longer than `limit_s` seconds.
        """
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise DrillError(f"did not end within {limit_s:g} s; its output: {self.log}") from error
        return Ended(code, self.output)

    def wait_for(self, condition: Callable[[], object], *, what: str, limit_s: float = 300) -> None:
        """Wait until `condition()` is true.

        Raises:
            DrillError: the command ended before, or it takes longer than `limit_s` seconds.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            if self.process.poll() is not None:
                raise DrillError(f"the run ended (exit code {self.process.returncode}) before {what}; see {self.log}")
            if time.monotonic() > deadline:
                raise DrillError(f"{what}: not within {limit_s:g} s; see {self.log}")
            time.sleep(0.02)


@dataclass
class Project:
    """A throw-away project.

    Attributes:
        root: its folder.
        variables: environment of its commands, in addition to the caller's.
    """

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    _logs: int = 0

    def environment(self) -> dict[str, str]:
        """The caller's environment without the variables that lead to the user's servers; the project's own code."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "PYTHONPATH": str(self.root), **self.variables}

    def start(self, *command: str) -> Running:
        """Start a command in the project's folder, in a session of its own."""
        self._logs += 1
        log = self.root.parent / f"{self.root.name}-{self._logs:03d}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Running(process, log)

    def retrain(self) -> Running:
        """Start `headstart retrain`."""
        return self.start(sys.executable, "-m", "flows.retrain_command")

    def finish(self) -> Ended:
        """Retrain to the end.

        Raises:
            DrillError: it ended with an error.
        """
        done = self.retrain().ended()
        if done.code:
            raise DrillError(f"the run ended with exit code {done.code}: {done.last}")
        return done

    def pretrain(self, run: Running | None = None) -> None:
        """Retrain until the stage pretrain is complete, then end the run (SIGTERM): what follows depends on its output.

        Args:
            run: the run, if it has been started.

        Raises:
            DrillError: the run ended before.
        """
        run = run or self.retrain()
        run.wait_for(lambda: f"{PRETRAIN} | completed" in run.output, what="pretraining is complete", limit_s=900)
        run.process.terminate()
        run.ended()

    def headstart(self, *arguments: str) -> Ended:
        """Run a command of `headstart` to its end."""
        return self.start(sys.executable, "-m", "components.cli", *arguments).ended()

    def python(self, script: str, *arguments: str) -> Ended:
        """Run a Python script to its end."""
        return self.start(sys.executable, "-c", script, *arguments).ended()

    def copy(self, name: str) -> Project:
        """A copy of the project with its outputs, in a folder beside it."""
        root = self.root.with_name(name)
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root, dict(self.variables))

    def digests(self) -> dict[str, str]:
        """Path -> digest of every output, without the times that it records.

        Manifests contain digests of files with times and are left out; so are the outputs that are made of others.
        """
        out = self.root / "artifacts"
        found = {}
        for path in sorted(out.rglob("*")):
            name = path.relative_to(out).as_posix()
            if path.is_file() and path.name != "manifest.json" and not name.startswith(DERIVED):
                found[name] = hashlib.sha256(_lasting(path)).hexdigest()
        return found

    def stored_steps(self) -> list[int]:
        """Steps of all complete checkpoints of language models in the local storage."""
        return sorted(
            int(path.parent.name.removeprefix("step-"))
            for path in (self.root / ".headstart" / "checkpoints").glob(f"{LANGUAGE_MODELS}/step-*/state.json")
        )

    def processes(self) -> list[psutil.Process]:
        """The live processes of the project's runs."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PYTHONPATH", "").startswith(str(self.root)) and is_alive(process):
                    found.append(process)
        return found


def _lasting(path: Path) -> bytes:
    """The content of an output without times."""
    content = path.read_bytes()
    if path.suffix == ".json":
        return json.dumps(_without_times(json.loads(content)), sort_keys=True).encode()
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = [[cell for name, cell in row.items() if not VOLATILE.search(name)] for row in csv.DictReader(file)]
        return json.dumps(rows).encode()
    return content


def _without_times(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_times(inner) for key, inner in value.items() if not VOLATILE.search(str(key))}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def make(root: Path, *, variables: Mapping[str, str], launcher: str = "local", tokens: int = TOKENS) -> Project:
    """Create a project.

    Raises:
        ConfigError: this is no checkout of Headstart.
    """
    root.mkdir(parents=True)
    for name in FILES:
        if not (CHECKOUT / name).is_file():
            raise ConfigError(f"{CHECKOUT / name}: missing; the drills need a checkout of Headstart")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, root / name)
    for name in FOLDERS:
        # With the compiled files, which stay valid because times of modification are copied.
        shutil.copytree(CHECKOUT / name, root / name)
    (root / ".gitignore").write_text("/data\n/artifacts\n/.headstart/\n/mlflow.db\n/mlruns/\n__pycache__/\n")
    data.write(root, launcher=launcher, tokens=tokens)
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "a drill"]):
        who = ["-c", "user.name=drill", "-c", "user.email=drill@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, timeout=600)
    return Project(root, dict(variables))


def differences(expected: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """Names of outputs that are missing, additional or different."""
    return sorted(name for name in expected.keys() | seen.keys() if expected.get(name) != seen.get(name))


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def answers(url: str) -> bool:
    """Whether an HTTP GET succeeds within 3 seconds."""
    try:
        with urllib.request.urlopen(url, timeout=3) as response:
            return bool(response.status < 400)
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of all drills of a session: a Prefect server of their own, on a free port with its own database.

    Every process that carries the marker is ended with the block.
    """
    marker = secrets.token_hex(8)
    port = free_port()
    variables = {
        MARKER: marker,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "DVC_SITE_CACHE_DIR": str(folder / "dvc"),
        "OMP_NUM_THREADS": "1",
    }
    (folder / "prefect").mkdir(parents=True)
    auth = f"headstart:{secrets.token_urlsafe(32)}"
    server = Project(folder / "prefect", variables | protection(port, auth)).start(
        sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)
    )
    try:
        url = f"http://127.0.0.1:{port}/api"
        server.wait_for(lambda: answers(f"{url}/health"), what="Prefect's server answers")
        yield {**variables, ADDRESS: url, AUTH: auth}
    finally:
        end(marked(marker), more=lambda: marked(marker))


def marked(marker: str) -> list[psutil.Process]:
    """The live processes of the drills with this marker."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARKER) == marker and is_alive(process):
                found.append(process)
    return found


def left_over(project: Project) -> list[psutil.Process]:
    """Processes of killed runs that are still alive."""
    return orphans(project.root)
