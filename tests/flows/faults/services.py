"""Faults of services: a server goes away or refuses."""

import logging
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from components.core.errors import TransientError
from flows.processes import answers, descendants, end
from flows.ui import mlflow_variables
from tests.conftest import free_port
from tests.flows.faults.kills import kill
from tests.flows.faults.project import Project, Running, Session, differences, expect

BUCKET = "faults"
#: Answer of an S3 store to a request with credentials that have expired.
EXPIRED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""


def _mlflow(project: Project, port: int) -> Running:
    """An MLflow server with a database and artifacts of its own."""
    folder = project.root.with_name(f"{project.root.name}-mlflow")
    folder.mkdir(exist_ok=True)
    server = project.start(
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")),
    )
    server.wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), what="MLflow's server answers")
    return server


def _with_mlflow(project: Project) -> int:
    """Let a project use an MLflow server on a free port, which the caller starts; the port."""
    port = free_port()
    project.variables |= {
        **mlflow_variables(port),
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    return port


def mlflow_away(session: Session) -> str:
    """MLflow's server is away while the run registers its models, and comes back."""
    project = session.project("mlflow-away", state="after")
    port = _with_mlflow(project)
    run = project.retrain()
    run.wait_for(lambda: "error: register: " in run.output, what="the stage register fails")
    refused = time.monotonic()
    server = _mlflow(project, port)
    away = time.monotonic() - refused
    run.ended(0)
    same = session.compare(project)
    end(descendants(server.pid))
    return f"register was refused, and repeated until the server answered {away:.0f} s later; {same}"


def mlflow_gone(session: Session) -> str:
    """MLflow's server is away for longer than the retries of a stage take."""
    project = session.project("mlflow-gone", state="after")
    # The retries of the shipped pipeline take minutes. A dvc.yaml without the first line is left as it is.
    pipeline = project.root / "dvc.yaml"
    pipeline.write_text(pipeline.read_text().split("\n", 1)[1].replace("retries: 3", "retries: 1"))
    port = _with_mlflow(project)
    code = TransientError.exit_code
    attempts = project.retrain().ended(code).output.count("error: register: ")
    expect(attempts == 2, f"register was tried {attempts} times instead of 2")
    lost = differences(session.outputs[0], project.digests())
    expect(not lost, f"outputs were lost: {', '.join(lost)}")
    server = _mlflow(project, port)
    project.retrain().ended(0)
    same = session.compare(project)
    end(descendants(server.pid))
    return f"exit code {code} after {attempts} attempts, nothing lost; with the server back: {same}"


class Store:
    """An S3 test server (moto) in this process, whose credentials can expire."""

    def __init__(self) -> None:
        # Otherwise a line for each request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._application = DomainDispatcherApplication(create_backend_app)
        self.expired = False
        self.stored = self.refused = 0
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def variables(self) -> dict[str, str]:
        """Environment of its clients."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "faults",
            "AWS_SECRET_ACCESS_KEY": "faults",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "HEADSTART_STORAGE": f"s3://{BUCKET}/checkpoints",
        }

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self.expired:
            self.refused += 1
            start_response(
                "403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(EXPIRED)))]
            )
            return [EXPIRED]
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("state.json"):
            self.stored += 1
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()


def s3_credentials(session: Session) -> str:
    """The credentials of the store of checkpoints expire during pretraining."""
    project, store = session.project("s3-credentials", state="before"), Store()
    project.variables |= store.variables
    try:
        project.python(f"from components.cluster.storage import ensure_bucket; ensure_bucket({BUCKET!r})")
        run = project.retrain()
        run.wait_for(lambda: store.stored >= 2, what="two checkpoints are stored")
        store.expired = True
        run.ended(2)
        named = re.search(r"error: (pretrain|adapt)@.*(ExpiredToken|EXPIRED_TOKEN|expired)", run.output)
        expect(named, f"the message does not name the cause: {run.last}")
        refused, kept = store.refused, store.stored
        store.expired = False
        project.pretrain()
        expect(store.stored > kept, "no checkpoint was written afterwards")
        same = session.compare_pretrained(project)
    finally:
        store.close()
    return f"exit code 2 after {refused} refused requests, the message names the expired token; with good ones: {same}"


def _head(project: Project, port: int, folder: Path) -> Running:
    """The head of a Ray cluster, with two processors."""
    head = project.start(
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", "--num-cpus=2"),
        *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats", "--min-worker-port=0"),
        *("--max-worker-port=0", "--object-store-memory=100000000", f"--temp-dir={folder}"),
    )
    head.wait_for(lambda: "Ray runtime started" in head.output, what="Ray's head has started")
    return head


def ray_head(session: Session) -> str:
    """The head of the Ray cluster is killed during pretraining and starts again."""
    project, port = session.project("ray-head", launcher="ray", state="before"), free_port()
    # The paths of Ray's sockets must be shorter than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="hs-faults-"))
    try:
        project.variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": f"{session.seed:064x}"}
        head = _head(project, port, folder)
        project.variables["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        run = project.retrain()
        step = project.until_checkpoints(run)
        for process in descendants(head.pid):
            kill(process)
        time.sleep(1)
        again = _head(project, port, folder)
        project.pretrain(run)
        expect("error: pretrain@ulmfit: cluster.address" in run.output, "the loss of the cluster has no message")
        same = session.compare_pretrained(project)
        end(descendants(again.pid))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return f"killed after the checkpoint of step {step}; the run went on with the new head; {same}"


def two_at_once(session: Session) -> str:
    """Two retrainings of one repository start at the same time."""
    project = session.project("two-retrainings", state="before")
    outputs = [run.ended(0).output for run in (project.retrain(), project.retrain())]
    waited = sum("holds the lock of this repository" in output for output in outputs)
    expect(waited == 1, f"{waited} of the two runs waited")
    trained = sum(output.count("pretrain@ulmfit | completed") for output in outputs)
    expect(trained == 1, f"pretraining ran {trained} times")
    return f"one waited for the other and repeated nothing; {session.compare(project)}"
