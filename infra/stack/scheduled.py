"""`infra/local-stack scheduled`: scheduled runs that take new code and data by themselves, and a server that follows.

1. A colleague's clone commits the settings and data with few labels. The first scheduled run takes them.
2. Its model becomes the champion, by hand if the labels are too few for the rule, and the prediction server starts.
3. The colleague commits data with ten times the labels, and nothing else is done. The next scheduled run takes them
   and promotes the new model if it is significantly better; the server has to follow without a failed request.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infra.stack import processes, stack
from infra.stack.origin import Colleague
from infra.stack.params import merged
from infra.stack.processes import StackError

TASK = "aws-type"
MODEL = f"headstart-{TASK}"
#: Labels per class of the first and of the second version of the data.
LABELS = (20, 200)
#: In addition to local-stack-params.yaml: all labels of the data, one start, to save time.
PARAMS = {"run": {"starts": ["adapted"]}, "data": {"tasks": {TASK: {"budgets": ["all"]}}}}
#: A run is due every two minutes; it may push its commits.
VALUES = {"HEADSTART_CRON": "*/2 * * * *", "HEADSTART_PUSH": "true"}
#: Time limits in seconds: of a scheduled run, and for the server to follow.
RUN_S = 3600.0
FOLLOW_S = 30.0
REQUEST = {"inputs": {"text": ["The name of the bucket.", "Specifies whether versioning is enabled."]}}


def prepare(running: stack.Stack, params: Path | None) -> None:
    """Commit the settings and the first version of the data to the origin, and push the data to the bucket."""
    keys = yaml.safe_load(params.read_text(encoding="utf-8")) if params is not None else {}
    over = running.layout.folder / "params.yaml"
    over.write_text(yaml.safe_dump(merged(keys, PARAMS)), encoding="utf-8")
    colleague = Colleague(running)
    colleague.commit_params(over)
    write_data(source(running), colleague.path / "data", labels=LABELS[0])
    colleague.commit_data(f"Data: {LABELS[0]} labels per class")
    running.say(f"origin      {running.layout.origin}, data with {LABELS[0]} labels per class")


def source(running: stack.Stack) -> Path:
    """The folder of the built-in data: that of this checkout, or a new one."""
    if (stack.ROOT / "data").is_dir():
        return stack.ROOT / "data"
    folder = running.layout.folder / "data"
    if not folder.is_dir():
        processes.run(
            "data",
            [sys.executable, "-m", "components.cli", "data", "--directory", str(folder)],
            environment=running.environment() | {"PYTHONPATH": str(stack.ROOT)},
            log=running.layout.log("data"),
            folder=stack.ROOT,
        )
    return folder


def write_data(source: Path, target: Path, *, labels: int) -> None:
    """Copy the corpora and the task of a data folder, with at most `labels` rows per class for training."""
    shutil.rmtree(target, ignore_errors=True)
    for name in ("general", "domain", f"tasks/{TASK}"):
        shutil.copytree(source / name, target / name)
    train = target / "tasks" / TASK / "train.jsonl"
    seen: Counter[str] = Counter()
    kept = []
    for line in train.read_text(encoding="utf-8").splitlines(keepends=True):
        label = json.loads(line)["label"]
        seen[label] += 1
        if seen[label] <= labels:
            kept.append(line)
    train.unlink()  # it may be a link into a cache
    train.write_text("".join(kept), encoding="utf-8")


@dataclass
class Clients:
    """Asks the server for predictions until `stop`.

    Attributes:
        versions: version -> number of answers by it.
        first: version -> time of its first answer (monotonic).
        failures: what went wrong, one entry per request.
        seconds: duration of each answered request.
    """

    address: str
    token: str
    versions: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the request in progress."""
        self._stopped.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stopped.wait(0.1):
            began = time.monotonic()
            try:
                answer = request(f"{self.address}/invocations", REQUEST, header=f"Bearer {self.token}")
                version = str(answer["model"]["version"])
                if len(answer["predictions"]) != len(REQUEST["inputs"]["text"]):
                    raise StackError(f"{answer}")
            except (OSError, ValueError, KeyError, StackError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                continue
            self.seconds.append(time.monotonic() - began)
            self.versions[version] += 1
            self.first.setdefault(version, time.monotonic())


def run(running: stack.Stack) -> list[str]:
    """The two scheduled runs; returns the results in words.

    Raises:
        StackError: a run failed or took too long, the champion did not move, or the server did not follow.
    """
    say = running.say
    colleague = Colleague(running)
    relay = processes.Relay(running.layout.log("prefect-worker"))
    say("\nwaiting for the first scheduled run")
    before = colleague.head()
    wait(running, lambda: colleague.head() != before, "the first scheduled run", relay)
    first = champion(running)
    if first is None:
        reason = "first model; the labels are too few for the rule"
        words = ["headstart", "promote", "--task", TASK, "--version", "1", "--reason", reason]
        say(f"\n$ {' '.join(words)}")
        subprocess.run(words, env=running.client_environment(), cwd=running.layout.workspace, check=True, timeout=3600)
        first = champion(running)
    server = running.start("serve", folder=stack.ROOT)
    address = f"http://127.0.0.1:{running.ports['serve']}"
    running.wait(server, lambda: stack.answers(f"{address}/readyz"))
    clients = Clients(address, running.values["HEADSTART_TOKEN"])
    say(f"\nversion {first} is served; the colleague commits data with {LABELS[1]} labels per class")
    write_data(source(running), colleague.path / "data", labels=LABELS[1])
    commit = colleague.commit_data(f"Data: {LABELS[1]} labels per class")
    wait(running, lambda: champion(running) != first, "the scheduled run that moves the champion", relay)
    moved, second = time.monotonic(), champion(running)
    wait(running, lambda: str(second) in clients.first, "the server", relay, limit_s=FOLLOW_S + 60)
    wait(running, lambda: colleague.head() not in (commit, ""), "the end of the scheduled run", relay)
    clients.stop()
    after = clients.first[str(second)] - moved
    results = [
        f"{TASK}: the champion moved from version {first} to version {second}",
        f"the server answered with version {second} {max(after, 0.0):.1f} s after the move",
        f"{sum(clients.versions.values())} requests answered ({dict(sorted(clients.versions.items()))}), "
        f"{len(clients.failures)} failed; longest {max(clients.seconds):.2f} s",
        *(f"git log     {line}" for line in colleague.log()),
    ]
    if clients.failures or after > FOLLOW_S:
        raise StackError("\n".join([*results, *clients.failures[:5]]))
    return results


def wait(
    running: stack.Stack, ready: Callable[[], bool], what: str, relay: processes.Relay, *, limit_s: float = RUN_S
) -> None:
    """Wait, printing the worker's output.

    Raises:
        StackError: a run failed, or it takes too long.
    """
    deadline = time.monotonic() + limit_s
    while not ready():
        relay.print()
        if time.monotonic() > deadline:
            raise StackError(f"{what}: not within {limit_s:g} s; see {running.layout.logs}")
        if failed := failures(running):
            raise StackError(f"{what}: run {failed[0]['name']} {failed[0]['state_name']}; see {running.layout.logs}")
        time.sleep(1)
    relay.print()


def failures(running: stack.Stack) -> list[dict[str, Any]]:
    """The flow runs that failed."""
    variables = running.client_environment()
    asked = {"flow_runs": {"state": {"type": {"any_": ["FAILED", "CRASHED"]}}}, "limit": 1}
    found: list[dict[str, Any]] = request(
        f"{variables['PREFECT_API_URL']}/flow_runs/filter", asked, header=basic(variables["PREFECT_API_AUTH_STRING"])
    )
    return found


def champion(running: stack.Stack) -> str | None:
    """The version with the alias `champion` in MLflow."""
    variables = running.client_environment()
    user = f"{variables['MLFLOW_TRACKING_USERNAME']}:{variables['MLFLOW_TRACKING_PASSWORD']}"
    address = f"{variables['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/registered-models/alias?name={MODEL}&alias=champion"
    try:
        return str(request(address, header=basic(user))["model_version"]["version"])
    except urllib.error.HTTPError as error:
        if error.code in (400, 404):
            return None
        raise


def basic(user: str) -> str:
    """The header of basic authentication for `user:password`."""
    return f"Basic {b64encode(user.encode()).decode()}"


def request(address: str, body: Any = None, *, header: str) -> Any:
    """The JSON answer to a GET, or to a POST of `body`."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": header, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=30) as answer:
        return json.load(answer)
