"""Whether the registry has changed since the last run, for each kind of registry."""

from pathlib import Path

import pytest

from flows.repository import STATE, Project
from flows.run import record_registry, registry_is_unchanged

from .conftest import ROOT


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings whose registry is registry.db in the same folder, which does not exist yet."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///registry.db")
    monkeypatch.chdir(tmp_path)
    (tmp_path / STATE).mkdir()
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    return tmp_path / "params.yaml"


def test_a_database_and_its_journals(params):
    project = Project(params)
    record_registry(project)
    assert not registry_is_unchanged(project), "the database does not exist"
    for name in ("registry.db", "registry.db-wal", "registry.db"):
        with params.with_name(name).open("a") as file:
            file.write("a model")
        assert not registry_is_unchanged(project), name
        record_registry(project)
        assert registry_is_unchanged(project), name


def test_a_record_holds_for_one_registry_and_one_settings_file(params, monkeypatch):
    row = params.with_name("row.yaml")
    row.write_text(params.read_text())
    (params.parent / ".dvc").mkdir()
    for name in ("a.db", "other.db"):
        params.with_name(name).write_text("a model")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{name}")
        for project in map(Project, (params, row)):
            assert not registry_is_unchanged(project), name
            record_registry(project)
        assert registry_is_unchanged(Project(params)), "the earlier record is kept"


def test_a_remote_registry_is_never_unchanged(params, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    record_registry(Project(params))
    assert not registry_is_unchanged(Project(params))
