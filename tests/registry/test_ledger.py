"""The ledger in the tracking database: its entries, the state that follows, and one history for all clones."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC

import pytest

from components.core.errors import RegistryError
from components.registry.ledger import ABANDONED, LEDGER, Entry, Ledger, State, replay
from components.registry.tracking import Log, connect
from components.settings.registry import RegistrySettings
from tests.registry.aliases import A, M, add, change, promote


def test_an_entry_of_a_later_version_is_refused(registry):
    Log(registry, LEDGER).append(1, json.dumps({"schema": 9}), identifier="x")
    with pytest.raises(RegistryError, match=r"^headstart.ledger, 1: written by a later version of Headstart; update"):
        Ledger(registry).entries()


def test_a_deleted_ledger_is_not_an_empty_one(registry):
    promote(registry, add(registry, "a"))
    (run,) = registry.client.search_runs([registry.client.get_experiment_by_name(LEDGER).experiment_id])
    registry.client.delete_run(run.info.run_id)
    with pytest.raises(
        RegistryError, match=r"its run was deleted in MLflow; restore it: `mlflow runs restore --run-id"
    ):
        Ledger(registry).entries()


def test_passwords_are_masked(registry):
    Ledger(registry).append("note", model=M, facts={"reason": "see postgresql://u:secret@db/x"})
    (entry,) = Ledger(registry).entries()
    assert entry["reason"] == "see postgresql://u:***@db/x"


def test_simultaneous_writers_lose_no_entry(registry):
    def write(name):
        mine = Ledger(connect(registry.settings))
        for count in range(4):
            mine.append("note", model=M, facts={"reason": f"{name}{count}"})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, "abc"))
    entries = Ledger(registry).entries()
    assert [entry.position for entry in entries] == list(range(1, 13))
    assert {entry["reason"] for entry in entries} == {f"{name}{count}" for name in "abc" for count in range(4)}


def test_clones_and_subdirectories_share_one_history(registry, tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    promote(registry, add(registry, "a"))
    for folder in (tmp_path, tmp_path / "docs" / "deep"):
        monkeypatch.chdir(folder)
        mine = connect(RegistrySettings())  # sqlite:///mlflow.db
        assert mine.address == "sqlite:///mlflow.db"
        assert Ledger(mine).state(M).last is not None
    clone = tmp_path / "clone"
    (clone / ".dvc").mkdir(parents=True)
    monkeypatch.chdir(clone)
    other = connect(registry.settings)
    state = promote(other, add(other, "b"))
    assert [change["after"] for change in state.changes] == ["1", "2"]
    assert [change["after"] for change in Ledger(registry).state(M).changes] == ["1", "2"]


def test_a_ledger_of_an_early_version_is_refused(registry):
    """It had a registered model, whose versions were the entries."""
    add(registry, "", LEDGER, schema="1")
    with pytest.raises(RegistryError, match=rf"^the registered model {LEDGER} has the ledger of an early version"):
        Ledger(registry).entries()


def state_of(*entries: Entry) -> State:
    return replay(entries, model=M, alias=A)


def test_entries_of_other_aliases_and_models_and_abandoned_changes_do_not_count():
    others = [change(2, "2", alias="best"), change(3, "3", model="headstart-other"), change(4, "4", mark=ABANDONED)]
    assert [each["after"] for each in state_of(change(1, "1"), *others).changes] == ["1"]


def test_a_rollback_removes_later_champions_and_any_other_change_adds_one():
    first = [change(1, "1"), change(2, "2"), change(3, "3")]
    assert [number for number, _ in state_of(*first, change(4, "1", "rollback")).champions] == ["1"]
    assert [number for number, _ in state_of(*first, change(4, "1", "hand")).champions] == ["1", "2", "3", "1"]


def test_a_veto_ends_when_a_person_chooses_the_content_again():
    facts = {**change(2, "1", "rollback").facts, "vetoes": ["d2", "d3"]}
    entries = [change(1, "2"), change(2, "1", facts=facts)]
    assert state_of(*entries).vetoes.keys() == {"d2", "d3"}
    assert state_of(*entries, change(3, "2")).vetoes.keys() == {"d2", "d3"}
    assert state_of(*entries, change(3, "2", "assign")).vetoes.keys() == {"d3"}


def decision(position: int, candidate: str, champion: str) -> Entry:
    made = {"candidate": {"digest": candidate}, "champion": {"digest": champion}}
    return replace(change(position, ""), event="decision", facts={"key": f"k{position}", "decision": made})


@pytest.mark.parametrize(
    ("entries", "candidate", "held"),
    [
        # 1 and 2 were promoted; a person returns to 1.
        ([change(5, "1", "hand")], "d2", True),
        ([change(5, "1", "hand")], "new", False),
        ([change(5, "1", "hand")], "d1", False),  # the champion itself
        ([change(5, "1", "hand")], "", False),  # not made by Headstart
        ([change(5, "1", "assign")], "d2", True),
        ([change(5, "1", "promote")], "d2", False),
        ([decision(3, "x", "d1"), change(5, "1", "hand")], "x", True),
        ([decision(3, "x", "d2"), change(5, "1", "hand")], "x", False),
        ([change(5, "1", "hand"), decision(6, "x", "d1")], "x", False),
        ([change(5, "1", "hand"), change(6, "3")], "d2", False),  # a new one has won
    ],
)
def test_a_champion_that_a_person_has_chosen_stays_until_a_new_candidate(entries, candidate, held):
    state = state_of(change(1, "1"), change(2, "2"), *entries)
    assert (state.held_by(candidate) is not None) == held


def test_entries_are_stored_in_the_tracking_database(registry):
    long = {"key": "k", "decision": {"verdict": "reject", "reasons": ["ไทย" * 6000]}}
    written = Ledger(registry).append("decision", model=M, facts=long)
    (entry,) = Ledger(registry).entries()
    assert entry.facts == long and entry == written
    assert (entry.position, entry.event, entry.time.tzinfo) == (1, "decision", UTC)
    assert Ledger(registry).entries("headstart-other") == []


def test_a_position_is_written_once(registry):
    log = Log(registry, LEDGER)
    assert log.append(1, "{}", identifier="x")
    assert log.append(1, "{}", identifier="x"), "MLflow's client repeats a request that was not answered"
    assert not log.append(1, "[]", identifier="y")
    assert log.read()[0] == {1: "{}"}
