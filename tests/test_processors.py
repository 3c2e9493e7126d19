"""Number of processors: CPU affinity and CPU quota of control groups of both versions."""

import math
from pathlib import Path

import pytest

from components.core import processors
from components.core.processors import cores, cpu_quota


def process(folder: Path, *, groups: list[str], mounts: list[tuple[str, str, str, str]]) -> Path:
    """A folder like /proc/self; each mount is (root, mount point below `folder`, type, options)."""
    (folder / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    lines = [
        f"{30 + index} 23 0:28 {root} {folder}/{point} rw,relatime shared:4 - {kind} {kind} {options}\n"
        for index, (root, point, kind, options) in enumerate(mounts)
    ]
    (folder / "mountinfo").write_text("".join(lines))
    return folder


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")


V2 = [("/", "fs", "cgroup2", "rw")]


def test_version_2_reads_the_own_group_and_its_ancestors(tmp_path):
    folder = process(tmp_path, groups=["0::/pod/container"], mounts=V2)
    assert cpu_quota(folder) == math.inf, "no file, no limit"
    write(tmp_path / "fs/pod/container", cpu__max="max 100000")
    write(tmp_path / "fs/pod", cpu__max="250000 100000")
    assert cpu_quota(folder) == 2.5
    write(tmp_path / "fs/pod/container", cpu__max="50000 100000")
    assert cpu_quota(folder) == 0.5
    write(tmp_path / "fs/other", cpu__max="10000 100000")
    assert cpu_quota(folder) == 0.5


@pytest.mark.parametrize("path", ["/", "/../../system.slice/run.scope"])
def test_version_2_inside_a_namespace_reads_the_mount_point(tmp_path, path):
    folder = process(tmp_path, groups=[f"0::{path}"], mounts=V2)
    write(tmp_path / "fs", cpu__max="300000 100000")
    assert cpu_quota(folder) == 3


def test_version_1_reads_the_cpu_controller(tmp_path):
    groups = ["3:cpuset:/docker/a", "2:cpu,cpuacct:/docker/a", "1:name=systemd:/", "0::/"]
    mounts = [("/", "cpuset", "cgroup", "rw,cpuset"), ("/", "cpu", "cgroup", "rw,cpu,cpuacct"), *V2]
    folder = process(tmp_path, groups=groups, mounts=mounts)
    write(tmp_path / "cpu/docker/a", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(tmp_path / "cpuset/docker/a", cpu__cfs_quota_us="1", cpu__cfs_period_us="100000")
    assert cpu_quota(folder) == math.inf
    write(tmp_path / "cpu/docker", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    assert cpu_quota(folder) == 4


def test_damaged_or_missing_files_are_no_limit(tmp_path):
    assert cpu_quota(tmp_path / "missing") == math.inf
    folder = process(tmp_path, groups=["0::/", "garbage"], mounts=V2)
    for content in ("", "abc", "max", "0 0"):
        write(tmp_path / "fs", cpu__max=content)
        assert cpu_quota(folder) == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 8), (16.0, 8), (8.0, 8), (2.9, 2), (0.5, 1)])
def test_cores_are_the_affinity_limited_to_the_quota(quota, expected, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "cpu_quota", lambda: quota)
    assert cores() == expected


def test_version_1_in_a_container_whose_own_group_is_the_mount(tmp_path):
    folder = process(tmp_path, groups=["2:cpu:/docker/a"], mounts=[("/docker/a", "cpu", "cgroup", "rw,cpu")])
    write(tmp_path / "cpu", cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    assert cpu_quota(folder) == 1.5
