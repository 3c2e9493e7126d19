"""Send the spool of a retraining to MLflow: one run for the retraining, one nested run per stage that runs.

What MLflow has received is recorded after every request, so that a monitor that is ended, or that of a later run,
continues there: no run and no step occurs twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from components.artifacts import write_atomic
from components.telemetry.curves import Point, Position, read_points
from components.telemetry.retraining import Retraining, Stage
from components.telemetry.spool import now_ms
from components.tracking import (
    BATCH_METRICS,
    PARENT,
    PREFIX,
    RETRAIN,
    VALUE_LENGTH,
    Metric,
    Registry,
    RunTag,
    metric_key,
)

STATE = "forwarded.json"
#: A stage that DVC finds up to date ends within this time, in milliseconds; it has no run.
SKIP_MS = 3000
#: Outcome of a stage -> status of its run.
STATUS = {"Failed": "FAILED", "Interrupted": "KILLED"}
#: Tags of a run that MLflow's page reads.
NOTE, USER, SOURCE = "mlflow.note.content", "mlflow.user", "mlflow.source.name"


@dataclass
class Sent:
    """What MLflow has received.

    Attributes:
        runs: stage (empty: the retraining) -> id of its MLflow run.
        ended: stages whose run has ended.
        files: number of files.
        positions: stage -> what of its measurements was sent.
        loaded: whether this was read from a file: an earlier monitor may have created a run and not recorded it.
    """

    runs: dict[str, str] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    files: int = 0
    positions: dict[str, Position] = field(default_factory=dict)
    loaded: bool = False

    @classmethod
    def read(cls, path: Path) -> Sent:
        """The record in a file; empty if there is none."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            positions = {stage: Position(**position) for stage, position in raw["positions"].items()}
            return cls(raw["runs"], raw["ended"], raw["files"], positions, loaded=True)
        except (OSError, ValueError, KeyError, TypeError):
            return cls(loaded=True)


