"""Checkpoints in an S3 store, with moto's server."""

import boto3
import pyarrow.fs
import pytest
import torch

from components.core.errors import TrainingError
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


def test_checkpoints_work_as_in_a_folder(storage):
    store = CheckpointStore(storage, key="run")
    assert store.latest() is None
    for step in (1, 5, 20):
        store.save(step, {"weight": STATE["weight"] + step}, {"step": step})
    assert store.steps() == [5, 20]
    actual = CheckpointStore(storage, key="run").latest()
    assert (actual.step, actual.numbers) == (20, {"step": 20})
    assert torch.equal(actual.tensors["weight"], STATE["weight"] + 20)
    # Damaged, or without its last file: the previous one is used.
    root = "training/checkpoints/run"
    with store.files.open_output_stream(f"{root}/step-000000020/{TENSORS}") as file:
        file.write(b"damaged")
    with store.files.open_output_stream(f"{root}/step-000000030/{TENSORS}") as file:
        file.write(b"half")
    assert store.steps() == [5, 20]
    assert store.latest().step == 5
    store.clear()
    assert store.latest() is None
    store.clear()


def test_a_missing_bucket(storage):
    store = CheckpointStore("s3://nowhere/checkpoints", key="run")
    with pytest.raises(TrainingError, match=r"s3://nowhere/checkpoints/run: checkpoint of step 1 cannot be written \("):
        store.save(1, STATE, {})


def test_an_unknown_scheme(tmp_path):
    with pytest.raises(TrainingError, match=r"cluster.storage ftps://here/there: cannot be used \("):
        CheckpointStore("ftps://here/there", key="run")


def test_without_its_last_file_a_directory_is_no_checkpoint(storage, monkeypatch):
    store = CheckpointStore(storage, key="cut")
    copy_files = pyarrow.fs.copy_files

    def cut(source, target, *rest):
        if target.endswith(NUMBERS):
            raise OSError("connection lost")
        copy_files(source, target, *rest)

    monkeypatch.setattr(pyarrow.fs, "copy_files", cut)
    with pytest.raises(TrainingError, match=r"cannot be written \(connection lost\).*training restarts"):
        store.save(1, STATE, {})
    assert store.steps() == []
