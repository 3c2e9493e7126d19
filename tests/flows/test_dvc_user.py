"""DVC's own commands on a repository: status, metrics, plots, push and pull with a folder and with S3."""

import json
import shutil
from pathlib import Path

import pytest

from .conftest import change, dvc, git, ran


@pytest.fixture
def done(project: Path) -> Path:
    """The project after a committed run."""
    # `dvc pull` fails for a stage that has never run.
    text = (project / "dvc.yaml").read_text()
    before, _, after = text.partition("  unwanted:\n")
    (project / "dvc.yaml").write_text(before + "  register:" + after.partition("  register:")[2])
    git(project, "commit", "-qam", "without the unwanted stage")
    dvc(project, "add", "-q", "data")
    dvc(project, "repro", "-q", "register")
    ran(project)
    git(project, "add", "data.dvc", "dvc.lock")
    git(project, "commit", "-q", "-m", "run")
    return project


def test_status_metrics_and_plots(done):
    assert json.loads(dvc(done, "status", "--json", "ingest@general", "pretrain", "evaluate")) == {}

    (done / "data/general/b.txt").write_text("more\n")
    status = json.loads(dvc(done, "status", "--json", "ingest@general", "ingest@domain", "pretrain"))
    assert status == {"ingest@general": [{"changed deps": {"data/general": "modified"}}]}

    change(done / "params.yaml", "min_characters: 1 ", "min_characters: 2 ")
    changed = json.loads(dvc(done, "params", "diff", "--json"))["params.yaml"]["ingest.min_characters"]
    assert (changed["old"], changed["new"]) == (1, 2)
    dvc(done, "repro", "-q", "pretrain")
    assert ran(done) == ["ingest general", "pretrain model"]
    loss = json.loads(dvc(done, "metrics", "diff", "--json"))["artifacts/metrics.json"]["loss"]
    assert loss == {"old": 3.5, "new": 7.0, "diff": 3.5}

    (figure,) = json.loads(dvc(done, "plots", "diff", "--json"))["data"]["artifacts/curve.csv"]
    assert {(row["rev"], row["step"], row["loss"]) for row in figure["content"]["data"]["values"]} == {
        ("workspace", "1", "8.0"),
        ("workspace", "2", "7.0"),
        ("HEAD", "1", "4.0"),
        ("HEAD", "2", "3.5"),
    }
    assert dvc(done, "plots", "show", "artifacts/curve.csv").strip().endswith("dvc_plots/index.html")


@pytest.mark.slow
def test_an_experiment_with_another_setting(done):
    dvc(done, "exp", "run", "-q", "--name", "longer", "-S", "ingest.min_characters=2", "evaluate")
    assert ran(done) == ["pretrain model"], "the data and the model are the same, so nothing else runs"
    experiment = json.loads(dvc(done, "metrics", "diff", "HEAD", "longer", "--json"))
    assert experiment["artifacts/metrics.json"]["loss"] == {"old": 3.5, "new": 7.0, "diff": 3.5}
    setting = json.loads(dvc(done, "params", "diff", "HEAD", "longer", "--json"))["params.yaml"]
    assert setting == {"ingest.min_characters": {"old": 1, "new": 2, "diff": 1}}


def check_remote(done: Path, tmp_path: Path) -> None:
    """A clone that pulls the pushed outputs has nothing to run."""
    git(done, "commit", "-qam", "remote")
    assert "pushed" in dvc(done, "push")
    assert "Everything is up to date" in dvc(done, "push")
    clone = tmp_path / "clone"
    git(done, "clone", "-q", str(done), str(clone))
    shutil.copy(done / ".dvc/config", clone / ".dvc/config")
    dvc(clone, "pull")
    assert (clone / "data/general/a.txt").read_text() == "general text\n"
    assert (clone / "artifacts/scores").read_text() == "domain text\n"
    dvc(clone, "repro", "evaluate")
    assert ran(clone) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_push_and_pull(done, s3, kind, tmp_path_factory):
    s3.create_bucket(Bucket="headstart")
    remote = str(tmp_path_factory.mktemp("remote")) if kind == "folder" else "s3://headstart/dvc"
    dvc(done, "remote", "add", "-d", "store", remote)
    check_remote(done, tmp_path_factory.mktemp("other"))
