"""The temporary project of a fault: a DVC repository with this checkout's code and tiny data; what faults share."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from flows.processes import end, having, orphans
from tests.conftest import git

TASK = "faults"
LABELS = ("fire", "water", "wind")
WORDS = ["alarm", "backup", "cable", "disk", "engine", "fan", "gauge", "hose", "joint", "lamp", "motor", "pump", "tank"]
#: Number of documents of each corpus, and of labelled rows of each split.
DOCUMENTS, ROWS = 240, 36
#: Checkpoints are written often, so that a training of a few seconds is resumed and not repeated.
SETTINGS = """\
run: {families: [ulmfit], tasks: [faults], starts: [pretrained, adapted], out: artifacts, seed: 0}
cluster: {launcher: LAUNCHER, workers: 1, checkpoint_seconds: 0.3}
data:
  general: {path: data/general, text: text}
  domain: {path: data/domain, text: text}
  parallel: {}
  tasks:
    faults: {path: data/tasks/faults, train: train.jsonl, dev: dev.jsonl, test: test.jsonl, text: text, label: label,
             slice: place, budgets: [5], seeds: [0], overlap: report}
ingest: {near_duplicates: null, heldout: 0.05}
tokenizer: {kinds: [wordpiece], domain_vocabulary: domain, wordpiece: {vocabulary: 200, min_frequency: 1}}
pretrain:
  ulmfit:
    tokenizer: wordpiece
    model: {embedding: 16, hidden: 24, layers: 1}
    training: &training {tokens: TOKENS, window: 16, batch_size: 8, rate: 0.01}
adapt: {ulmfit: {training: *training}}
finetune:
  ulmfit:
    max_length: 32
    epochs: 2
    min_steps: 40
    head_steps: 20
    training: {rate: 0.002, batch_size: 8}
