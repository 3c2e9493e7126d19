"""What a process knows of the flow run that it executes."""

from __future__ import annotations

import os
import subprocess
import sys

from flows import flow_run

from .conftest import ROOT

SCRIPT = """
import sys
from flows import execution, flow_run, run, telemetry
flow_run.log("a line")
print([flow_run.identifier(), flow_run.name()], "prefect" in sys.modules)
"""


def printed(script: str, **variables: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_API_", "PREFECT__"))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=own | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_process_without_a_flow_run_does_not_import_prefect() -> None:
    assert printed(SCRIPT) == "['', ''] False"


def test_a_flow_run_is_that_of_prefects_context(prefect_server: None) -> None:
    from prefect import flow

    @flow(name="one", flow_run_name="its name")
    def one() -> tuple[str, str]:
        return flow_run.identifier(), flow_run.name()

    identifier, name = one()
    assert len(identifier) == 36
    assert name == "its name"
    assert (flow_run.identifier(), flow_run.name()) == ("", "")
