"""The execution of one item of a stage."""

from __future__ import annotations

from pathlib import Path

from components.core.artifacts import write_atomic
from components.core.errors import ConfigError, nearest
from components.pipeline import rebuild
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.identity import check_identity
from components.pipeline.jobs import WHOLE, out
from components.pipeline.stages import STAGES
from components.settings.params import Params


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
    if item not in names:
        if WHOLE in names:
            raise ConfigError(f"stage {name} has no items; found {item!r}")
        raise ConfigError(f"stage {name}: unknown item {item!r}{nearest(item, names)}")
    code = "" if name == IDENTITY else check_identity(name, item, params).code_digest
    requested = rebuild.requested(out(params), name, item) if name in rebuild.STAGES else ""
    written = STAGES[name].run(names[item], code=code, rebuild=requested)
    for file, folder in (("metrics.json", "metrics"), ("curve.csv", "curves"), ("learning_curve.csv", "curves")):
        if (source := written / file).is_file():
            target = out(params, folder, name, (item or name) + source.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, source.read_bytes())
    if requested:
        rebuild.fulfil(out(params), name, item)
    return written
