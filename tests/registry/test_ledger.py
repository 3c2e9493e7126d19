"""The ledger in the tracking database: its entries, and one history for all clones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import pytest

from components.errors import RegistryError
from components.registry.ledger import LEDGER, Ledger
from components.registry.ledger_entries import in_words
from components.settings.registry import RegistrySettings
from components.tracking import Registry, connect
from tests.registry.aliases import A, M, add, change, promote


def test_entries_are_stored_in_the_tracking_database(registry: Registry) -> None:
    long = {"key": "k", "decision": {"verdict": "reject", "reasons": ["ไทย" * 6000]}}
    written = Ledger(registry).append("decision", model=M, alias=A, expect=None, facts=long)
    (found,) = Ledger(registry).entries()
    assert found.facts == long
    assert (found.position, found.event, found.by, found.time.tzinfo) == (1, "decision", written.by, UTC)
    version = registry.client.get_model_version(LEDGER, "1")
    assert version.description == in_words(written)[:5000], "MLflow's page shows the sentence"
    assert Ledger(registry).entries("headstart-other") == []


def test_an_entry_that_was_written_twice_counts_once(registry: Registry) -> None:
    add(registry, "a")
    for _ in range(2):  # MLflow's client repeats a request that was not answered
        Ledger(registry).write(change(0, "1", expect=0))
    assert [entry.position for entry in Ledger(registry).entries()] == [1]
    assert len(Ledger(registry).state(M, A).changes) == 1


def test_an_entry_of_a_later_version_is_refused(registry: Registry) -> None:
    registry.append(LEDGER, tags={"schema": "2"}, text="", about="")
    with pytest.raises(RegistryError, match=r"^headstart.ledger/1: written by a later version of Headstart; update"):
        Ledger(registry).entries()


def test_a_damaged_entry_is_named(registry: Registry) -> None:
    registry.append(LEDGER, tags={"schema": "1", "entry.000": "{"}, text="", about="")
    with pytest.raises(RegistryError, match=r"^headstart.ledger/1: damaged entry of the ledger"):
        Ledger(registry).entries()


def test_simultaneous_writers_lose_no_entry(registry: Registry) -> None:
    def write(name: str) -> None:
        own = connect(registry.settings)
        for count in range(4):
            Ledger(own).append("alarm", model=M, alias=A, facts={"reason": f"{name}{count}"})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, "abc"))
    entries = Ledger(registry).entries()
    assert [entry.position for entry in entries] == list(range(1, 13))
    assert {entry.facts["reason"] for entry in entries} == {f"{name}{count}" for name in "abc" for count in range(4)}


def test_clones_and_subdirectories_share_one_history(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    promote(registry, add(registry, "a"))
    for folder in (tmp_path, tmp_path / "docs" / "deep"):
        monkeypatch.chdir(folder)
        own = connect(RegistrySettings())  # sqlite:///mlflow.db
        assert own.address == "sqlite:///mlflow.db"
        assert Ledger(own).state(M, A).last is not None
    clone = tmp_path / "clone"
    (clone / ".dvc").mkdir(parents=True)
    monkeypatch.chdir(clone)
    other = connect(registry.settings)
    roll = promote(other, add(other, "b"))
    assert [change.after for change in roll.changes] == ["1", "2"]
    assert [change.after for change in Ledger(registry).state(M, A).changes] == ["1", "2"]
    assert not list(tmp_path.rglob("ledger.jsonl"))
