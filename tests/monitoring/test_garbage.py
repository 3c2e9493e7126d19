"""What `headstart gc` finds, and what it leaves alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from components.artifacts import writing
from components.drift.measurements import ROW, Measured
from components.drift.traffic import TrafficLog
from components.errors import StorageError
from components.monitoring.disk import in_units
from components.monitoring.garbage import (
    old_checkpoints,
    old_features,
    old_logs,
    old_traffic,
    orphaned_outputs,
)

DAY = 86400.0
NOW = time.time()


def write(path: Path, *, days: float, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def test_checkpoints_are_as_old_as_their_newest_file(tmp_path: Path) -> None:
    write(tmp_path / "old" / "step-1" / "state.json", days=9)
    write(tmp_path / "old" / "step-2" / "state.json", days=8, size=5)
    write(tmp_path / "resumed" / "step-1" / "state.json", days=9)
    write(tmp_path / "resumed" / "step-2" / "state.json", days=1)
    (found,) = old_checkpoints(str(tmp_path), days=7, now=NOW)
    assert (Path(found.name).name, found.size, found.reason) == ("old", 15, "last written 8 days ago")
    assert (tmp_path / "old").is_dir()
    found.delete()
    assert [path.name for path in tmp_path.iterdir()] == ["resumed"]
    assert list(old_checkpoints(str(tmp_path / "missing"), days=7)) == []
    with pytest.raises(StorageError, match="cluster.storage nowhere://x: cannot be read"):
        list(old_checkpoints("nowhere://x", days=7))


def test_features_are_as_old_as_their_last_use(tmp_path: Path) -> None:
    for name, days in (("used", 1), ("unused", 9)):
        with writing(tmp_path / name, kind="features") as draft:
            (draft.path / "vectors.npy").write_bytes(b"x" * 100)
        os.utime(tmp_path / name / "manifest.json", (NOW - days * DAY, NOW - days * DAY))
    (found,) = old_features(tmp_path, days=7, now=NOW)
    assert found.name == str(tmp_path / "unused") and found.size > 100
    found.delete()
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_outputs_of_former_stages_are_found_unless_a_present_stage_writes_there(tmp_path: Path) -> None:
    for name in ("encoder/old/adapted", "encoder/new/adapted", "finetuned/t"):
        write(tmp_path / name / "weights", days=0)
    former = [
        ("adapt@old", tmp_path / "encoder/old/adapted"),
        ("adapt@older", tmp_path / "encoder/old/adapted"),
        ("adapt@new", tmp_path / "encoder/new/adapted"),
        ("finetune@x", tmp_path / "finetuned/t/weights"),
        ("gone", tmp_path / "gone"),
    ]
    (found,) = orphaned_outputs(former, [tmp_path / "encoder/new/adapted", tmp_path / "finetuned/t"])
    assert found.reason == "of adapt@old, which the settings no longer have" and found.size == 10
    found.delete()
    assert not (tmp_path / "encoder/old/adapted").exists() and (tmp_path / "finetuned/t/weights").exists()


def test_old_logs_are_found_and_a_log_that_is_written_is_not(tmp_path: Path) -> None:
    write(tmp_path / "prefect-server.log", days=40)
    write(tmp_path / "runs" / "today.log", days=0)
    write(tmp_path / "registry.json", days=40)
    assert [Path(item.name).name for item in old_logs(tmp_path, days=30, now=NOW)] == ["prefect-server.log"]
    batch = Measured("classification", ("a", "b"), np.zeros(5, dtype=ROW))
    writers = [
        TrafficLog(tmp_path / "traffic", task="t", digest=digest, megabytes=1) for digest in ("d" * 16, "e" * 16)
    ]
    for writer in writers:
        writer.append([("x",)] * 5, batch)
    writers[0].close()
    assert list(old_traffic(tmp_path / "traffic", days=30, now=NOW)) == []
    (found,) = old_traffic(tmp_path / "traffic", days=30, now=NOW + 31 * DAY)
    assert "d" * 16 in found.name
    found.delete()
    assert [path.parent.name for path in (tmp_path / "traffic").rglob("*.rows")] == ["e" * 16]


def test_sizes_in_units() -> None:
    assert [in_units(size) for size in (0, 999, 1500, 123_400, 2_500_000_000, 7e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "123 kB",
        "2.5 GB",
        "7.0 TB",
    ]
