"""What a retraining tells MLflow and Prometheus (`components.pipeline.telemetry`) while it runs."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.cli.common import PARAMS
from components.core.artifacts import flatten, private_folder, read_json
from components.core.commits import commit_of
from components.core.data_version import read_yaml
from components.core.environment import who
from components.core.errors import ArtifactError
from components.core.masking import masked_json
from components.core.measurements import RUN_ID, Lines, append
from components.pipeline.identity import STAGE as IDENTITY
from flows import flow_run, processes
from flows.plan import Stage
from flows.repository import Project, environment, recorded_outputs
from flows.server import page
from flows.terminal import StageError, terminal

#: Folder of the file with the events and measurements of a run, relative to the repository.
FOLDER = Path(".headstart") / "telemetry"
#: Seconds that the flow waits for MLflow: at its end, and if it is told to end.
WAIT_S = 30.0
KILLED_WAIT_S = 3.0
#: Seconds after these in which the process of the telemetry says what MLflow has not received.
ANSWER_S = 2.0
POLL_S = 0.05


def name_of(what: str, params: Path) -> str:
    """Name of a run: when and what."""
    # Relative to the repository: empty for its own settings file.
    folder = Path(os.path.relpath(params)).parent
    return " ".join([time.strftime("%Y-%m-%d %H:%M:%S"), what, *([str(folder)] if folder != Path() else [])])


def run_name() -> str:
    """Name of a flow run, and of its MLflow run."""
    from prefect import runtime

    return name_of(runtime.flow_run.flow_name or "", Path(runtime.flow_run.parameters.get("params", PARAMS)))


def announce() -> str:
    """Set the id of this run for its stages, the same as of its Prefect flow run if there is one; returns it."""
    identifier = flow_run.identifier() or f"{time.time_ns():x}"
    os.environ[RUN_ID] = identifier
    return identifier


@contextmanager
def monitored(project: Project) -> Iterator[Monitor]:
    """A monitor of the retraining. It is started with the first stage that runs, or by an error before it: a retraining
    in which everything is up to date has no run in MLflow. The caller calls `finish` if there is no error."""
    monitor = Monitor(project)
    try:
        yield monitor
    except BaseException as error:
        if isinstance(error, Exception):
            monitor.start()
        monitor.finish("FAILED" if isinstance(error, Exception) else "KILLED", reason=_reason(error))
        raise


class Monitor:
    """Records the stages of a retraining, the summary, and the end, in the repository that is the working directory."""

    def __init__(self, project: Project) -> None:
        self.id = announce()
        self.name = flow_run.name() or name_of("retrain", project.file)
        self._settings, self._params = project.settings.telemetry, project.name
        #: The stages that are going to run -> expected seconds, set before the first one begins.
        self.expected: dict[str, float | None] = {}
        self._begun = time.time()
        self._finished = False
        self._file = project.root / FOLDER / f"{self.id}.jsonl"
        self._process: processes.Process | None = None
        self._starting = threading.Lock()  # stages may begin in several threads

    def run(self, stage: Stage, run: Callable[[Stage], str]) -> str:
        """Run a stage, which may be up to date, and record it; returns its outcome.

        Raises:
            StageError: raised by the stage.
        """
        if stage.group == IDENTITY or not self._settings.is_on:
            return run(stage)
        self.start()
        self._tell(stage={"name": stage.name, "reasons": stage.reasons, "start": int(1000 * time.time())})
        measurements = json.dumps({"path": str(self._file), "stage": stage.name})
        error, how = "", "Failed"
        try:
            how = run(replace(stage, measurements=measurements))
            return how
        except StageError as failed:
            error = str(failed)
            raise
        except BaseException as interrupted:
            error, how = _reason(interrupted), "Interrupted"
            raise
        finally:
            ended: dict[str, Any] = {"name": stage.name, "outcome": how, "time": int(1000 * time.time())}
            if how in ("Completed", "Cached"):
                ended |= {"metrics": self._metrics(stage), "output": self._output(stage)}
            self._tell(stage=ended | {"error": error})

    def start(self) -> None:
        """Start what shows the retraining, unless it runs; also of one that fails before its first stage."""
        from components.pipeline.telemetry import process_of

        with self._starting:
            if self._process is not None or self._finished or not self._settings.is_on:
                return
            for file in private_folder(self._file.parent).glob("*.jsonl"):
                file.unlink(missing_ok=True)  # of a retraining that has failed
            tags = self._tags() | {"expected": json.dumps(self.expected)}
            begin = {"identifier": self.id, "name": self.name, "process": process_of(os.getpid()), "tags": tags}
            self._tell(begin=begin)
            self._process = processes.beside(
                *("components.pipeline.telemetry", str(self._file)),
                directory=(root := Path.cwd()),
                environment=environment(root),
            )

    def finish(self, status: str, **facts: Any) -> None:
        """Record the end and wait until MLflow has received everything, or gives no answer. `facts`: as of
        `components.pipeline.telemetry.Live.finish`, which its run shows."""
        if self._finished:
            return
        self._finished = True
        if self._process is None:  # everything was up to date, or nothing has started
            from components.pipeline.telemetry import Gauges

            gauges = Gauges(self._params, self._settings)
            gauges.end(status, begun=self._begun, time=time.time())
            gauges.publish()
            return
        wait_s = WAIT_S if status != "KILLED" else KILLED_WAIT_S
        self._tell(finish={"status": status, "wait_s": wait_s} | facts)
        deadline = time.monotonic() + wait_s + ANSWER_S
        while processes.code_of(self._process) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._process.kill()
        last: dict[str, Any] = next(reversed([*Lines(self._file).read()]), {})
        if problem := last.get("problem", "it does not answer"):
            terminal.say(f"MLflow has not received all runs of this retraining: {problem}")
        if status == "FINISHED":
            self._file.unlink(missing_ok=True)

    def _tell(self, **event: Any) -> None:
        append(self._file, **masked_json(event))

    def _tags(self) -> dict[str, str]:
        user, _, host = who().rpartition("@")
        tags = {"params": self._params, "host": host, "user": user}
        if flow_run.identifier():
            tags |= {"prefect_run": self.name, "prefect_url": f"{page()}/runs/flow-run/{self.id}"}
        tags["git_commit"] = (commit_of(Path()) or "").partition("-dirty")[0]
        with suppress(ArtifactError, KeyError, IndexError, TypeError):
            tags["data"] = (read_yaml(Path("data.dvc")) or {})["outs"][0]["md5"]
        return tags

    def _metrics(self, stage: Stage) -> dict[str, float]:
        """The metrics of a completed stage. Metrics of `finetune` are means over seeds."""
        prefix = "mean_over_seeds." if stage.group in _MEANS else ""
        metrics: dict[str, float] = {}
        for path in stage.metrics:
            with suppress(ArtifactError):
                leaves = flatten(read_json(Path(path), made_by=stage.name, missing_ok=True))
                metrics |= {f"{prefix}{name}": value for name, value in leaves if isinstance(value, int | float)}
        return metrics

    def _output(self, stage: Stage) -> str:
        """DVC's digest of the directory that a stage has written; the stage `register` finds its run by it."""
        pipeline, _, name = stage.address.rpartition(":")
        outs = recorded_outputs(Path(pipeline).with_name("dvc.lock")).get(name, [])
        return next((str(out["md5"]) for out in outs if str(out.get("md5", "")).endswith(".dir")), "")


#: Stages whose metrics are means over the seeds of a system.
_MEANS = ("finetune", "together")


def _reason(error: BaseException) -> str:
    """Why a retraining ends: the message of the error, or the signal."""
    if isinstance(error, KeyboardInterrupt):
        return "ended by Ctrl-C"
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128:
        return f"ended by {signal.Signals(error.code - 128).name}"
    return str(error) or type(error).__name__