class Forwarder:
    """Sends a retraining to MLflow.

    Args:
        retraining: its spool.
        registry: connection to MLflow.
    """

    def __init__(self, retraining: Retraining, registry: Registry) -> None:
        self.retraining = retraining
        self.registry = registry
        self.client = registry.client
        self.sent = Sent.read(retraining.folder / STATE)
        self._experiment = ""

    @property
    def active(self) -> list[str]:
        """MLflow runs that have not ended: of the retraining, and of the stage that runs."""
        return [run for stage, run in self.sent.runs.items() if stage not in self.sent.ended]

    def send(self) -> None:
        """Send what MLflow has not received.

        Raises:
            Exception: of MLflow or its HTTP client; the rest can be sent later.
        """
        run, end = self.retraining.run, self.retraining.end
        if not run:
            return
        if "" not in self.sent.runs:
            self._create("", name=run["name"], start=run["time"], tags={})
        for stage in self.retraining.stages.values():
            if stage.name not in self.sent.ended:
                self._send_stage(stage)
        for event in self.retraining.files[self.sent.files :]:
            if Path(event["path"]).is_file():
                self.client.log_artifact(self.sent.runs[""], event["path"], event.get("folder"))
            self.sent.files += 1
            self._record()
        if end is not None and "" not in self.sent.ended:
            self._finish(
                "",
                status=end["status"],
                time=end["time"],
                tags={**end.get("tags", {}), "reason": end.get("reason", "")},
                note=_note(run, end, self.retraining.stages.values()),
            )

    @property
    def is_complete(self) -> bool:
        """Whether the retraining has ended and MLflow has received everything."""
        return "" in self.sent.ended

    def _send_stage(self, stage: Stage) -> None:
        end, skipped = stage.end, stage.end is not None and stage.end["outcome"] == "Skipped"
        if stage.name not in self.sent.runs:
            if skipped:
                self.sent.ended.append(stage.name)
                self._record()
                return
            if end is None and now_ms() - stage.start < SKIP_MS:
                return
            # What comes first, because the page cuts long names off.
            title = stage.name.replace("@", " ")
            name = f"{title} {datetime.fromtimestamp(stage.start / 1000):%Y-%m-%d %H:%M:%S}"
            tags = {"stage": stage.name, "why": "; ".join(stage.reasons)}
            self._create(stage.name, name=name, start=stage.start, tags=tags)
        run = self.sent.runs[stage.name]
        if skipped:
            self.client.delete_run(run)
            self.sent.ended.append(stage.name)
            self._record()
            return
        position = self.sent.positions.get(stage.name, Position())
        completed = end is not None and end["outcome"] == "Completed"
        file = self.retraining.folder / stage.file
        points, after = read_points(file, position, history=stage.history, ended=completed)
        self.log(run, points)
        if after != position:
            self.sent.positions[stage.name] = after
            self._record()
        if end is None:
            return
        self.log(run, [Point(key, value, end["time"], 0) for key, value in end.get("metrics", {}).items()])
        tags = {
            "outcome": end["outcome"],
            "attempts": str(stage.attempts),
            "error": end.get("error", ""),
            "dvc_output": end.get("output", ""),
        }
        status = STATUS.get(end["outcome"], "FINISHED")
        self._finish(stage.name, status=status, time=end["time"], tags=tags, note=_stage_note(stage, end))

    def _create(self, stage: str, *, name: str, start: int, tags: Mapping[str, str]) -> None:
        """Create the run of the retraining or of a stage, unless an earlier monitor has."""
        self._experiment = self._experiment or self.registry.experiment_id()
        run = self.retraining.run
        identity = {"run": run["id"], "stage": stage or RETRAIN}
        if self.sent.loaded and (found := self.registry.find_run(**identity)) is not None:
            self.sent.runs[stage] = found
        else:
            own = {PREFIX + key: value for key, value in {**run["tags"], **tags, **identity}.items() if value}
            own |= {USER: run["tags"].get("user", ""), SOURCE: "headstart retrain"}
            if stage:
                own[PARENT] = self.sent.runs[""]
            created = self.client.create_run(
                self._experiment,
                start_time=start,
                run_name=name,
                tags={key: str(value)[:VALUE_LENGTH] for key, value in own.items()},
            )
            self.sent.runs[stage] = created.info.run_id
        self._record()

    def _finish(self, stage: str, *, status: str, time: int, tags: Mapping[str, str], note: str) -> None:
        run = self.sent.runs[stage]
        own = [RunTag(PREFIX + key, str(value)[:VALUE_LENGTH]) for key, value in tags.items() if value]
        if note:
            own.append(RunTag(NOTE, note[:VALUE_LENGTH]))
        if own:
            self.client.log_batch(run, tags=own)
        self.client.set_terminated(run, status=status, end_time=time)
        self.sent.ended.append(stage)
        self._record()

    def log(self, run: str, points: Iterable[Point]) -> None:
        """Log metrics in a run."""
        metrics = [Metric(metric_key(point.key), point.value, point.time, point.step) for point in points]
        for start in range(0, len(metrics), BATCH_METRICS):
            self.client.log_batch(run, metrics=metrics[start : start + BATCH_METRICS])

    def _record(self) -> None:
        content = asdict(self.sent)
        del content["loaded"]
        write_atomic(self.retraining.folder / STATE, json.dumps(content))


def _stage_note(stage: Stage, end: Mapping[str, Any]) -> str:
    """Description of a stage's run in MLflow's page, in Markdown."""
    lines = []
    if end.get("error"):
        lines.append(f"**{end['outcome']}:** {end['error']}")
    if stage.reasons:
        lines.append("Ran because: " + "; ".join(stage.reasons[:5]) + ".")
    if end["outcome"] == "Cached":
        lines.append("DVC restored the output of an earlier run with the same inputs.")
    return "\n\n".join(lines)


def _note(run: Mapping[str, Any], end: Mapping[str, Any], stages: Iterable[Stage]) -> str:
    """Description of the retraining's run in MLflow's page, in Markdown."""
    lines = [f"**{end['status'].capitalize()}:** {end['reason']}"] if end.get("reason") else []
    lines += [f"- {line}" for line in end.get("summary", ())]
    outcomes: dict[str, list[str]] = {}
    for stage in stages:
        if stage.end:
            outcomes.setdefault(stage.end["outcome"], []).append(stage.name)
    lines += [f"\n{outcome}: {', '.join(names)}" for outcome, names in outcomes.items()]
    if link := run["tags"].get("prefect_url"):
        lines.append(f"\nPrefect: [{run['tags'].get('prefect_run', run['id'])}]({link})")
    return "\n".join(lines).strip()
