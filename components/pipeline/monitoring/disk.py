"""Free disk space before a run: what the stages that run will write, from the sizes of their last outputs."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from humanize import naturalsize

from components.core.errors import DiskSpaceError
from components.pipeline.stages import TRAINING

#: Size of a first output relative to the raw data, by stage; 0 for others, whose outputs are small.
FIRST = {"ingest": 1.0, "tokenize": 1.5}
#: Checkpoints of a model hold weights and two moments; two are kept while a third is written.
CHECKPOINTS = 3 * 3


class Need(NamedTuple):
    """Bytes that a run needs in a folder, which may not exist yet; `what`: the folder's use in words."""

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
        sizes: stage -> bytes of its last outputs. A stage without an entry is estimated by the size of the raw data, or
            by another item of the same stage.
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
    # A registered model is copied to the temporary files before it is uploaded.
    places = [
        ("outputs (run.out)", out, total),
        ("DVC cache", cache, total),
        ("checkpoints (cluster.storage)", checkpoints, CHECKPOINTS * trained),
        ("temporary files (TMPDIR)", Path(tempfile.gettempdir()), trained),
    ]
    return [Need(what, path, size) for what, path, size in places if path is not None]


def check_space(needed: Sequence[Need], *, spare: int) -> None:
    """Compare needs with the free space of their file systems.

    Raises:
        DiskSpaceError: there is too little space; the message has the numbers and the remedy.
    """
    devices: dict[int, list[Need]] = {}
    for need in needed:
        devices.setdefault(_existing(need.path).stat().st_dev, []).append(need)
    problems = []
    for here in devices.values():
        place = _existing(here[0].path)
        left, total = shutil.disk_usage(place).free, sum(need.size for need in here)
        if total + spare > left:
            parts = ", ".join(f"{naturalsize(need.size)} of {need.what}" for need in here if need.size)
            wants = f"needs about {naturalsize(total)} ({parts}) and {naturalsize(spare)} to spare"
            problems.append(f"{place}: {naturalsize(left)} are free, but the run {wants}")
    if problems:
        raise DiskSpaceError(
            "\n".join(problems) + "\nfree space: `headstart gc` lists what can be deleted; or move the folder to a "
            "larger disk"
        )


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size if path.exists() else 0
    total = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            if not file.is_dir() or file.is_symlink():
                total += file.lstat().st_size
    return total
