"""Whether somebody has written to the registry since the last run, for each kind of registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import registry
from flows.repository import STATE

from .conftest import ROOT


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings whose registry is registry.db beside them, which is not there yet."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///registry.db")
    (tmp_path / STATE).mkdir()
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    return tmp_path / "params.yaml"


def test_a_database_and_its_journals(params: Path) -> None:
    root = params.parent
    registry.leave(params, root=root)
    assert not registry.is_as_left(params, root=root), "there is none yet"
    for name in ("registry.db", "registry.db-wal", "registry.db"):
        with (root / name).open("a") as file:
            file.write("a model")
        assert not registry.is_as_left(params, root=root), name
        registry.leave(params, root=root)
        assert registry.is_as_left(params, root=root), name


def test_another_registry(params: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = params.parent
    for name in ("one.db", "other.db"):
        (root / name).write_text("a model")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{name}")
        assert not registry.is_as_left(params, root=root), name
        registry.leave(params, root=root)
        assert registry.is_as_left(params, root=root), name


def test_of_other_settings_nothing_is_known(params: Path) -> None:
    root, row = params.parent, params.with_name("row.yaml")
    row.write_text(params.read_text())
    (root / "registry.db").write_text("a model")
    registry.leave(params, root=root)
    assert not registry.is_as_left(row, root=root)
    registry.leave(row, root=root)
    assert registry.is_as_left(params, root=root), "the one is noted beside the other"


def test_only_a_server_could_tell(params: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    registry.leave(params, root=params.parent)
    assert not registry.is_as_left(params, root=params.parent)


def test_a_damaged_note(params: Path) -> None:
    root = params.parent
    (root / "registry.db").write_text("a model")
    (root / STATE / "registry.json").write_text("{")
    assert not registry.is_as_left(params, root=root)
    registry.leave(params, root=root)
    assert registry.is_as_left(params, root=root)
