"""Checkpoints: complete or absent, verified when read; the newest two are kept."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from components.core.artifacts import partial_path
from components.core.errors import TrainingError
from components.training import checkpoint as module
from components.training.checkpoint import CheckpointStore, fingerprint
from tests.training.helpers import fork, one_of_two

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)}


def store_with(folder: Path, *steps: int) -> CheckpointStore:
    store = CheckpointStore(str(folder), key="run")
    for step in steps:
        store.save(step, {name: tensor + step for name, tensor in STATE.items()}, {"step": step})
    return store


def _worker(rank: int, folder: Path, results: multiprocessing.Queue[tuple[int, object]]) -> None:
    module.READ_SECONDS = 0.01
    actual: list[object] = []
    with one_of_two(rank, folder) as world:
        for case in ("newer", "none", "damaged", "late", "missing"):
            if (case, rank) == ("late", 1):
                # The checkpoint becomes visible to this rank after its first attempt.
                module.time.sleep = lambda _, late=folder / case / "1": store_with(late, 4)
            try:
                checkpoint = CheckpointStore(str(folder / case / str(rank)), key="run").latest_for_all(world)
                actual.append(checkpoint and checkpoint.step)
            except TrainingError as error:
                actual.append(str(error))
    results.put((rank, actual))


def test_rank_0_selects_the_checkpoint_of_all_ranks(tmp_path):
    """Each rank has its own folder, as on storage that shows a write to some nodes later than to others."""
    store_with(tmp_path / "newer" / "0", 1, 2)
    store_with(tmp_path / "newer" / "1", 2, 3)
    store_with(tmp_path / "none" / "1", 1)
    store_with(tmp_path / "damaged" / "1", 1)
    store_with(tmp_path / "damaged" / "0", 1)
    (tmp_path / "damaged" / "0" / "run" / "step-000000001" / module.TENSORS).unlink()
    store_with(tmp_path / "late" / "0", 4)
    store_with(tmp_path / "missing" / "0", 5)
    results = multiprocessing.get_context("fork").Queue()
    processes = fork(_worker, tmp_path, results)
    actual = dict(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert actual[0][:2] == actual[1][:2] == [2, None]
    assert actual[0][2] == actual[1][2] and "every checkpoint is damaged" in actual[0][2]
    assert actual[0][3] == actual[1][3] == 4
    assert actual[0][4] == 5
    assert "worker 1 cannot read the checkpoint of step 5 that rank 0 reads" in actual[1][4]


@pytest.mark.parametrize("name", [module.TENSORS, module.NUMBERS])
@pytest.mark.parametrize("damage", ["empty", "zeros", "flipped bit"])
def test_the_checkpoint_before_a_damaged_one_is_used(tmp_path, name, damage):
    store = store_with(tmp_path, 1, 2)
    file = tmp_path / "run" / "step-000000002" / name
    whole = file.read_bytes()
    changed = {"empty": b"", "zeros": b"\0" * 64, "flipped bit": whole[:-1] + bytes([whole[-1] ^ 1])}
    file.write_bytes(changed[damage])
    actual = store.latest()
    assert actual.step == 1
    # The next write of that step replaces it.
    assert store_with(tmp_path, 2).latest().step == 2


def test_all_checkpoints_are_damaged(tmp_path):
    store = store_with(tmp_path, 1, 2)
    for file in (tmp_path / "run").glob(f"*/{module.TENSORS}"):
        file.unlink()
    with pytest.raises(TrainingError, match=r"every checkpoint is damaged; remove the folder to restart training"):
        store.latest()


def test_an_interrupted_write_is_no_checkpoint(tmp_path):
    store = store_with(tmp_path, 1)
    # A killed writer leaves a partial folder, or on S3 a folder without its last file.
    (tmp_path / "run" / f".partial-{'0' * 32}.step-000000002").mkdir()
    (tmp_path / "run" / "step-000000002").mkdir()
    (tmp_path / "run" / "step-000000002" / module.TENSORS).write_bytes(b"part")
    assert store.steps() == [1]
    assert store.latest().step == 1


def test_opening_a_store_removes_partial_checkpoints_without_a_living_writer(tmp_path):
    store_with(tmp_path, 1)
    run = tmp_path / "run"
    (run / f".partial-{'0' * 32}.step-000000002").mkdir()
    (run / f".partial-{'0' * 32}.step-000000002" / module.TENSORS).write_bytes(b"part")
    with partial_path(run / "step-000000003", folder=True) as living:
        store_with(tmp_path)
        assert sorted(path.name for path in run.iterdir()) == [living.name, "step-000000001"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_last_one_intact(tmp_path, monkeypatch, number):
    store = store_with(tmp_path, 4)

    def full(tensors, path):
        path.write_bytes(b"as much as there was room for")
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", full)
        message = (
            r"run: checkpoint of step 9 cannot be written \(no space left\); free space or set cluster.storage to "
            r"another location and run again: training resumes from step 4"
        )
        with pytest.raises(TrainingError, match=message):
            store_with(tmp_path, 9)
    assert store.steps() == [4]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-000000004"]
    assert store.latest() is not None


def test_a_complete_checkpoint_of_the_same_step_stays(tmp_path):
    store_with(tmp_path, 2)
    file = tmp_path / "run" / "step-000000002" / module.TENSORS
    inode = file.stat().st_ino
    assert store_with(tmp_path, 2).steps() == [2]
    assert file.stat().st_ino == inode
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-000000002"]


def test_the_key_depends_on_every_part_and_not_on_their_order():
    assert fingerprint(a=1, b={"c": 2}) == fingerprint(b={"c": 2}, a=1)
    assert fingerprint(a=1) != fingerprint(a=2)
