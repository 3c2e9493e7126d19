"""The project, the comparison and the S3 store of the faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.pipeline.checks import check_params
from components.settings.loading import load_params
from tests.flows.faults.project import Project, differences, make
from tests.flows.faults.services import Store


@pytest.fixture
def made(tmp_path: Path) -> Project:
    return make(tmp_path / "a", variables={"OWN": "1"}, launcher="local")


def test_the_project_has_valid_settings_and_the_same_data_every_time(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made.root)
    check_params(load_params(Path("params.yaml")))
    again = make(tmp_path / "b", variables={}, launcher="local")
    for name in ("params.yaml", "data/domain/a.jsonl", "data/tasks/faults/train.jsonl", "dvc.yaml"):
        assert (made.root / name).read_bytes() == (again.root / name).read_bytes()


def test_the_users_servers_are_out_of_reach(made, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "RAY_ADDRESS", "AWS_ACCESS_KEY_ID", "HEADSTART_STORAGE"):
        monkeypatch.setenv(name, "mine")
    environment = made.environment()
    assert "mine" not in environment.values()
    assert (environment["PYTHONPATH"], environment["OWN"]) == (str(made.root), "1")


def test_digests_ignore_times_only(made):
    out = made.root / "artifacts" / "encoder"
    out.mkdir(parents=True)

    def write(loss, seconds, weights):
        (out / "metrics.json").write_text(
            json.dumps({"loss": loss, "seconds": seconds, "in": {"tokens_per_second": seconds}})
        )
        (out / "curve.csv").write_text(f"step,seconds,loss\n1,{seconds},{loss}\n")
        (out / "weights.safetensors").write_bytes(weights)
        (out / "manifest.json").write_text(str(seconds))
        return made.digests()

    first = write(1.5, 2.0, b"w")
    assert sorted(first) == ["encoder/curve.csv", "encoder/metrics.json", "encoder/weights.safetensors"]
    assert differences(first, write(1.5, 3.0, b"w")) == []
    assert differences(first, write(1.25, 2.0, b"v")) == sorted(first)
    assert differences(first, {}) == sorted(first)


def test_expired_credentials_are_refused(monkeypatch):
    from components.cluster.storage import ensure_bucket
    from components.core.errors import TrainingError
    from components.training.checkpoint import CheckpointStore

    store = Store()
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)
    ensure_bucket("faults")
    checkpoints = CheckpointStore("s3://faults/checkpoints", key="a")
    checkpoints.save(1, {}, {})
    assert store.stored == 1
    store.expired = True
    with pytest.raises(TrainingError, match="ExpiredToken"):
        checkpoints.save(2, {}, {})
    store.expired = False
    assert checkpoints.steps() == [1]
    store.close()
