"""Number of processors that this process may use, without torch."""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
#: Instruction sets that compute bf16 products, by their flag in /proc/cpuinfo. Their results differ in the last bits.
BF16 = {"amx_bf16": "AMX", "avx512_bf16": "AVX512"}


def cores() -> int:
    """Number of processors in the CPU affinity mask, limited to the CPU quota (rounded down); at least 1."""
    owned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return owned if quota >= owned else max(1, int(quota))


def cpu_quota(process: Path = PROCESS) -> float:
    """CPU quota in processors: the minimum over the process's control group and its ancestors; infinite if unlimited.

    Both versions of control groups are read: `cpu.max` of version 2, `cpu.cfs_quota_us` of version 1.
    """
    return min((quota for folder in _groups(process) if (quota := _quota_of(folder)) is not None), default=math.inf)


def _groups(process: Path) -> Iterator[Path]:
    """Folders of the control groups with a CPU controller that the process belongs to, ancestors included."""
    try:
        paths = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split(" - ", 1) for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (entry for entry in paths if len(entry) == 3):
        for mount, source in (entry for entry in mounts if len(entry) == 2):
            kind, _, options = (*source.split(), "", "")[:3]
            version_2 = kind == "cgroup2" and not controllers
            version_1 = kind == "cgroup" and "cpu" in controllers.split(",") and "cpu" in options.split(",")
            if version_2 or version_1:
                root, mounted = mount.split()[3:5]
                yield from _ancestors(Path(mounted), root=root, path=path)


def _ancestors(mounted: Path, *, root: str, path: str) -> Iterator[Path]:
    """The group's folder and its ancestors up to the mount point. A container may have only its own group mounted."""
    inside = PurePosixPath(path)
    if inside.is_relative_to(root) and ".." not in inside.parts:
        folder = mounted / inside.relative_to(root)
        while folder != mounted:
            yield folder
            folder = folder.parent
    yield mounted


def _quota_of(folder: Path) -> float | None:
    """Quota of one control group in processors; None without a limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return None


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Name of the processor and its instruction sets for bf16 products; None if the file does not name it."""
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    if not (name := facts.get("model name")):
        return None
    flags = facts.get("flags", "").split()
    kinds = [kind for flag, kind in BF16.items() if flag in flags]
    return f"{name} (bf16 by {' and '.join(kinds)})" if kinds else f"{name} (no bf16)"
