"""The runs of a retraining in MLflow while it runs, one nested run per stage, and its gauges for Prometheus.

The retraining and its stages append JSON lines to one file (`components.core.measurements`): `begin`, `stage` and
`finish` with the arguments of `Live` and its methods, and the measurements of stages. A process beside the retraining
(`python -m components.pipeline.telemetry FILE`) reads them, writes them to MLflow, so that nothing waits for a server,
and shows the last ones as gauges. What MLflow has not received some seconds after the end is missing there; the last
line of the file says why.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from components.core.environment import who
from components.core.liveness import was_running
from components.core.masking import masked, masked_values
from components.core.measurements import Lines, Point, append, points_of
from components.registry.reading import Reading
from components.settings.loading import load_params
from components.settings.params import TelemetrySettings
from components.settings.registry import RegistrySettings

if TYPE_CHECKING:
    from components.registry.tracking import Registry

KILLED = "the process of the retraining ended without a result: it was killed, or the machine stopped"
#: Seconds between two looks into the file, between two updates, at least, and at most if there are no new lines; and
#: between two attempts while MLflow gives no answer.
POLL_S, UPDATE_S, IDLE_S, RETRY_S = 0.2, 2.0, 30.0, 10.0
#: Largest share of a processor that updates take.
SHARE = 0.05
#: Seconds after which no more attempts are made, if the retraining was killed.
GIVE_UP_S = 120.0
#: A stage that DVC finds up to date ends within this time, in milliseconds; it has no run.
SKIP_MS = 3000
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


def now_ms() -> int:
    return int(1000 * time.time())


@dataclass
class Stage:
    """A stage of the retraining, its reasons and measurements.

    Attributes:
        start: in milliseconds since the epoch, as `time`, the end.
        unsent: measurements that MLflow has not received.
        outcome: Completed, Cached, Skipped, Failed or Interrupted; empty while it runs.
        closed: whether MLflow has received everything.
    """

    name: str
    reasons: Sequence[str] = ()
    start: int = field(default_factory=now_ms)
    unsent: list[Point] = field(default_factory=list)
    time: int = 0
    error: str = ""
    output: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcome: str = ""
    run: str = ""
    closed: bool = False


class Gauges:
    """The gauges of one settings file, in the repository that is the working directory. Between two retrainings no
    process runs, so what is said of the last one is read back from the file."""

    def __init__(self, params: str, settings: TelemetrySettings) -> None:
        self._params, self._gateway, self._registry = params, settings.gateway, CollectorRegistry()
        self._gauges = {
            name: Gauge(f"headstart_{name}", text, ["params", *labels], registry=self._registry)
            for name, (text, labels) in GAUGES.items()
        }
        self.file: Path | None = None
        if settings.textfiles is not None:
            self.file = Path(settings.textfiles) / f"{params.removesuffix('.yaml').replace('/', '-')}.prom"
            with suppress(OSError, ValueError):
                for family in text_string_to_metric_families(self.file.read_text(encoding="utf-8")):
                    name = family.name.removeprefix("headstart_")
                    for sample in family.samples if name.startswith("retrain_last_") else ():
                        self.set(name, sample.value, *filter(None, [sample.labels.get("status")]))

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge of `GAUGES`, for values of its labels."""
        self._gauges[name].labels(self._params, *labels).set(value)

    def begin(self, time: float) -> None:
        """A retraining has started, at a time in seconds since the epoch."""
        self.set("retrain_running", 1)
        self.set("retrain_last_start_timestamp_seconds", time)

    def end(self, status: str, *, begun: float, time: float) -> None:
        self.begin(begun)
        for each in STATUSES:
            self.set("retrain_last_status", each == status, each)
        times = {"end_timestamp": time, "duration": time - begun}
        times |= {"success_timestamp": time} if status == "FINISHED" else {}
        for name, value in times.items():
            self.set(f"retrain_last_{name}_seconds", value)
        self.set("retrain_running", 0)

    def publish(self) -> None:
        """Write the file and push. What fails is written the next time."""
        self.set("telemetry_timestamp_seconds", time.time())
        if self.file is not None:
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_to_textfile(str(self.file), self._registry)
        if self._gateway is not None:
            with suppress(OSError, ValueError, HTTPException):
                key = {"params": self._params}
                push_to_gateway(self._gateway, job=JOB, grouping_key=key, registry=self._registry, timeout=PUSH_S)


