"""`headstart ui --servers`: the project's pages, MLflow's and Prefect's, with the runs of an ordinary retraining; no
process is left."""

import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

from flows import processes
from flows.server import in_use
from tests.conftest import free_port

from .conftest import is_running


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_pages_show_an_ordinary_retraining(project, prefect_home):
    environment = {**os.environ, "PREFECT_HOME": str(prefect_home)}
    for name in ("PREFECT_API_URL", processes.MARK):
        environment.pop(name, None)
    code = (
        "import sys\n"
        "from flows.server import server\n"
        "with server(port=int(sys.argv[1])):\n"
        "    from flows.telemetry import run_name\n"
        "    from prefect import flow\n"
        "    @flow(name='retrain', flow_run_name=run_name)\n"
        "    def retrain(params='params.yaml'): pass\n"
        "    retrain()\n"
    )
    port, mlflow_port, prefect_port = free_port(), free_port(), free_port()
    # In place of a whole retraining: the name of its flow run.
    subprocess.run([sys.executable, "-c", code, str(prefect_port)], cwd=project, env=environment, check=True)
    command = [sys.executable, "-m", "components.cli", "ui", "--servers", "--port", str(port)]
    command += ["--mlflow-port", str(mlflow_port)]
    log = project / "ui.log"
    with log.open("w") as output:
        served = subprocess.Popen(command, cwd=project, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 300
        while "Ctrl-C ends them" not in log.read_text():
            assert served.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        shown = log.read_text()
        assert f"MLflow:  http://127.0.0.1:{mlflow_port}/#/experiments\n" in shown
        assert f"Prefect: http://127.0.0.1:{prefect_port}/runs\n" in shown
        pages = httpx.get(f"http://127.0.0.1:{port}/", timeout=60).text
        assert f'href="http://127.0.0.1:{mlflow_port}/#/experiments">MLflow<' in pages
        assert f'href="http://127.0.0.1:{prefect_port}/runs">Prefect<' in pages
        prefect = f"http://127.0.0.1:{prefect_port}"
        file = prefect_home / "auth"
        assert (
            f"asks for the text in {file}; its server stays for half an hour\n" in shown
            and file.stat().st_mode & 0o777 == 0o600
        )
        secret = file.read_text()
        assert len(secret) > 40 and not any(secret in path.read_text() for path in project.glob("**/*.log"))
        assert not any(secret in " ".join(each.cmdline()) for each in processes.descendants(served.pid))
        result = read_prefect(prefect, secret)
        assert any(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d retrain", run["name"]) for run in result)
        settings = httpx.get(f"http://127.0.0.1:{prefect_port}/ui-settings", timeout=60).json()
        assert settings["api_url"] == f"http://127.0.0.1:{prefect_port}/api"
        refuses_others(prefect, secret)
        refuses_others_of_mlflow(f"http://127.0.0.1:{mlflow_port}")
        started = processes.descendants(served.pid)
        assert len(started) > 1
    finally:
        served.send_signal(signal.SIGTERM)
    assert served.wait(timeout=60) == 143
    assert not any(is_running(process.pid) for process in started)
    assert not any(in_use(port) for port in (port, mlflow_port)) and in_use(prefect_port)


def read_prefect(address: str, secret: str) -> list[dict[str, str]]:
    """The flow runs, asked for as Prefect's page does."""
    with httpx.Client(base_url=f"{address}/api", auth=tuple(secret.split(":")), timeout=60) as client:
        token = client.get("/csrf-token", params={"client": "test"}).json()["token"]
        headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test", "Origin": address}
        answer = client.post("/flow_runs/filter", json={}, headers=headers)
        assert answer.headers["access-control-allow-origin"] == address
        return answer.json()


def refuses_others(address: str, secret: str) -> None:
    """Nobody without the text, no page of another origin, and no request without a token that such a page cannot read
    gets an answer."""
    for path in ("/admin/version", "/csrf-token?client=test", "/block_types/slug/webhook"):
        assert httpx.get(f"{address}/api{path}", timeout=60).status_code == 401
    for path in ("/block_documents/filter", "/flow_runs/filter"):
        assert httpx.post(f"{address}/api{path}", json={}, timeout=60).status_code == 403
    auth, foreign = tuple(secret.split(":")), {"Origin": "http://foreign.example"}
    for path in ("/api/admin/version", "/ui-settings"):
        answer = httpx.get(f"{address}{path}", auth=auth, headers=foreign, timeout=60)
        assert "access-control-allow-origin" not in answer.headers
    asked = {**foreign, "Access-Control-Request-Method": "POST"}
    assert httpx.options(f"{address}/api/flow_runs/filter", headers=asked, timeout=60).status_code == 400
    assert httpx.post(f"{address}/api/flow_runs/filter", json={}, auth=auth, timeout=60).status_code == 403


def refuses_others_of_mlflow(address: str) -> None:
    """Pages of other origins and names of other hosts get no answer."""
    path, foreign = f"{address}/api/2.0/mlflow/experiments/search?max_results=1", {"Origin": "http://foreign.example"}
    assert httpx.get(path, timeout=60).status_code == 200
    assert httpx.get(path, headers={"Host": "foreign.example"}, timeout=60).status_code == 403
    assert httpx.get(path, headers={"Host": "192.168.0.1"}, timeout=60).status_code == 403
    assert "access-control-allow-origin" not in httpx.get(path, headers=foreign, timeout=60).headers
    created = httpx.post(
        f"{address}/api/2.0/mlflow/experiments/create", json={"name": "x"}, headers=foreign, timeout=60
    )
    assert created.status_code == 403
