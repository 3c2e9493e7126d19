"""Disk space for a run: the stages that would run, the sizes of their last outputs, and where they write."""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from pathlib import Path

from components.pipeline.monitoring.disk import check_space, needs, raw_size
from components.settings.loading import load_params
from flows import dvc_lock
from flows.plan import Plan, Stage

#: Free space that must remain beside the estimate of a run's outputs.
SPARE_BYTES = 10**9


def check_run(plan: Plan, wanted: Iterable[Stage], *, params: Path, root: Path) -> None:
    """Refuse a run that would fill a disk.

    Raises:
        DiskSpaceError: there is too little space for the outputs, the DVC cache, checkpoints or temporary files.
    """
    stages = list(wanted)
    reasons = {stage.name for stage in stages if stage.reasons}
    running = [stage.name for stage in stages if plan.ancestors({stage.name}) & reasons]
    if not running:
        return
    settings = load_params(params)
    data = settings.data
    sources = (data.general, data.domain, *data.unlabelled, *data.parallel.values(), *data.tasks.values())
    paths = [source.path for source in sources if source is not None]
    storage = settings.cluster.storage
    estimate = needs(
        running,
        last_sizes(params.with_name("dvc.lock")),
        data=raw_size(root / path for path in paths),
        out=root / settings.run.out,
        cache=None if _links(root) else root / ".dvc" / "cache",
        checkpoints=None if "://" in storage else root / storage,
    )
    check_space(estimate, spare=SPARE_BYTES)


def last_sizes(lock: Path) -> dict[str, int]:
    """Stage -> bytes of its outputs, as DVC has recorded them; empty without a readable dvc.lock."""
    recorded = dvc_lock.outputs(lock).items()
    return {name: sum(int(output.get("size", 0)) for output in outputs) for name, outputs in recorded}


def _links(root: Path) -> bool:
    """Whether outputs are linked to the DVC cache instead of copied."""
    config = configparser.ConfigParser()
    config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"])
    kinds = config.get("cache", "type", fallback="reflink,copy").split(",")
    # A reflink is impossible on most file systems, and DVC then takes the next kind.
    return any(kind.strip() in ("hardlink", "symlink") for kind in kinds)
