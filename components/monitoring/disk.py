"""Free disk space before a run: what the stages that run will write, from the sizes of their last outputs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import DiskSpaceError
from components.monitoring.garbage import in_units, size_of
from components.pipeline.stages import TRAINING

#: Size of a first output relative to the raw data, by stage; 0 for others, whose outputs are small.
FIRST = {"ingest": 1.0, "ingest-parallel": 1.0, "tokenize": 1.5, "tokenize-parallel": 1.5, "task-tokens": 1.5}
#: Checkpoints of a model hold weights and two moments; two are kept while a third is written.
CHECKPOINTS = 3 * 3


@dataclass(frozen=True)
class Need:
    """Space that a run needs in a folder.

    Attributes:
        what: the folder's use in words.
        path: the folder; it may not exist yet.
        size: bytes.
    """

    what: str
    path: Path
    size: int


def needs(
    stages: Iterable[str],
    sizes: Mapping[str, int],
    *,
    data: int,
    out: Path,
    cache: Path | None,
    checkpoints: Path | None,
) -> list[Need]:
    """The space that stages need, estimated.

    Args:
        stages: names of the stages that run, such as `adapt@ulmfit`.
        sizes: stage -> bytes of its last outputs. A stage without an entry is estimated by the size of the raw data, or
            by that of another item of the same stage.
        data: bytes of the raw data.
        out: output folder.
        cache: the DVC cache, if outputs are copied to it; None: they are linked.
        checkpoints: folder of checkpoints; None: they are in an object store.
    """
    written: dict[str, int] = {}
    for stage in stages:
        group = stage.partition("@")[0]
        alike = [size for name, size in sizes.items() if name.partition("@")[0] == group]
        written[stage] = sizes.get(stage, max(alike, default=int(FIRST.get(group, 0) * data)))
    total = sum(written.values())
    trained = max((size for stage, size in written.items() if stage.partition("@")[0] in TRAINING), default=0)
    found = [Need("outputs (run.out)", out, total)]
    if cache is not None:
        found.append(Need("DVC cache", cache, total))
    if checkpoints is not None:
        found.append(Need("checkpoints (cluster.storage)", checkpoints, CHECKPOINTS * trained))
    # A registered model is copied there before it is uploaded.
    found.append(Need("temporary files (TMPDIR)", Path(tempfile.gettempdir()), trained))
    return found


def check_space(found: Sequence[Need], *, spare: int) -> None:
    """Compare needs with the free space of their file systems.

    Args:
        found: the needs. Those on one file system are added up.
        spare: bytes that have to remain free on each file system.

    Raises:
        DiskSpaceError: there is too little space; the message has the numbers and the remedy.
    """
    devices: dict[int, list[Need]] = {}
    for need in found:
        devices.setdefault(_existing(need.path).stat().st_dev, []).append(need)
    problems = []
    for own in devices.values():
        place = _existing(own[0].path)
        free = shutil.disk_usage(place).free
        wanted = sum(need.size for need in own)
        if wanted + spare > free:
            parts = ", ".join(f"{in_units(need.size)} of {need.what}" for need in own if need.size)
            wants = f"needs about {in_units(wanted)} ({parts}) and {in_units(spare)} to spare (gc.spare_gigabytes)"
            problems.append(f"{place}: {in_units(free)} are free, but the run {wants}")
    if problems:
        raise DiskSpaceError(
            "\n".join(problems) + "\nfree space: `headstart gc` lists what can be deleted; or move the folder to a "
            "larger disk"
        )


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def raw_size(paths: Iterable[Path]) -> int:
    """Bytes of the raw data."""
    return sum(size_of(path) for path in {path.absolute() for path in paths})
