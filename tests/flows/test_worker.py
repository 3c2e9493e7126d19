"""A worker of a Prefect work pool is killed together with its run: the next night runs."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, FlowRun
from prefect.settings import PREFECT_API_URL

from flows import notify
from tests.conftest import until

POOL = "headstart"
#: In place of the flow `retrain`: it gives a sign of life and hangs the first time, and ends the second time.
FLOW = """\
import os, time
from pathlib import Path
from prefect import flow
from prefect.events import emit_event
from prefect.context import FlowRunContext

STARTED = Path(__file__).with_name("started")

@flow(name="retrain")
def retrain():
    if STARTED.exists():
        return
    flow_run = FlowRunContext.get().flow_run
    emit_event(
        event="prefect.flow-run.heartbeat",
        resource={"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.name": flow_run.name},
        related=[{
            "prefect.resource.id": f"prefect.flow.{flow_run.flow_id}",
            "prefect.resource.role": "flow",
            "prefect.resource.name": "retrain",
        }],
    )
    time.sleep(2)
    STARTED.write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def worker(prefect_server: object, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a worker of the pool."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
        started.append(
            subprocess.Popen([*command, "--name", f"worker-{len(started)}"], cwd=tmp_path, start_new_session=True)
        )
        return started[-1]

    yield start
    for process in started:
        kill(process.pid)
        process.wait()


def kill(pid: int) -> None:
    """SIGKILL of a process and its descendants at once."""
    with suppress(psutil.NoSuchProcess):
        for each in (parent := psutil.Process(pid)).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        parent.send_signal(signal.SIGKILL)


def ended(client: SyncPrefectClient, run: FlowRun) -> bool:
    state = client.read_flow_run(run.id).state
    return state is not None and state.is_final()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_next_night_runs_after_worker_and_run_were_killed(worker, tmp_path, monkeypatch):
    """The pool's only slot is free again, because the run that gives no sign of life is marked as crashed."""
    monkeypatch.setattr(notify, "SILENT_S", 10)
    notify.install(str(PREFECT_API_URL.value()))
    (tmp_path / "stub.py").write_text(FLOW)
    with get_client(sync_client=True) as client:
        first_worker = worker()
        until(lambda: any(pool.name == POOL for pool in client.read_work_pools()))
        one = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
        stub = flow.from_source(source=str(tmp_path), entrypoint="stub.py:retrain")
        deployment = stub.deploy(
            name="nightly", work_pool_name=POOL, concurrency_limit=one, build=False, print_next_steps=False
        )
        night = client.create_flow_run_from_deployment(deployment)
        until((tmp_path / "started").exists)
        kill(first_worker.pid)
        until(lambda: not psutil.pid_exists(int((tmp_path / "started").read_text())))
        next_night = client.create_flow_run_from_deployment(deployment)
        worker()
        until(lambda: ended(client, next_night))
        killed, completed = (client.read_flow_run(run.id).state for run in (night, next_night))
    assert killed.is_crashed() and "its process has died" in killed.message
    assert completed.is_completed()
