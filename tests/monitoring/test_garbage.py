"""What `headstart gc` finds, and what it leaves alone."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from components.core.artifacts import writing
from components.core.errors import StorageError
from components.pipeline.monitoring.garbage import (
    checkpoints,
    features,
    logs,
    old,
    orphaned_outputs,
)
from components.registry.drift.measurements import ROW, Measured
from components.registry.drift.traffic import TrafficLog

DAY = 86400.0
NOW = time.time()


def write(path: Path, *, days: float, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def test_checkpoints_are_as_old_as_their_newest_file(tmp_path):
    gone, resumed = (f"finetune-{each * 24}" for each in "ab")
    write(tmp_path / gone / "step-1" / "state.json", days=9)
    write(tmp_path / gone / "step-2" / "state.json", days=8, size=5)
    write(tmp_path / resumed / "step-1" / "state.json", days=9)
    write(tmp_path / resumed / "step-2" / "state.json", days=1)
    (result,) = old(checkpoints(str(tmp_path)), days=7, now=NOW)
    assert (Path(result.name).name, result.size, result.reason) == (gone, 15, "last written 8 days ago")
    assert (tmp_path / gone).is_dir()
    result.delete()
    assert [path.name for path in tmp_path.iterdir()] == [resumed]
    assert list(checkpoints(str(tmp_path / "missing"))) == []
    with pytest.raises(StorageError, match="cluster.storage nowhere://x: cannot be read"):
        list(checkpoints("nowhere://x"))


#: Names below a shared storage that look like those of Headstart and belong to others.
FOREIGN = (
    "experiments/step-by-step.md",
    "bob/manifest.json",
    "thesis/step-1/state.json",
    f"{'a' * 24}/step-1/notes.txt",
    f"{'a' * 24}/step-by-step/state.json",
    f"{'c' * 24}/pictures/step-1/state.json",
    "photos/doorstep-12/img.jpg",
    f"shards-{'0' * 16}/img.jpg",
    "inputs-2026/manifest.json",
)


def test_folders_of_others_in_a_shared_storage_stay(tmp_path):
    for name in FOREIGN:
        write(tmp_path / name, days=90)
    runs = ("-fold1/step-000000002", "/all/step-000000002", "/1/.step-000000001-part")
    ours = (
        *(f"finetune-{'b' * 24}{run}/state.json" for run in runs),
        f"shards-{'0f' * 8}/{'e' * 32}.json",
    )
    for name in ours:
        write(tmp_path / name, days=90)
    for result in old(checkpoints(str(tmp_path)), days=7, now=NOW):
        result.delete()
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*FOREIGN}


def test_features_are_as_old_as_their_last_use(tmp_path):
    write(tmp_path / "mine" / "manifest.json", days=90)
    for name, days in (("a" * 24 + "-" + "b" * 24, 1), ("c" * 24 + "-" + "d" * 24, 9)):
        with writing(tmp_path / name, kind="features") as draft:
            (draft.path / "vectors.npy").write_bytes(b"x" * 100)
        os.utime(tmp_path / name / "manifest.json", (NOW - days * DAY, NOW - days * DAY))
    (result,) = old(features(tmp_path), days=7, now=NOW)
    assert Path(result.name).name.startswith("c") and result.size > 100
    result.delete()
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["a", "m"]


def test_outputs_of_former_stages_are_found_unless_a_present_stage_writes_there(tmp_path):
    for name in ("encoder/old/adapted", "encoder/new/adapted", "finetuned/t"):
        write(tmp_path / name / "weights", days=0)
        write(tmp_path / name / "manifest.json", days=0)
    write(tmp_path / "thesis" / "weights", days=0)
    former = [
        ("adapt@old", tmp_path / "encoder/old/adapted"),
        ("adapt@older", tmp_path / "encoder/old/adapted"),
        ("adapt@new", tmp_path / "encoder/new/adapted"),
        ("finetune@x", tmp_path / "finetuned/t/weights"),
        ("gone", tmp_path / "gone"),
        ("write-thesis", tmp_path / "thesis"),
    ]
    (result,) = orphaned_outputs(former, [tmp_path / "encoder/new/adapted", tmp_path / "finetuned/t"])
    assert result.reason == "of adapt@old, which the settings no longer have" and result.size == 20
    result.delete()
    assert not (tmp_path / "encoder/old/adapted").exists() and (tmp_path / "finetuned/t/weights").exists()


def test_old_logs_are_found_and_a_log_that_is_written_is_not(tmp_path):
    write(tmp_path / "prefect-server.log", days=40)
    write(tmp_path / "runs" / "today.log", days=0)
    write(tmp_path / "registry.json", days=40)
    batch = Measured("classification", ("a", "b"), np.zeros(5, dtype=ROW))
    writers = [TrafficLog(tmp_path / "traffic", task="t", digest=digest * 16) for digest in "de"]
    for writer in writers:
        writer.append([("x",)] * 5, batch)
    writers[0].close()

    def listed(now):
        return list(old(logs(tmp_path, tmp_path / "traffic"), days=30, now=now))

    assert [Path(item.name).name for item in listed(NOW)] == ["prefect-server.log"]
    *_, result = listed(NOW + 31 * DAY)
    assert "d" * 16 in result.name
    (segment,) = (tmp_path / "traffic" / "t" / ("d" * 16)).iterdir()
    segment.with_suffix(".text").write_text("x\n")  # of an earlier version
    result.delete()
    assert not [*segment.parent.iterdir()]
    assert [path.parent.name for path in (tmp_path / "traffic").rglob("*.rows")] == ["e" * 16]