class Live:
    """Shows a retraining in MLflow and as gauges, from its first stage to its end, whenever `update` is called.

    Args:
        process: of the retraining (`process_of`).
        tags: of its run, with `params`, the settings file, which is also the label of the gauges.
    """

    def __init__(
        self,
        identifier: str,
        name: str,
        *,
        process: str,
        tags: Mapping[str, str],
        registry: RegistrySettings,
        telemetry: TelemetrySettings,
    ) -> None:
        self.id, self.name, self.tags, self.process = identifier, name, dict(tags), process
        self.stages: dict[str, Stage] = {}
        #: Why MLflow has not received everything.
        self.problem = ""
        #: What `finish` was told; None before. MLflow has received everything if it is `closed`.
        self.end: dict[str, Any] | None = None
        self.closed = not telemetry.mlflow
        self._settings = registry
        self._begun, self._run = now_ms(), ""
        self._gauges = Gauges(tags["params"], telemetry)
        self._gauges.begin(self._begun / 1000)
        self._connection: Registry | None = None
        self._machine: Any = None

    def note(self, line: Mapping[str, Any]) -> None:
        """Note a line of the file."""
        if "values" not in line:
            ((what, facts),) = line.items()
            getattr(self, what)(**facts)
        elif (stage := self.stages.get(line["stage"])) is not None:
            for point in points_of(line):
                stage.unsent.append(point)
                quantity, _, piece = point.key.partition("/")
                self._gauges.set("training", point.value, stage.name, quantity, piece)
                self._gauges.set("training_step", point.step, stage.name, piece)

    def stage(self, name: str, **facts: Any) -> Stage:
        """Record the start or the end of a stage; `facts`: fields of `Stage`."""
        stage = self.stages.setdefault(name, Stage(name))
        vars(stage).update(facts)
        self._gauges.set("stage_running", not stage.outcome, name)
        if stage.outcome:
            self._gauges.set("stage_duration_seconds", (stage.time - stage.start) / 1000, name)
        return stage

    def finish(self, status: str, *, wait_s: float, **facts: Any) -> None:
        """Record the end; attempts are made for `wait_s` seconds. `facts`: `reason`, `summary`, and `files`: reports,
        which its run gets."""
        end: dict[str, Any] = {"status": status, "time": now_ms(), "give_up": time.monotonic() + wait_s}
        self.end = {"reason": "", "summary": (), "files": ()} | facts | end
        self._gauges.end(status, begun=self._begun / 1000, time=end["time"] / 1000)

    def update(self) -> None:
        """Publish the gauges, and send MLflow what it has not received."""
        self._gauges.publish()
        if self.closed:
            return
        try:
            self._send()
            self.problem = ""
        except Exception as error:  # whatever it is, the retraining goes on, and the rest is sent later
            self.problem = str(error)

    def _send(self) -> None:
        """Send what MLflow has not received; raises its errors."""
        from components.registry.tracking import RETRAIN, SystemMetricsMonitor, connect  # the import takes seconds

        if self._connection is None:
            registry = connect(self._settings)
            close_killed(registry)
            self._connection = registry
        client = self._connection.client
        if not self._run:
            self._run = self._create(self.name, stage=RETRAIN, start=self._begun, process=self.process)
            with suppress(OSError):
                settings = Path(self.tags["params"])
                client.log_text(self._run, masked_yaml(settings.read_text(encoding="utf-8")), settings.name)
            self._machine = SystemMetricsMonitor(self._run, tracking_uri=self._connection.uri)
            self._machine.start()
        for stage in self.stages.values():
            if not stage.closed:
                self._send_stage(self._connection, stage)
        if (end := self.end) is not None:
            for file in end["files"]:
                client.log_artifact(self._run, file, "report")
            self._machine.finish()
            reasons = dict.fromkeys(reason for stage in self.stages.values() for reason in stage.reasons)
            tags = {"reason": end["reason"], "changed": "; ".join(reasons)[:CHANGED]}
            close(self._connection, self._run, end["status"], end["time"], tags, _note(end, self.tags))
            with suppress(Exception):  # commands ask MLflow then
                Reading(self._settings, self._connection).renew()
            self.closed = True

    def _send_stage(self, registry: Registry, stage: Stage) -> None:
        outcome = stage.outcome
        if not stage.run:
            stage.closed = outcome == "Skipped"
            if stage.closed or (not outcome and now_ms() - stage.start < SKIP_MS):
                return
            # What comes first, because the page cuts long names off.
            name = f"{stage.name.replace('@', ' ')} {datetime.fromtimestamp(stage.start / 1000):%Y-%m-%d %H:%M:%S}"
            stage.run = self._create(name, stage=stage.name, start=stage.start, why="; ".join(stage.reasons))
        points = [*stage.unsent, *(Point(key, value, stage.time, 0) for key, value in stage.metrics.items())]
        registry.log_points(stage.run, points)
        stage.unsent.clear()
        if outcome:
            tags = {"outcome": outcome, "error": stage.error, "dvc_output": stage.output}
            close(registry, stage.run, STATUS.get(outcome, "FINISHED"), stage.time, tags)
            stage.closed = True

    def _create(self, name: str, *, stage: str, start: int, **tags: str) -> str:
        from components.registry.tracking import PARENT

        assert self._connection is not None
        page = {"mlflow.user": self.tags.get("user", ""), "mlflow.source.name": "headstart retrain", PARENT: self._run}
        all_tags = self._connection.tags({**self.tags, **tags, "run": self.id, "stage": stage}, page)
        experiment, filled = self._connection.experiment_id(), _filled(all_tags)
        run = self._connection.client.create_run(experiment, start_time=start, run_name=name, tags=filled)
        return str(run.info.run_id)