registry: {tracking: "sqlite:///mlflow.db"}
promote: {latency_ms: null}
"""
CHECKOUT = Path(__file__).resolve().parents[3]
#: What the project has in common with the checkout.
FILES = ("dvc.yaml", "requirements.lock", ".dvc/config", ".dvcignore")
FOLDERS = ("components", "flows")
#: Prefixes of the caller's variables that would lead to the user's servers and stores.
FOREIGN = ("AWS_", "HEADSTART_", "MLFLOW_", "PREFECT_", "RAY_")
#: A variable that every process of the runs inherits, so that none is left over.
MARKER = "HEADSTART_FAULTS"
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
#: Seconds in which processes that accompany a run (monitoring) may end after it.
END_S = 30.0
#: Stages that are run once for all; the faults occur after them.
BEFORE = ("examples", "tokenize")
#: Prints the registry: model -> sorted content digests of its versions, and the number of the champion.
CONTENT = """
import json
from pathlib import Path
from components.settings.loading import load_params
from components.registry.tracking import connect
registry = connect(load_params(Path("params.yaml")).registry)
names = ("headstart-faults", "headstart-ulmfit-pretrained", "headstart-ulmfit-adapted")
versions = {name: sorted(version.digest for version in registry.versions(name)) for name in names}
champion = registry.alias("headstart-faults", "champion")
print(json.dumps([versions, champion.number if champion else None]))
"""


def write(root: Path, *, launcher: str, tokens: int) -> None:
    """Write params.yaml and data/ below `root`. Equal arguments give equal bytes."""
    text = SETTINGS.replace("LAUNCHER", launcher).replace("TOKENS", str(tokens))
    (root / "params.yaml").write_text(text, encoding="utf-8")
    for corpus in ("general", "domain"):
        chance = random.Random(corpus)
        rows = [{"text": _sentence(chance, f"{corpus} {number}")} for number in range(DOCUMENTS)]
        _write_rows(root / "data" / corpus / "a.jsonl", rows)
    for split in ("train", "dev", "test"):
        chance, rows = random.Random(split), []
        for number in range(ROWS):
            label, place = LABELS[number % len(LABELS)], f"place {number // len(LABELS) % 6}"
            rows.append({"text": _sentence(chance, f"{split} {number} {label}"), "label": label, "place": place})
        _write_rows(root / "data" / "tasks" / TASK / f"{split}.jsonl", rows)


def _sentence(chance: random.Random, name: str) -> str:
    return f"the {name} has {' '.join(chance.choice(WORDS) for _ in range(chance.randint(8, 24)))}"


def _write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def expect(condition: object, message: str) -> None:
    """What has to follow a fault; also under `python -O`, for the benchmark."""
    if not condition:
        raise AssertionError(message)


@dataclass
class Running:
    """A command in the background; its output, both streams, goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def last(self) -> str:
        """The last error message, or the last line of the output."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return ([line for line in lines if "error:" in line] or lines or [""])[-1]

    def ended(self, code: int | None = None, *, limit_s: float = 900) -> Running:
        """Wait for its end, with this exit code (negative: the signal) if one is given."""
        try:
            ended = self.process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"did not end within {limit_s:g} s; its output: {self.log}") from error
        expect(code in (None, ended), f"ended with exit code {ended} instead of {code}: {self.last}")
        return self

    def wait_for(self, condition: Callable[[], object], *, what: str, limit_s: float = 300) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            code = self.process.poll()
            expect(code is None, f"the run ended (exit code {code}) before {what}; see {self.log}")
            expect(time.monotonic() < deadline, f"{what}: not within {limit_s:g} s; see {self.log}")
            time.sleep(0.02)


@dataclass
class Project:
    """A temporary project."""

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
        return self.start(sys.executable, "-m", "components.cli", "retrain", "--verbose")

    def pretrain(self, run: Running | None = None) -> None:
        """Retrain until the stage pretrain is complete, then end the run: what follows depends on its output."""
        run = run or self.retrain()
        run.wait_for(lambda: f"{PRETRAIN} | completed" in run.output, what="pretraining is complete", limit_s=900)
        run.process.terminate()
        run.ended()

    def until_checkpoints(self, run: Running, count: int = 2) -> int:
        """Wait until a run has stored so many checkpoints of pretraining; the newest step."""
        seen: set[int] = set()

        def stored() -> bool:
            seen.update(self.stored_steps())
            return len(seen) >= count

        run.wait_for(stored, what=f"{count} checkpoints are stored")
        return max(seen)

    def headstart(self, *arguments: str) -> Running:
        """Run a command of `headstart` to its end, without an error."""
        return self.start(sys.executable, "-m", "components.cli", *arguments).ended(0)

    def python(self, script: str, *arguments: str, code: int = 0) -> Running:
        return self.start(sys.executable, "-c", script, *arguments).ended(code)

    def copy(self, name: str) -> Project:
        """A copy of the project with its outputs, in a folder beside it."""
        root = self.root.with_name(name)
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root, dict(self.variables))

    def digests(self) -> dict[str, str]:
        """Path -> digest of every output, without the times that it records. Manifests contain digests of files with
        times and are left out; so are the outputs that are made of others."""
        out = self.root / "artifacts"
        names = {path: path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if path.is_file()}
        return {
            name: hashlib.sha256(_lasting(path)).hexdigest()
            for path, name in names.items()
            if path.name != "manifest.json" and not name.startswith(DERIVED)
        }

    def stored_steps(self) -> list[int]:
        """Steps of all complete checkpoints of language models in the local storage."""
        stored = (self.root / ".headstart" / "checkpoints").glob(f"{LANGUAGE_MODELS}/step-*/state.json")
        return sorted(int(path.parent.name.removeprefix("step-")) for path in stored)

    def registered(self) -> tuple[dict[str, list[str]], str | None]:
        """Model -> sorted content digests of its versions, one registered twice included; and the champion's number."""
        versions, champion = json.loads(self.python(CONTENT).output.splitlines()[-1])
        return versions, champion


def _lasting(path: Path) -> bytes:
    """The content of an output without times."""
    if path.suffix == ".json":
        return json.dumps(_without_times(json.loads(path.read_bytes())), sort_keys=True).encode()
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return json.dumps([_without_times(row) for row in csv.DictReader(file)]).encode()
    return path.read_bytes()


def _without_times(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_times(inner) for key, inner in value.items() if not VOLATILE.search(str(key))}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


