"""Checkpoints in an S3 store, with moto's server."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import boto3
import pyarrow.fs
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from components.errors import TrainingError
from components.training.checkpoint import NUMBERS, TENSORS, CheckpointStore

STATE = {"weight": torch.arange(6.0)}


@pytest.fixture
def storage(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="training")
    return "s3://training/checkpoints"


def test_checkpoints_work_as_in_a_folder(storage: str) -> None:
    store = CheckpointStore(storage, key="run")
    assert store.latest() is None
    for step in (1, 5, 20):
        store.save(step, {"weight": STATE["weight"] + step}, {"step": step})
    assert store.steps() == [5, 20]
    found = CheckpointStore(storage, key="run").latest()
    assert found is not None
    assert (found.step, found.numbers) == (20, {"step": 20})
    assert torch.equal(found.tensors["weight"], STATE["weight"] + 20)
    # Damaged, or without its last file: the previous one is used.
    root = "training/checkpoints/run"
    with store.files.open_output_stream(f"{root}/step-000000020/{TENSORS}") as file:
        file.write(b"damaged")
    with store.files.open_output_stream(f"{root}/step-000000030/{TENSORS}") as file:
        file.write(b"half")
    assert store.steps() == [5, 20]
    assert store.latest().step == 5  # type: ignore[union-attr]
    store.clear()
    assert store.latest() is None
    store.clear()


def test_a_missing_bucket(storage: str) -> None:
    store = CheckpointStore("s3://nowhere/checkpoints", key="run")
    with pytest.raises(TrainingError, match=r"s3://nowhere/checkpoints/run: checkpoint of step 1 cannot be written \("):
        store.save(1, STATE, {})


def test_an_unknown_scheme(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"cluster.storage ftps://here/there: cannot be used \("):
        CheckpointStore("ftps://here/there", key="run")


def test_without_its_last_file_a_directory_is_no_checkpoint(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(storage, key="cut")
    copy_files = pyarrow.fs.copy_files

    def cut(source: str, target: str, *rest: object) -> None:
        if target.endswith(NUMBERS):
            raise OSError("connection lost")
        copy_files(source, target, *rest)

    monkeypatch.setattr(pyarrow.fs, "copy_files", cut)
    with pytest.raises(TrainingError, match=r"cannot be written \(connection lost\).*training restarts"):
        store.save(1, STATE, {})
    assert store.steps() == []


def _save_part(rank: int, storage: str, meet: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    weight = distribute_tensor(STATE["weight"].clone(), mesh, [Shard(0)], src_data_rank=None)
    store, group = CheckpointStore(storage, key="parts"), dist.new_group(backend="gloo")
    store.save_shards(3, {"weight": weight, "step": torch.tensor(3.0)}, {"step": 3}, group=group)
    # The same step again, as after a restart: it is kept.
    store.save_shards(3, {"weight": weight, "step": torch.tensor(4.0)}, {"step": 4}, group=group)
    dist.destroy_process_group()


def test_two_workers_store_their_parts(storage: str, tmp_path: Path) -> None:
    # A fork would copy the threads of the S3 client in part.
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=_save_part, args=(rank, storage, f"{tmp_path}/meet")) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    store = CheckpointStore(storage, key="parts")
    found = store.latest()
    assert found is not None and (found.step, found.numbers) == (3, {"step": 3})
    assert torch.equal(found.tensors["weight"], STATE["weight"]) and found.tensors["step"] == 3
    part = next(
        path
        for path in store.files.get_file_info(pyarrow.fs.FileSelector(f"{store.root}/step-000000003"))
        if path.base_name.startswith("shard-00002")
    )
    with store.files.open_output_stream(part.path) as file:
        file.write(b"damaged")
    assert store._load(3) is None
