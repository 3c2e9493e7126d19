"""Drift in runs: when traffic is checked, and which scheduled runs wait for drift."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.drift.measurements import ROW, Measured
from components.drift.traffic import TrafficLog, logged, read_traffic
from components.errors import ConfigError
from components.reporting import findings
from components.reporting.chapters import Chapter
from components.reporting.findings import Findings
from components.settings.loading import load_params
from components.tasks.data import Fields
from components.tracking import Version
from flows import drift, flow_run, summary
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
def params(tmp_path: Path) -> Path:
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


def test_traffic_is_checked_if_there_is_new_one(params: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, calls = params.parent, list[tuple[str, ...]]()
    monkeypatch.setattr(drift, "run_headstart", lambda *arguments, **options: calls.append(arguments))
    drift.check(params, root=root)
    assert calls == []
    log(root)
    drift.check(params, root=root)
    assert calls == [("drift", "--task", TASK, "--params", "params.yaml")]
    record(root, found=False)
    (segment,) = (root / ".headstart/traffic").rglob("*.rows")
    os.utime(segment, (1000, 1000))
    drift.check(params, root=root)
    assert len(calls) == 1


def test_a_failed_check_stops_no_run(
    params: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise StageError("no registry", final=False)

    monkeypatch.setattr(drift, "run_headstart", fail)
    log(params.parent)
    drift.check(params, root=params.parent)
    assert "the check failed; the run goes on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "scheduled", "found", "waits"),
    [
        ("on_drift", True, False, True),
        ("on_drift", True, None, True),
        ("on_drift", True, True, False),
        ("on_drift", False, False, False),
        ("always", True, False, False),
    ],
)
def test_a_scheduled_run_may_wait_for_drift(
    params: Path, setting: str, scheduled: bool, found: bool | None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = params.read_text().replace("  least_effect: 0.1", f"  scheduled: {setting}\n  least_effect: 0.1")
    params.write_text(text)
    if found is not None:
        record(params.parent, found=found)
    log(params.parent)
    monkeypatch.setattr(flow_run, "is_scheduled", lambda: scheduled)
    assert drift.waits(params, root=params.parent) is waits


@pytest.fixture
def waiting(params: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a scheduled run that waits for drift."""
    params.write_text(params.read_text().replace("  least_effect: 0.1", "  scheduled: on_drift\n  least_effect: 0.1"))
    monkeypatch.setattr(flow_run, "is_scheduled", lambda: True)
    return params


def test_a_run_that_waits_for_drift_fails_without_a_log(waiting: Path) -> None:
    message = (
        r"drift.scheduled: on_drift, but .*\.headstart/traffic holds no log of served rows, so drift is never found"
    )
    with pytest.raises(ConfigError, match=message):
        drift.waits(waiting, root=waiting.parent)
    log(waiting.parent)
    assert drift.waits(waiting, root=waiting.parent)


def test_a_run_that_waits_for_drift_fails_with_its_check(waiting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise StageError("no registry", final=False)

    monkeypatch.setattr(drift, "run_headstart", fail)
    log(waiting.parent)
    with pytest.raises(StageError, match="no registry"):
        drift.check(waiting, root=waiting.parent)


def test_the_server_and_the_flow_share_a_folder(waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in compose and Kubernetes: the server runs elsewhere, with its own copy of the settings."""
    monkeypatch.setenv("HEADSTART_TRAFFIC", str(tmp_path / "volume"))
    image = tmp_path / "image"
    image.mkdir()
    shutil.copy(waiting, image)
    monkeypatch.chdir(image)
    served = logged(Answering(), VERSION, TASK, load_params(Path("params.yaml")).drift)
    served.answer([("x",)])
    calls = list[tuple[str, ...]]()
    monkeypatch.setattr(drift, "run_headstart", lambda *arguments, **options: calls.append(arguments))
    drift.check(waiting, root=waiting.parent)
    assert calls and drift.waits(waiting, root=waiting.parent)
    settings = load_params(waiting).drift
    assert len(read_traffic(waiting.parent / settings.folder, task=TASK, digest=VERSION.digest)) == 1


def test_the_summary_has_the_last_result(tmp_path: Path) -> None:
    assert summary.drift(tmp_path / "artifacts") == []
    record(tmp_path, found=True)
    assert summary.drift(tmp_path / "artifacts") == ["drift: headstart-aws-type/3: drift (checked today)"]


def test_a_scheduled_run_rebuilds_once_for_a_version_with_drift(params: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = params.parent
    record(root, found=True)
    monkeypatch.setattr(flow_run, "is_scheduled", lambda: True)
    assert drift.rebuild_reason(params, root=root) == ""
    params.write_text(params.read_text().replace("  least_effect: 0.1", "  scheduled: on_drift\n  least_effect: 0.1"))
    assert drift.rebuild_reason(params, root=root) == "drift of headstart-aws-type/3"
    assert drift.rebuild_reason(params, root=root) == ""
    (root / ".headstart/drift-rebuilds.json").unlink()
    monkeypatch.setattr(flow_run, "is_scheduled", lambda: False)
    assert drift.rebuild_reason(params, root=root) == ""
