"""The runs of a retraining in MLflow while it runs, one nested run per stage, and its gauges for Prometheus.

A process beside the retraining (`python -m components.pipeline.telemetry`) reads the measurements of the stages and
writes to MLflow, so that nothing waits for a server; what MLflow has not received some seconds after the end is missing
there. Its standard output is a socket, from which it reads JSON objects, one a line, with the arguments of a method of
`Live` (`begin`, `stage`, `ended`, `attach`, `finish`).
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from components.core.environment import who
from components.core.masking import masked
from components.core.measurements import Point, Points
from components.registry.reading import Reading
from components.settings.params import TelemetrySettings
from components.settings.registry import RegistrySettings

if TYPE_CHECKING:
    from components.registry.tracking import Registry

KILLED = "the process of the retraining ended without a result: it was killed, or the machine stopped"
#: Seconds between two updates, at least, and at most while nothing is measured and no message comes; and between two
#: attempts while MLflow gives no answer.
UPDATE_S, IDLE_S, RETRY_S = 2.0, 30.0, 10.0
#: Largest share of a processor that updates take.
SHARE = 0.05
#: Time in milliseconds after the end of the retraining at which no more attempts are made.
GIVE_UP_MS = 120_000
#: A stage that DVC finds up to date ends within this time, in milliseconds; it has no run.
SKIP_MS = 3000
#: Start times of processes are rounded; difference in seconds at which they belong to two processes.
START_PRECISION_S = 1.0
#: Largest number of characters of the tag that says what has changed since the run before.
CHANGED = 1000
#: Outcome of a stage -> status of its run.
STATUS = {"Failed": "FAILED", "Interrupted": "KILLED"}


JOB = "headstart"
STATUSES = ("FINISHED", "FAILED", "KILLED")
#: Seconds for a request to the Pushgateway.
PUSH_S = 3.0
#: Name without the prefix `headstart_` -> help, and labels besides `params`.
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "retrain_running": ("1 while a retraining runs.", ()),
    "retrain_last_start_timestamp_seconds": ("Start of the last retraining.", ()),
    "retrain_last_end_timestamp_seconds": ("End of the last retraining.", ()),
    "retrain_last_success_timestamp_seconds": ("End of the last retraining without an error.", ()),
    "retrain_last_duration_seconds": ("Duration of the last retraining.", ()),
    "retrain_last_status": ("1 for the status of the last retraining.", ("status",)),
    "stage_running": ("1 while a stage runs.", ("stage",)),
    "stage_duration_seconds": ("Duration of a stage.", ("stage",)),
    "training": (
        "Last value of a measurement: loss, rate, tokens_per_second, gradient_norm, dev score.",
        ("stage", "quantity", "piece"),
    ),
    "training_step": ("Last step of a training.", ("stage", "piece")),
    "telemetry_timestamp_seconds": ("Time of the last update of these gauges.", ()),
}
#: Gauges that keep the value of the last retraining until they are set.
KEPT = {f"headstart_{name}": name for name in GAUGES if name.startswith("retrain_last_") and "_start_" not in name}


def now_ms() -> int:
    return int(1000 * time.time())


@dataclass
class Stage:
    """A stage of the retraining, its reasons and measurements.

    Attributes:
        unsent: measurements that MLflow has not received.
        start: in milliseconds since the epoch, as `time`, the end.
        outcome: Completed, Cached, Skipped, Failed or Interrupted; empty while it runs. It is set last.
        ended: the outcome when its measurements were read the last time.
        closed: whether MLflow has received everything.
    """

    name: str
    reasons: Sequence[str]
    points: Points
    start: int = field(default_factory=now_ms)
    unsent: list[Point] = field(default_factory=list)
    time: int = 0
    error: str = ""
    output: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcome: str = ""
    ended: str = ""
    run: str = ""
    closed: bool = False


class Gauges:
    """The gauges of one settings file. Between two retrainings no process runs, so the time of the last success is read
    back from the file."""

    def __init__(self, root: Path, params: str, settings: TelemetrySettings) -> None:
        self.registry = CollectorRegistry()
        self._params, self._settings = params, settings
        self.file: Path | None = None
        if settings.textfiles is not None:
            self.file = root / settings.textfiles / f"{params.removesuffix('.yaml').replace('/', '-')}.prom"
        self._gauges = {
            name: Gauge(f"headstart_{name}", text, ["params", *labels], registry=self.registry)
            for name, (text, labels) in GAUGES.items()
        }
        self._restore()

    def set(self, name: str, value: float, *labels: str) -> None:
        self._gauges[name].labels(self._params, *labels).set(value)

    def begin(self, time: float) -> None:
        """A retraining has started, at a time in seconds since the epoch."""
        self.set("retrain_running", 1)
        self.set("retrain_last_start_timestamp_seconds", time)

    def measure(self, stage: str, points: Iterable[Point]) -> None:
        for point in points:
            quantity, _, piece = point.key.partition("/")
            self.set("training", point.value, stage, quantity, piece)
            self.set("training_step", point.step, stage, piece)

    def end(self, status: str, *, begun: float, time: float) -> None:
        self.set("retrain_running", 0)
        self.set("retrain_last_start_timestamp_seconds", begun)
        self.set("retrain_last_end_timestamp_seconds", time)
        self.set("retrain_last_duration_seconds", time - begun)
        for each in STATUSES:
            self.set("retrain_last_status", each == status, each)
        if status == "FINISHED":
            self.set("retrain_last_success_timestamp_seconds", time)

    def publish(self) -> None:
        """Write the file and push. What fails is written the next time."""
        self._gauges["telemetry_timestamp_seconds"].labels(self._params).set_to_current_time()
        if self.file is not None:
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_to_textfile(str(self.file), self.registry)
        if (gateway := self._settings.gateway) is not None:
            with suppress(OSError, ValueError, HTTPException):
                key = {"params": self._params}
                push_to_gateway(gateway, job=JOB, grouping_key=key, registry=self.registry, timeout=PUSH_S)

    def _restore(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            text = self.file.read_text(encoding="utf-8") if self.file is not None else ""
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in KEPT:
                        self._gauges[KEPT[sample.name]].labels(**sample.labels).set(sample.value)


class Live:
    """Shows a retraining in MLflow and as gauges, from its first stage to its end.

    Args:
        process: of the retraining (`process_of`).
        tags: of its run, with `params`, the settings file, which is also the label of the gauges.
        texts: name -> content of files of the run.
    """

    def __init__(
        self,
        root: Path,
        identifier: str,
        name: str,
        *,
        process: str,
        tags: Mapping[str, str],
        registry: RegistrySettings,
        telemetry: TelemetrySettings,
        texts: Mapping[str, str],
    ) -> None:
        self.id, self.name, self.tags = identifier, name, dict(tags)
        self.stages: dict[str, Stage] = {}
        self.problem = ""
        self._root, self._settings, self._begun, self._run = root, registry, now_ms(), ""
        self._process = process
        self._gauges = Gauges(root, tags["params"], telemetry)
        self._files: list[Callable[[Any], None]] = [partial(self._log_text, *item) for item in texts.items()]
        self._end: dict[str, Any] | None = None
        self._closed = not telemetry.mlflow
        self._connection: Registry | None = None
        self._machine: Any = None
        self._news, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="telemetry", daemon=True)
        self._thread.start()

    def _log_text(self, file: str, text: str, client: Any) -> None:
        client.log_text(self._run, text, file)

    def begin_stage(self, name: str, *, reasons: Sequence[str], file: Path, history: int = 0) -> Stage:
        """Record the start of a stage; `file`: of its measurements, whose first `history` bytes are of earlier
        attempts."""
        stage = Stage(name, list(reasons), Points(file, history=history))
        self.stages[name] = stage
        self._news.set()
        return stage

    def end_stage(self, name: str, **facts: Any) -> None:
        """Record the end of a stage; `facts`: fields of `Stage`, the outcome as the last one."""
        for field_name, value in facts.items():
            setattr(self.stages[name], field_name, value)
        self._news.set()

    def attach(self, path: Path, *, folder: str | None = None) -> None:
        """Attach a file to the run of the retraining."""
        self._files.append(lambda client: client.log_artifact(self._run, str(path), folder))
        self._news.set()

    def finish(self, status: str, *, reason: str, summary: Sequence[str], wait_s: float) -> bool:
        """Record the end; whether MLflow has received everything within `wait_s` seconds."""
        self._end = {"status": status, "reason": reason, "summary": summary, "time": now_ms()}
        self._news.set()
        self._ended.set()
        self._thread.join(wait_s)
        return self._closed

    def _watch(self) -> None:
        self._gauges.begin(self._begun / 1000)
        due, least, pause = 0.0, UPDATE_S, UPDATE_S
        while True:
            self._ended.wait(least)
            told = self._news.wait(pause - least)
            self._news.clear()
            end, began = self._end, time.thread_time()
            measured = self._measure()
            if not self._closed and (end is not None or time.monotonic() >= due):
                try:
                    self._send(end)
                    self.problem = ""
                except Exception as error:  # whatever it is, the retraining goes on, and the rest is sent later
                    self.problem = str(error)
                    due = time.monotonic() + RETRY_S
            if end is not None and (self._closed or now_ms() > end["time"] + GIVE_UP_MS):
                return
            least = min(max(UPDATE_S, (time.thread_time() - began) / SHARE), IDLE_S)
            pause = least if told or measured else min(max(least, 2 * pause), IDLE_S)
            if end is not None:
                time.sleep(UPDATE_S)

    def _measure(self) -> bool:
        """Read the new measurements and update the gauges; whether there are any."""
        count = 0
        for stage in list(self.stages.values()):
            if not stage.closed:
                stage.ended = stage.outcome
                points = stage.points.read(ended=stage.ended == "Completed")
                count += len(points)
                stage.unsent += points
                self._gauges.measure(stage.name, points)
                self._gauges.set("stage_running", not stage.ended, stage.name)
                if stage.ended:
                    self._gauges.set("stage_duration_seconds", (stage.time - stage.start) / 1000, stage.name)
                    stage.closed = self._closed
        if self._end is not None:
            self._gauges.end(self._end["status"], begun=self._begun / 1000, time=self._end["time"] / 1000)
        self._gauges.publish()
        return count > 0

    def _send(self, end: Mapping[str, Any] | None) -> None:
        """Send what MLflow has not received; raises its errors."""
        from components.registry.tracking import (  # the import of MLflow takes seconds
            RETRAIN,
            SystemMetricsMonitor,
            connect,
        )

        if self._connection is None:
            registry = connect(self._settings, self._root)
            close_killed(registry)
            self._connection = registry
        client = self._connection.client
        if not self._run:
            self._run = self._create(self.name, stage=RETRAIN, start=self._begun, process=self._process)
            self._machine = SystemMetricsMonitor(self._run, tracking_uri=self._connection.uri)
            self._machine.start()
        for stage in list(self.stages.values()):
            if not stage.closed:
                self._send_stage(stage)
        while self._files:
            self._files[0](client)
            del self._files[0]
        if end is not None:
            self._machine.finish()
            note = _note(end, self.stages.values(), self.tags)
            reasons = dict.fromkeys(reason for stage in self.stages.values() for reason in stage.reasons)
            tags = {"reason": end["reason"], "changed": "; ".join(reasons)[:CHANGED]}
            close(self._connection, self._run, end["status"], end["time"], tags, note)
            with suppress(Exception):  # commands ask MLflow then
                Reading(self._settings, self._root, registry=self._connection).renew()
            self._closed = True

    def _send_stage(self, stage: Stage) -> None:
        assert self._connection is not None
        client, outcome = self._connection.client, stage.ended
        if outcome == "Skipped" and not stage.run:
            stage.closed = True
        if not stage.run:
            if stage.closed or (not outcome and now_ms() - stage.start < SKIP_MS):
                return
            # What comes first, because the page cuts long names off.
            name = f"{stage.name.replace('@', ' ')} {datetime.fromtimestamp(stage.start / 1000):%Y-%m-%d %H:%M:%S}"
            stage.run = self._create(name, stage=stage.name, start=stage.start, why="; ".join(stage.reasons))
        if outcome == "Skipped":
            client.delete_run(stage.run)
            stage.closed = True
            return
        points = list(stage.unsent)
        if outcome:
            points += [Point(key, value, stage.time, 0) for key, value in stage.metrics.items()]
        self._connection.log_points(stage.run, points)
        stage.unsent.clear()
        if outcome:
            tags = {"outcome": outcome, "error": stage.error, "dvc_output": stage.output}
            status = STATUS.get(outcome, "FINISHED")
            close(self._connection, stage.run, status, stage.time, tags, _stage_note(stage))
            stage.closed = True

    def _create(self, name: str, *, stage: str, start: int, **tags: str) -> str:
        from components.registry.tracking import PARENT

        assert self._connection is not None
        page = {"mlflow.user": self.tags.get("user", ""), "mlflow.source.name": "headstart retrain", PARENT: self._run}
        run = self._connection.client.create_run(
            self._connection.experiment_id(),
            start_time=start,
            run_name=name,
            tags=_filled(self._connection.tags({**self.tags, **tags, "run": self.id, "stage": stage}, page)),
        )
        return str(run.info.run_id)


def close(registry: Registry, run: str, status: str, end: int, tags: Mapping[str, str], note: str) -> None:
    """End a run of MLflow with tags and a description in Markdown."""
    for key, value in _filled(registry.tags(tags, {"mlflow.note.content": note})).items():
        registry.client.set_tag(run, key, value)
    registry.client.set_terminated(run, status=status, end_time=end)


def process_of(pid: int) -> str:
    """A process of this machine, as text: user and host, id and start."""
    return f"{who()} {pid} {psutil.Process(pid).create_time()}"


def is_killed(process: str) -> bool:
    """Whether a process (`process_of`) of this user and machine has ended; False for others."""
    account, _, rest = process.partition(" ")
    if account != who():
        return False
    pid, created = rest.split()
    try:
        running = psutil.Process(int(pid))
        alive = running.is_running() and running.status() != psutil.STATUS_ZOMBIE
        return not alive or abs(running.create_time() - float(created)) > START_PRECISION_S
    except psutil.NoSuchProcess:
        return True


def close_killed(registry: Registry) -> None:
    """End the runs of retrainings on this machine whose process was killed."""
    from components.registry.tracking import PARENT, PREFIX

    running = registry.search_runs("attributes.status = 'RUNNING'")
    killed = {run.info.run_id for run in running if is_killed(run.data.tags.get(f"{PREFIX}process", ""))}
    for run in running:
        if killed & {run.info.run_id, run.data.tags.get(PARENT)}:
            tags = {"outcome": "Interrupted", "error": KILLED, "reason": KILLED}
            close(registry, run.info.run_id, "KILLED", now_ms(), tags, f"**Killed:** {KILLED}")


def _filled(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if value}


def _stage_note(stage: Stage) -> str:
    lines = [f"**{stage.outcome}:** {stage.error}"] if stage.error else []
    if stage.reasons:
        lines.append("Ran because: " + "; ".join(stage.reasons[:5]) + ".")
    if stage.outcome == "Cached":
        lines.append("DVC restored the output of an earlier run with the same inputs.")
    return "\n\n".join(lines)


def _note(end: Mapping[str, Any], stages: Iterable[Stage], tags: Mapping[str, str]) -> str:
    lines = [f"**{end['status'].capitalize()}:** {end['reason']}"] if end["reason"] else []
    lines += [f"- {line}" for line in end["summary"]]
    outcomes: dict[str, list[str]] = {}
    for stage in stages:
        outcomes.setdefault(stage.outcome, []).append(stage.name)
    lines += [f"\n{outcome}: {', '.join(names)}" for outcome, names in outcomes.items()]
    if link := tags.get("prefect_url"):
        lines.append(f"\nPrefect: [{tags.get('prefect_run', '')}]({link})")
    return "\n".join(lines).strip()


def expected_of(tags: Mapping[str, str]) -> dict[str, float | None]:
    """Stages that were going to run at the start of a retraining -> seconds by earlier runs, from the tags of its
    run."""
    from components.registry.tracking import PREFIX

    try:
        return dict(json.loads(tags.get(f"{PREFIX}expected", "{}")))
    except ValueError:  # cut off
        return {}


def main() -> None:
    """Show the retraining that the standard output is connected with, until it ends; then print what MLflow has not
    received, and why."""
    connection = socket.socket(fileno=os.dup(1))
    # Messages of libraries.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    messages = _messages(connection)
    (begin,) = next(messages).values()
    root = Path(begin.pop("root"))
    registry = RegistrySettings.model_validate(begin.pop("registry"))
    telemetry = TelemetrySettings.model_validate(begin.pop("telemetry"))
    live = Live(root, begin.pop("identifier"), begin.pop("name"), registry=registry, telemetry=telemetry, **begin)
    for message in messages:
        ((what, values),) = message.items()
        if what == "stage":
            live.begin_stage(values.pop("name"), file=Path(values.pop("file")), **values)
        elif what == "ended":
            # The thread reads the rest after the outcome.
            facts = {name: values[name] for name in ("time", "error", "metrics", "output", "outcome")}
            live.end_stage(values["name"], **facts)
        elif what == "attach":
            live.attach(Path(values["path"]), folder=values["folder"])
        else:
            break
    else:
        what, values = "finish", {"status": "KILLED", "reason": KILLED, "summary": [], "wait_s": GIVE_UP_MS / 1000}
    complete = live.finish(**values)
    print(json.dumps({"problem": "" if complete else masked(live.problem) or "it does not answer"}), flush=True)


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    for line in connection.makefile("r", encoding="utf-8"):
        if not line.endswith("\n"):
            return  # the retraining was killed while it wrote
        yield json.loads(line)


if __name__ == "__main__":
    main()
