"""Nothing of an ad-hoc flow outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SERVER = """
import time
from flows.server import tie_server
tie_server()
from prefect.server.api.server import SubprocessASGIServer
print(SubprocessASGIServer(port=1)._run_uvicorn_command().pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2)")
def test_prefects_embedded_server_ends_with_a_killed_flow(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    owner = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=variables | {"PREFECT_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    # The wrapper becomes the server as soon as it is tied.
    end = time.monotonic() + 120
    while "uvicorn" not in server.cmdline()[:3]:
        assert time.monotonic() < end, server.cmdline()
        time.sleep(0.05)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    _, left = psutil.wait_procs([server], timeout=60)
    assert not left


ASKED = """
from flows.server import tie_server
tie_server()
import httpx
from prefect import flow
from prefect.client.orchestration import get_client
@flow
def asked():
    with get_client(sync_client=True) as client:
        answer = httpx.get(f"{client.api_url}/admin/version", headers={"Origin": "http://foreign.example"}, timeout=60)
    print(answer.status_code, "access-control-allow-origin" in answer.headers, flush=True)
asked()
"""


@pytest.mark.timeout(600)
def test_prefects_embedded_server_answers_its_flow_only(tmp_path: Path) -> None:
    names = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_CORS_ALLOWED_ORIGINS")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        env=variables | {"PREFECT_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "401 False", done.stdout + done.stderr


IS_CONFIGURED = "import sys; from flows.server import has_server; print(has_server(), 'prefect' in sys.modules)"
PROFILES = """
active = "quick"
[profiles.quick]
[profiles.team]
PREFECT_API_URL = "http://prefect.example/api"
"""


@pytest.mark.parametrize(
    ("variables", "profiles", "found"),
    [
        ({}, "", "False False"),
        ({"PREFECT_API_URL": "http://prefect.example/api"}, "", "True False"),
        ({}, PROFILES, "False True"),
        ({}, PROFILES.replace('active = "quick"', 'active = "team"'), "True True"),
        ({"PREFECT_PROFILE": "team"}, PROFILES, "True True"),
        # Prefect reads no profile without the file.
        ({"PREFECT_PROFILE": "local"}, "", "False False"),
    ],
)
def test_a_server_may_be_configured_in_a_profile(
    tmp_path: Path, variables: dict[str, str], profiles: str, found: str
) -> None:
    if profiles:
        (tmp_path / "profiles.toml").write_text(profiles)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", IS_CONFIGURED],
        env={**own, **variables, "PREFECT_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == found
