"""Drift in runs: when traffic is checked."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from components.data.tasks.data import Fields
from components.registry.drift.measurements import ROW, Measured
from components.registry.drift.traffic import TrafficLog, logged, read_traffic
from components.registry.tracking import Version
from components.reporting import findings
from components.reporting.findings import Chapter, Findings
from components.settings.loading import load_params
from flows import run
from flows.repository import Project
from flows.terminal import StageError

ROOT = Path(__file__).parents[2]
TASK = "aws-type"
VERSION = Version("headstart-aws-type", "3", "", "", {"digest": "d" * 64})


class Answering:
    kind = "classification"
    labels = ("a", "b")

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        return [np.array([1, 0], dtype=np.float32) for _ in rows]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text() + "  # the section gc\n")
    return path


def log(root: Path) -> None:
    writer = TrafficLog(root / ".headstart/traffic", task=TASK, digest="d" * 16, megabytes=1)
    writer.append([("x",)], Measured("classification", ("a", "b"), np.zeros(1, dtype=ROW)))
    writer.close()


def record(root: Path, *, found: bool) -> None:
    numbers = {
        "drift": found,
        "what": "headstart-aws-type/3",
        "sentence": "headstart-aws-type/3: drift" if found else "no drift",
        "time": "today",
    }
    findings.write(root / "artifacts", f"drift-{TASK}", Findings(Chapter("Drift"), numbers), options={}, inputs={})


def test_traffic_is_checked_if_there_is_new_one(params, monkeypatch):
    root, calls = params.parent, list[tuple[str, ...]]()
    monkeypatch.setattr(run, "run_headstart", lambda *arguments, **options: calls.append(arguments))
    run.check_drift(Project(params))
    assert calls == []
    log(root)
    run.check_drift(Project(params))
    assert calls == [("drift", "--task", TASK, "--params", "params.yaml")]
    record(root, found=False)
    (segment,) = (root / ".headstart/traffic").rglob("*.rows")
    os.utime(segment, (1000, 1000))
    run.check_drift(Project(params))
    assert len(calls) == 1


def test_a_failed_check_stops_no_run(params, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise StageError("no registry", final=False)

    monkeypatch.setattr(run, "run_headstart", fail)
    log(params.parent)
    run.check_drift(Project(params))
    assert "the check failed; the run goes on" in capsys.readouterr().out


def test_the_server_and_the_flow_share_a_folder(params, tmp_path, monkeypatch):
    """As in compose and Kubernetes: the server runs elsewhere, with its own copy of the settings."""
    monkeypatch.setenv("HEADSTART_TRAFFIC", str(tmp_path / "volume"))
    image = tmp_path / "image"
    image.mkdir()
    shutil.copy(params, image)
    monkeypatch.chdir(image)
    served = logged(Answering(), VERSION, TASK, load_params(Path("params.yaml")).drift)
    served.answer([("x",)])
    calls = list[tuple[str, ...]]()
    monkeypatch.setattr(run, "run_headstart", lambda *arguments, **options: calls.append(arguments))
    run.check_drift(Project(params))
    assert calls
    assert len(read_traffic(tmp_path / "volume", task=TASK, digest=VERSION.digest)) == 1
