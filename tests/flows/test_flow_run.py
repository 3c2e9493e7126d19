"""What a process knows of the flow run that it executes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from flows import flow_run, sync
from flows.repository import environment

from .conftest import ROOT

SCRIPT = """
import sys
from flows import execution, drift, flow_run, imports, telemetry
flow_run.log("a line")
print([flow_run.identifier(), flow_run.name(), flow_run.is_scheduled()], "prefect" in sys.modules)
"""


def printed(script: str, **variables: str) -> str:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_API_", "PREFECT__"))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=base | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_process_without_a_flow_run_does_not_import_prefect() -> None:
    assert printed(SCRIPT) == "['', '', False] False"


def test_the_environment_may_name_a_flow_run() -> None:
    named = {"ID": str(uuid4()), "NAME": "the run"}
    variables = {f"PREFECT__RUNTIME__FLOW_RUN__{name}": value for name, value in named.items()}
    shown = printed(SCRIPT, **variables, PREFECT__RUNTIME__DEPLOYMENT__ID="nightly")
    assert shown == f"['{named['ID']}', 'the run', True] True"


def test_the_retraining_of_a_scheduled_synchronisation_is_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a flow run of its own, without a deployment, in a process that the scheduled flow run starts."""
    (tmp_path / ".dvc").mkdir()
    seen: list[str] = []

    def retrain(command: list[str], *, root: Path, **_: object) -> None:
        variables = environment(root)
        named = {name: variables[name] for name in variables if name.startswith("HEADSTART_")}
        seen.append(printed(SCRIPT, **named))

    monkeypatch.setattr(sync, "run_command", retrain)
    monkeypatch.setattr(sync, "pull", lambda root: [])
    monkeypatch.setattr(sync, "publish", lambda root, **_: [])
    monkeypatch.setattr(sync.summary, "decisions", lambda **_: [])
    for scheduled in (False, True):
        monkeypatch.setattr(flow_run, "is_scheduled", lambda scheduled=scheduled: scheduled)
        sync.sync.fn(str(tmp_path / "params.yaml"))
    assert seen == ["['', '', False] False", "['', '', True] False"]
    assert "HEADSTART_SCHEDULED" not in os.environ
