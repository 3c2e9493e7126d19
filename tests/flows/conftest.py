from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from flows import stages  # before Prefect is imported: sets its defaults
from flows.server import server
from flows.terminal import terminal
from tests.conftest import dvc as dvc
from tests.conftest import git as git

ROOT = Path(__file__).parents[2]

PIPELINE = """\
# In place of `headstart stage NAME`.
vars:
  - params_file: params.yaml
  - root: .
stages:
  ingest:
    foreach: [general, domain]
    do:
      wdir: ${root}
      cmd: python work.py ingest ${item} data/${item} ${run.out}/corpus/${item}
      deps: ["data/${item}", work.py]
      outs: ["${run.out}/corpus/${item}"]
  pretrain:
    wdir: ${root}
    cmd: python work.py pretrain model ${run.out}/corpus/general ${run.out}/model
    meta: {minutes: 1, retries: 1}
    deps: ["${run.out}/corpus/general"]
    params:
      - ${params_file}: [ingest.min_characters]
    outs: ["${run.out}/model"]
    metrics: ["${run.out}/metrics.json"]
    plots:
      - ${run.out}/curve.csv: {x: step, y: loss}
  evaluate:
    wdir: ${root}
    cmd: python work.py evaluate scores ${run.out}/corpus/domain ${run.out}/scores
    deps: ["${run.out}/corpus/domain", "${run.out}/model"]
    outs: ["${run.out}/scores"]
  unwanted:
    wdir: ${root}
    cmd: "false"
    deps: ["${run.out}/model"]
    outs: ["${run.out}/unwanted"]
  register:
    wdir: ${root}
    cmd: python work.py register registry ${run.out}/scores ${run.out}/registered
    always_changed: true
    deps: ["${run.out}/scores"]
    outs:
      - ${run.out}/registered:
          cache: false
"""

# Each stage copies a text, records that it ran and prints a line. A file `trouble` makes one of them fail.
WORK = """\
import json, os, re, subprocess, sys, time
from pathlib import Path
from components.core.errors import HeadstartError, report

stage, name, source, target = sys.argv[1:5]
source = Path(source)
with open("ran.log", "a") as log:
    log.write(f"{stage} {name}\\n")
print(f"{stage} reads {source}", flush=True)
trouble = Path("trouble").read_text().split() if Path("trouble").exists() else []
if stage in trouble:
    match trouble[1]:
        case "refuse":
            report(HeadstartError(f"{source}: line 3: no text\\n  put some there"))
            sys.exit(2)
        case "crash":
            raise ZeroDivisionError("a defect")
        case "crash-once":
            Path("trouble").unlink()
            os.kill(os.getpid(), 9)
        case "hang":
            child = subprocess.Popen(["sleep", "600"])
            Path("child").write_text(str(child.pid))
            time.sleep(600)
text = source.read_text() if source.is_file() else "".join(sorted(f.read_text() for f in source.rglob("*.txt")))
Path(target).parent.mkdir(parents=True, exist_ok=True)
Path(target).write_text(text.strip()[:1] if stage == "pretrain" else text)
if stage == "pretrain":
    factor = float(re.search(r"min_characters: (\\d+)", Path("params.yaml").read_text())[1])
    Path(target).with_name("metrics.json").write_text(json.dumps({"loss": 3.5 * factor, "speed": {"tokens": 7}}))
    Path(target).with_name("curve.csv").write_text(f"step,loss\\n1,{4 * factor}\\n2,{3.5 * factor}\\n")
"""


def without_monitor(params: str) -> str:
    """Settings without live monitoring, which costs seconds per run and has tests of its own."""
    for key, value, other in (("mlflow", "true", "false"), ("textfiles", ".headstart/metrics", "null")):
        assert params.count(f"  {key}: {value} ") == 1
        params = params.replace(f"  {key}: {value} ", f"  {key}: {other} ")
    return params


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git and DVC repository with five quick stages and the shipped settings; `ran.log` lists the stages that ran."""
    files = {
        "dvc.yaml": PIPELINE,
        "work.py": WORK,
        "params.yaml": without_monitor((ROOT / "params.yaml").read_text()),
        "data/general/a.txt": "general text\n",
        "data/domain/aws/a.txt": "domain text\n",
        **{
            f"data/tasks/aws-type/{split}.jsonl": "".join(
                json.dumps({"text": f"{label} of {split}", "label": label, "service": "s3"}) + "\n"
                for label in ("string", "list")
            )
            for split in ("train", "dev", "test")
        },
        ".gitignore": "/data\n/artifacts\n/.headstart*\n/ran.log\n/trouble\n/child\n/dvc_plots\n/mlflow.db\n",
        ".dvcignore": ".headstart/\n",
        ".dvc/config": "[core]\n    analytics = false\n    check_update = false\n",
        ".dvc/.gitignore": "/tmp\n/cache\n/config.local\n",
    }
    # Its stages import nothing of Headstart.
    monkeypatch.setattr(stages, "modules_of", lambda ahead, params: [])
    monkeypatch.setattr(terminal, "style", "verbose")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def ran(root: Path) -> list[str]:
    """The stages that ran since the last call."""
    log = root / "ran.log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Prefect's server of all tests, which the first of them starts, with its address in the environment."""
    with server():
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        # The end of a flow would wait for the thread of its signs of life.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield


@pytest.fixture
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """PREFECT_HOME of processes with a server of their own, which ends with the test."""
    home = tmp_path_factory.mktemp("prefect")
    yield home
    with suppress(OSError, ValueError):
        os.kill(server_of(home)["pid"], signal.SIGKILL)


def server_of(home: Path) -> dict[str, int]:
    """Port and process of the Prefect server of a folder."""
    return dict(json.loads((home / "lock").read_text()))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