def close(registry: Registry, run: str, status: str, end: int, tags: Mapping[str, str], note: str = "") -> None:
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
    return not was_running(int(pid), float(created))


def close_killed(registry: Registry) -> None:
    """End the runs of retrainings on this machine whose process was killed."""
    from components.registry.tracking import PARENT, PREFIX

    running = registry.search_runs("attributes.status = 'RUNNING'")
    killed = {run.info.run_id for run in running if is_killed(run.data.tags.get(f"{PREFIX}process", ""))}
    for run in running:
        if killed & {run.info.run_id, run.data.tags.get(PARENT)}:
            tags = {"outcome": "Interrupted", "error": KILLED, "reason": KILLED}
            close(registry, run.info.run_id, "KILLED", now_ms(), tags)


def _filled(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if value}


def _note(end: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    lines = [f"**{end['status'].capitalize()}:** {end['reason']}"] if end["reason"] else []
    lines += [f"- {line}" for line in end["summary"]]
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


def masked_yaml(text: str) -> str:
    """A settings file without passwords and tokens; one that holds any loses its comments."""
    content = yaml.safe_load(text)
    without = masked_values(content)
    return masked(text) if without == content else yaml.safe_dump(without, sort_keys=False, allow_unicode=True)


def follow(live: Live, lines: Lines) -> None:
    """Update what is shown until the retraining has ended and MLflow has received everything, or gives no answer."""
    due, news = 0.0, True
    while True:
        for line in lines.read() if live.end is None else ():
            live.note(line)
            news = True
        if live.end is None and is_killed(live.process):
            live.finish("KILLED", reason=KILLED, wait_s=GIVE_UP_S)
        now = time.monotonic()
        if live.end is not None or (now >= due and (news or now >= due + IDLE_S)):
            began = time.thread_time()
            live.update()
            if live.end is not None and (live.closed or time.monotonic() > live.end["give_up"]):
                return
            due = now + (RETRY_S if live.problem else max(UPDATE_S, (time.thread_time() - began) / SHARE))
            news = bool(live.problem)
        time.sleep(POLL_S if live.end is None else UPDATE_S)


def main() -> None:
    """Show a retraining of the repository in the working directory."""
    lines = Lines(Path(sys.argv[1]))
    begin = next(lines.read())["begin"]
    params = load_params(Path(begin["tags"]["params"]))
    live = Live(**begin, registry=params.registry, telemetry=params.telemetry)
    follow(live, lines)
    append(lines.path, problem="" if live.closed else masked(live.problem) or "it does not answer")


if __name__ == "__main__":
    main()
