"""What lies outside of the repository: removed, or named in the certificate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.pipeline.lineage import forget as removal
from components.registry.drift.measurements import ROW, Measured
from components.registry.drift.traffic import TrafficLog, read_traffic, traffic_folder
from components.settings.params import Params
from tests.example_task import rows
from tests.labelling.conftest import project as project  # a fixture

pytestmark = pytest.mark.usefixtures("unregistered")
GONE = rows(1)[0]["text"]


@pytest.fixture
def store(s3: Any) -> Any:
    """A client of a store with the bucket `team`, which keeps old versions."""
    s3.create_bucket(Bucket="team")
    s3.put_bucket_versioning(Bucket="team", VersioningConfiguration={"Status": "Enabled"})
    return s3


def set_storage(params: Params, **changes: Any) -> Params:
    return params.model_copy(update={"cluster": params.cluster.model_copy(update=changes)})


def remove(params: Params, *texts: str) -> dict[str, Any]:
    plan = removal.make_plan(params, texts)
    path = removal.forget(params, plan, texts)
    certificate: dict[str, Any] = json.loads(path.read_text())
    return certificate


def test_checkpoints_in_a_bucket_are_removed_with_old_versions(project, store):
    params = set_storage(project(), storage="s3://team/runs")
    for _ in range(2):
        store.put_object(Bucket="team", Key=f"runs/finetune-{'0a' * 12}/step-000000007/state.json", Body=b"{}")
    foreign = {"runs/notes.txt", "runs-of-others/x/step-000000001/state.json", "files/md5/00/11",
               "runs/photos/doorstep-12/img.jpg", "runs/thesis/step-1/state.json"}  # fmt: skip
    for key in foreign:
        store.put_object(Bucket="team", Key=key, Body=b"of others")
    certificate = remove(params, GONE)
    left = store.list_object_versions(Bucket="team")
    assert {item["Key"] for item in left["Versions"]} == foreign
    assert "DeleteMarkers" not in left
    assert certificate["checkpoints"] == {"url": "s3://team/runs", "removed": 2} and certificate["not_removed"] == []


def test_what_cannot_be_removed_is_named(project, store, monkeypatch, cache_of_inputs):
    params = set_storage(project(), storage="s3://absent/runs", launcher="ray", address="ray://head:10001")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:a-password@mlflow:5000")
    for folder in ("inputs", "other"):
        (cache_of_inputs / folder / "0a").mkdir(parents=True)
    certificate = remove(params, GONE)
    cluster, mlflow, checkpoints = certificate["not_removed"]
    assert cluster.startswith("input caches on the nodes of the Ray cluster ray://head:10001: remove ")
    assert mlflow.startswith("MLflow at http://ann:***@mlflow:5000: delete the tainted versions")
    assert checkpoints.startswith("checkpoints in s3://absent/runs (") and "aws s3 rm --recursive" in checkpoints
    assert "a-password" not in json.dumps(certificate)
    assert list(cache_of_inputs.iterdir()) == [], "the cache of this machine is removed"


def test_checkpoints_in_a_folder_of_others_are_removed_alone(project, tmp_path):
    shared = tmp_path.parent / f"{tmp_path.name}-shared"
    run = f"finetune-{'a' * 24}/step-000000001/state.json"
    for name in (run, "papers/draft.txt", "experiments/step-by-step.md", "bob/manifest.json"):
        (shared / name).parent.mkdir(parents=True)
        (shared / name).write_text("{}")
    remove(set_storage(project(), storage=str(shared)), GONE)
    assert sorted(path.name for path in shared.iterdir()) == ["bob", "experiments", "papers"]


def test_a_batch_of_served_texts_is_removed_from_its_log(project, tmp_path, monkeypatch):
    params = project()
    monkeypatch.setenv("HEADSTART_TRAFFIC", str(tmp_path.parent / f"{tmp_path.name}-traffic"))
    log = TrafficLog(traffic_folder(), task="things", digest="0a", megabytes=1, text=True)
    for texts in ([("other",), (GONE, "and a second text")], [("nothing",)]):
        log.append(texts, Measured("classification", (), np.zeros(len(texts), dtype=ROW)))
    certificate = remove(params, GONE)
    assert read_traffic(traffic_folder(), task="things", digest="0a").texts == ("nothing",)
    assert sum(certificate["records"].values()) == 2, "a row of train, and a batch"


def test_a_file_of_git_leaves_its_history(project, monkeypatch):
    params = project()
    monkeypatch.setattr(removal, "tracked_by_git", lambda: {Path.cwd() / "task" / "train.jsonl"})
    certificate = remove(params, GONE)
    assert [line.partition(":")[0] for line in certificate["not_removed"]] == ["earlier commits of git"]
