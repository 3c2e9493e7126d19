"""The execution of one item of a stage, and requests of a full rebuild: files below `rebuild` in the run's folder, one
per stage and item, which are removed when the new output is complete."""

import json
from pathlib import Path
from typing import Final

from components.core.artifacts import read_json, write_atomic
from components.core.errors import ConfigError, nearest
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.identity import check_identity
from components.pipeline.jobs import WHOLE, out
from components.pipeline.stages import STAGES
from components.settings.params import Params

FOLDER: Final = "rebuild"


def request(params: Params, reason: str) -> list[str]:
    """Request a full rebuild, which the next run makes; returns the names of the stages."""
    named = [(name, item) for name, stage in STAGES.items() if stage.rebuilt for item in stage.items(params)]
    for stage, item in named:
        path = file_of(out(params), stage, item)
        write_atomic(path, json.dumps({"reason": reason}) + "\n")
    return [f"{stage}@{item}" for stage, item in named]


def requested(folder: Path, stage: str, item: str) -> str:
    """The reason of a request; empty if there is none."""
    path = file_of(folder, stage, item)
    return str(read_json(path, made_by="headstart retrain --rebuild", missing_ok=True).get("reason", ""))


def file_of(folder: Path, stage: str, item: str) -> Path:
    return folder / FOLDER / stage / f"{item}.json"


def run_stage(name: str, params: Params, *, item: str = WHOLE) -> Path:
    """Run one item of a stage, and copy its metrics and curve to the paths that dvc.yaml declares.

    DVC does not accept a metrics file inside another output, so `metrics.json` and `curve.csv` (or
    `learning_curve.csv`) of a stage's directory are copied to `metrics/<stage>/<item>.json` and
    `curves/<stage>/<item>.csv` below the run's folder.

    Raises:
        ConfigError: there is no such stage or item, or code or settings have changed since the stage `identity` ran.
    """
    if name not in STAGES:
        raise ConfigError(f"unknown stage {name!r}{nearest(name, STAGES)}")
    names = STAGES[name].items(params)
    if item not in names and name == "examples" and item in params.data.tasks:
        # Studies also read tasks that the run does not learn.
        params = params.model_copy(update={"run": params.run.model_copy(update={"tasks": [item]})})
        names = STAGES[name].items(params)
    if item not in names:
        if WHOLE in names:
            raise ConfigError(f"stage {name} has no items; found {item!r}")
        raise ConfigError(f"stage {name}: unknown item {item!r}{nearest(item, names)}")
    code = "" if name == IDENTITY else check_identity(name, item, params).code_digest
    reason = requested(out(params), name, item) if STAGES[name].rebuilt else ""
    written = STAGES[name].run(names[item], code=code, rebuild=reason)
    for file, folder in (("metrics.json", "metrics"), ("curve.csv", "curves"), ("learning_curve.csv", "curves")):
        if (source := written / file).is_file():
            target = out(params, folder, name, (item or name) + source.suffix)
            write_atomic(target, source.read_bytes())
    if reason:
        file_of(out(params), name, item).unlink()
    return written