def make(root: Path, *, variables: Mapping[str, str], launcher: str = "local") -> Project:
    """Create a project."""
    root.mkdir(parents=True)
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, root / name)
    for name in FOLDERS:
        # With the compiled files, which stay valid because times of modification are copied.
        shutil.copytree(CHECKOUT / name, root / name)
    (root / ".gitignore").write_text("/data\n/artifacts\n/.headstart/\n/mlflow.db\n/mlruns/\n__pycache__/\n")
    write(root, launcher=launcher, tokens=TOKENS)
    project = Project(root, dict(variables))
    project.headstart("dvc")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "a fault"]):
        git(root, *arguments)
    return project


@dataclass
class Session:
    """What faults share."""

    folder: Path
    variables: dict[str, str]
    seed: int = 0
    count: int = 10
    say: Callable[[str], None] = print

    def chance(self, name: str) -> random.Random:
        """The random numbers of a fault."""
        return random.Random(f"{self.seed} {name}")

    @cached_property
    def before(self) -> Project:
        """The project before training."""
        project = make(self.folder / "before", variables=self.variables)
        project.start("dvc", "repro", "--quiet", *BEFORE).ended(0)
        return project

    @cached_property
    def undisturbed(self) -> Project:
        """A project after a run without a fault."""
        project = self.before.copy("undisturbed")
        began = time.monotonic()
        project.retrain().ended(0)
        self.seconds = time.monotonic() - began
        return project

    @cached_property
    def pretrained(self) -> dict[str, str]:
        """Digests of the output of an undisturbed pretraining."""
        project = self.before.copy("pretrained")
        project.pretrain()
        return _of_pretraining(project)

    @cached_property
    def outputs(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Digests of the outputs of the undisturbed run, and its registered versions."""
        return self.undisturbed.digests(), self.undisturbed.registered()[0]

    def project(self, name: str, *, launcher: str = "local", state: Literal["new", "before", "after"]) -> Project:
        """A project for a fault: new, before training, or after an undisturbed run."""
        if state == "new":
            return make(self.folder / name, variables=self.variables, launcher=launcher)
        project = (self.before if state == "before" else self.undisturbed).copy(name)
        params = project.root / "params.yaml"
        params.write_text(params.read_text().replace("launcher: local", f"launcher: {launcher}"))
        return project

    def compare_pretrained(self, project: Project) -> str:
        """Compare the output of pretraining with the undisturbed one; returns what was seen, in words."""
        _same(self.pretrained, _of_pretraining(project), project)
        return "the same bits"

    def compare(self, project: Project) -> str:
        """Compare outputs and registry with an undisturbed run; returns what was seen, in words."""
        digests, versions = self.outputs
        _same(digests, project.digests(), project)
        seen = project.registered()[0]
        expect(seen == versions, f"the registry differs: {seen}, expected {versions}")
        return f"the same bits in {len(digests)} outputs"


def _of_pretraining(project: Project) -> dict[str, str]:
    return {name: digest for name, digest in project.digests().items() if name.startswith(PRETRAINED)}


def differences(expected: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """Names of outputs that are missing, additional or different."""
    return sorted(name for name in expected.keys() | seen.keys() if expected.get(name) != seen.get(name))


def _same(expected: dict[str, str], seen: dict[str, str], project: Project) -> None:
    different = differences(expected, seen)
    expect(not different, f"{len(different)} of {len(expected)} outputs differ: {', '.join(different[:5])}")
    deadline = time.monotonic() + END_S
    while left := orphans(project.root):
        expect(time.monotonic() < deadline, f"{len(left)} processes are left over: {left}")
        time.sleep(0.5)


@contextmanager
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of all runs of a session. Every process that carries the marker is ended with the block."""
    marker = secrets.token_hex(8)
    try:
        folders = {"DVC_SITE_CACHE_DIR": str(folder / "dvc"), "PREFECT_HOME": str(folder / "prefect")}
        yield {MARKER: marker, "OMP_NUM_THREADS": "1"} | folders
    finally:
        end(having(MARKER, marker), more=lambda: having(MARKER, marker))
