"""The ledger: total order, compare-and-swap, recovery, changes by hand, import of the file of earlier versions.

Versions have a digest and no files: no change of an alias reads a model.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from components.errors import ArtifactError, RegistryError
from components.registry import alias_changes
from components.registry.alias_changes import OvertakenError, move, observe, roll_back
from components.registry.ledger import LEDGER, Ledger
from components.registry.ledger_entries import OWN, Entry, State, in_words, replay
from components.settings.registry import RegistrySettings
from components.tracking import Registry, Version, connect

M, A = "headstart-letters", "champion"
START = datetime(2026, 11, 24, 3, tzinfo=UTC)


def add(registry: Registry, digest: str) -> Version:
    """Register a version with this content digest."""
    number = registry.append(M, tags={"digest": digest, "kind": "classifier"}, text="", about="")
    return registry.get(M, str(number))


def number(registry: Registry) -> str | None:
    version = registry.alias(M, A)
    return version.number if version is not None else None


def set_by_hand(registry: Registry, version: str) -> None:
    registry.client.set_registered_model_alias(M, A, version)


def promote(registry: Registry, version: Version, action: Any = "promote", **facts: Any) -> State:
    ledger = Ledger(registry)
    state, _, _ = observe(registry, ledger, model=M, alias=A)
    return move(registry, ledger, state, action=action, after=version, reasons=["better"], **facts)


@pytest.fixture
def registry(empty_database: Path, tmp_path: Path) -> Registry:
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return connect(RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db"))


# -- replay ----------------------------------------------------------------------------------------------------------


def change(position: int, after: str, *, expect: int | None, action: str = "promote", **changes: Any) -> Entry:
    facts = {
        "action": action,
        "before": None,
        "after": after,
        "before_digest": "",
        "after_digest": f"d{after}",
        "reasons": [],
        "vetoes": [],
    }
    time = START + timedelta(days=position)
    entry = Entry(position, f"c{position}", time, "change", M, A, "nina@host", expect, OWN, facts=facts)
    return replace(entry, **changes)


def state_of(*entries: Entry) -> State:
    return replay(entries, model=M, alias=A)


def test_of_several_changes_of_the_same_state_the_first_is_accepted() -> None:
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), change(3, "3", expect=1))
    assert [found.after for found in state.changes] == ["1", "2"]
    assert state.position == 2
    # The loser's entry does not count as a change that others must have seen.
    assert state_of(*[change(1, "1", expect=0), change(2, "2", expect=0), change(3, "3", expect=1)]).position == 3


def test_entries_of_other_aliases_and_models_do_not_count() -> None:
    other = [change(2, "2", expect=1, alias="best"), change(3, "3", expect=1, model="headstart-other")]
    assert [found.after for found in state_of(change(1, "1", expect=0), *other).changes] == ["1"]


def test_an_abandoned_change_is_none() -> None:
    abandoned = replace(change(3, "", expect=2), event="abandoned", facts={"change": "c2", "reason": "gone"})
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), abandoned)
    assert state.last is not None
    assert (state.last.after, state.position) == ("1", 3)


def test_the_champion_at_a_time() -> None:
    state = state_of(change(1, "1", expect=0), change(3, "2", expect=1))
    assert state.at(START) is None
    found = [state.at(START + timedelta(days=days)) for days in (1, 2, 3, 9)]
    assert [change.after for change in found if change] == ["1", "1", "2", "2"]


def test_a_rollback_removes_later_champions_and_any_other_change_adds_one() -> None:
    rolled = change(4, "1", expect=3, action="rollback")
    first = [change(1, "1", expect=0), change(2, "2", expect=1), change(3, "3", expect=2)]
    assert [number for number, _ in state_of(*first, rolled).champions] == ["1"]
    by_hand = change(4, "1", expect=3, action="hand")
    assert [number for number, _ in state_of(*first, by_hand).champions] == ["1", "2", "3", "1"]


def test_a_veto_ends_when_a_person_chooses_the_content_again() -> None:
    facts = change(2, "1", expect=1).facts
    vetoed = change(2, "1", expect=1, facts={**facts, "action": "rollback", "vetoes": ["d2", "d3"]})
    assert state_of(change(1, "2", expect=0), vetoed).vetoes.keys() == {"d2", "d3"}
    promoted = change(3, "2", expect=2)
    assert state_of(change(1, "2", expect=0), vetoed, promoted).vetoes.keys() == {"d2", "d3"}
    chosen = change(3, "2", expect=2, action="assign")
    assert state_of(change(1, "2", expect=0), vetoed, chosen).vetoes.keys() == {"d3"}


def decision(position: int, candidate: str, champion: str | None) -> Entry:
    facts = {"key": f"k{position}", "decision": {"candidate": {"digest": candidate}, "champion": None}}
    if champion is not None:
        facts["decision"]["champion"] = {"digest": champion}  # type: ignore[index]
    return replace(change(position, "", expect=None), event="decision", facts=facts)


@pytest.mark.parametrize(
    ("entries", "candidate", "held"),
    [
        # 1 and 2 were promoted; a person returns to 1.
        ([change(5, "1", expect=2, action="hand")], "d2", True),
        ([change(5, "1", expect=2, action="hand")], "new", False),
        ([change(5, "1", expect=2, action="hand")], "d1", False),  # the champion itself
        ([change(5, "1", expect=2, action="hand")], "", False),  # not made by Headstart
        ([change(5, "1", expect=2, action="assign")], "d2", True),
        ([change(5, "1", expect=2, action="promote")], "d2", False),
        ([decision(3, "x", "d1"), change(5, "1", expect=2, action="hand")], "x", True),
        ([decision(3, "x", "d2"), change(5, "1", expect=2, action="hand")], "x", False),
        ([change(5, "1", expect=2, action="hand"), decision(6, "x", "d1")], "x", False),
        ([change(5, "1", expect=2, action="hand"), change(6, "3", expect=5)], "d2", False),  # a new one has won
    ],
)
def test_a_champion_that_a_person_has_chosen_stays_until_a_new_candidate(
    entries: list[Entry], candidate: str, held: bool
) -> None:
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), *entries)
    assert (state.held_by(candidate) is not None) == held


# -- storage ---------------------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Tracking URI of an empty database of a Postgres server that runs for the tests."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("needs initdb and pg_ctl of Postgres")
    user = None
    with tempfile.TemporaryDirectory(prefix="headstart-postgres-", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:  # Postgres does not run as root
            user = "nobody"
            shutil.chown(name, user)

        def run(*command: str) -> None:
            done = subprocess.run(command, user=user, cwd=name, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert done.returncode == 0, done.stderr

        run("initdb", "-A", "trust", "-U", "me", f"{name}/data")
        options = f"-c listen_addresses='' -c unix_socket_directories='{name}' -F"
        run("pg_ctl", "-D", f"{name}/data", "-w", "-l", f"{name}/log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg2://me@/postgres?host={name}"
        finally:
            run("pg_ctl", "-D", f"{name}/data", "-m", "immediate", "stop")


def _contend(uri: str, rounds: int, barrier: Any, version: str, results: Any) -> None:
    registry = connect(RegistrySettings(tracking=uri))
    ledger, own = Ledger(registry), registry.get(M, version)
    for _ in range(rounds):
        state, _, _ = observe(registry, ledger, model=M, alias=A)
        barrier.wait(120)
        try:
            move(registry, ledger, state, action="promote", after=own, reasons=[])
            results.put((state.position, version))
        except OvertakenError:
            results.put((state.position, None))
        barrier.wait(120)


def contend(uri: str, *, rounds: int, starter: Callable[..., Any], barrier: Any, results: Any) -> None:
    """Two processes change the same state at once, several times: in each round exactly one wins, and the alias is the
    last winner's."""
    registry = connect(RegistrySettings(tracking=uri))
    first, *rivals = (add(registry, digest) for digest in ("a", "b", "c"))
    begun = len(promote(registry, first).changes)
    workers = [starter(target=_contend, args=(uri, rounds, barrier, rival.number, results)) for rival in rivals]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=240) for _ in range(2 * rounds)]
    for worker in workers:
        worker.join(60)
    winners: dict[int, list[str]] = {}
    for position, version in found:
        winners.setdefault(position, []).extend([version] if version else [])
    assert len(winners) == rounds, "both started each round from the same state"
    assert all(len(versions) == 1 for versions in winners.values())
    state = Ledger(registry).state(M, A)
    assert [change.after for change in state.changes[begun:]] == [winners[position][0] for position in sorted(winners)]
    assert number(registry) == winners[max(winners)][0]


def test_of_two_processes_that_promote_at_once_exactly_one_wins(registry: Registry) -> None:
    context = multiprocessing.get_context("spawn")
    contend(registry.uri, rounds=3, starter=context.Process, barrier=context.Barrier(2), results=context.Queue())


@pytest.mark.slow
def test_of_two_processes_that_promote_at_once_exactly_one_wins_on_postgres(postgres: str) -> None:
    context = multiprocessing.get_context("spawn")
    contend(postgres, rounds=5, starter=context.Process, barrier=context.Barrier(2), results=context.Queue())


# -- changes ---------------------------------------------------------------------------------------------------------


def test_a_change_of_another_state_is_refused_and_changes_nothing(registry: Registry) -> None:
    versions = [add(registry, digest) for digest in "abc"]
    promote(registry, versions[0])
    ledger = Ledger(registry)
    seen, _, _ = observe(registry, ledger, model=M, alias=A)
    promote(registry, versions[1])

    with pytest.raises(OvertakenError, match=rf"^{M}@{A}: was moved from version 1 to 2 meanwhile; run this again$"):
        move(registry, ledger, seen, action="promote", after=versions[2], reasons=[])
    assert number(registry) == "2"


def test_a_writer_that_was_suspended_does_not_overwrite_a_newer_change(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [add(registry, digest) for digest in "ab"]
    promote(registry, versions[0])
    original, other = Registry.set_alias, connect(registry.settings)

    def late(self: Registry, name: str, alias: str, version: Version) -> None:
        monkeypatch.setattr(Registry, "set_alias", original)
        # Another process finds the recorded change, applies it, and rolls it back before this request.
        roll_back(other, Ledger(other), model=M, alias=A)
        assert number(registry) == "1"
        original(self, name, alias, version)

    monkeypatch.setattr(Registry, "set_alias", late)
    promote(registry, versions[1])
    assert number(registry) == "1"
    assert Ledger(registry).state(M, A).vetoes.keys() == {"b"}


def test_the_late_request_of_a_writer_that_died_is_no_move_by_hand(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [add(registry, digest) for digest in "abc"]
    promote(registry, versions[0])
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark_done", lambda *_: None)  # the writer died
        promote(registry, versions[1])
        promote(registry, versions[2])
    set_by_hand(registry, "2")  # its request arrives

    state, present, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert present is not None and present.number == "3" == number(registry)
    assert [change.action for change in state.changes] == ["promote"] * 3
    assert sentences == [f"interrupted promote of {M} from version 2 to 3: finished"]

    # Much later it is a person.
    monkeypatch.setattr(alias_changes, "LATE", timedelta(0))
    set_by_hand(registry, "2")
    state, present, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert present is not None and present.number == "2"
    assert sentences == [f"{M}@{A}: version 2 was set by hand in MLflow; it is respected"]


def test_a_move_by_hand_is_recorded_once(registry: Registry) -> None:
    versions = [add(registry, digest) for digest in "ab"]
    for version in versions:
        promote(registry, version)
    set_by_hand(registry, "1")
    for _ in range(2):
        state, present, _ = observe(registry, Ledger(registry), model=M, alias=A)
        assert present is not None and present.number == "1"
    assert [(change.action, change.before, change.after) for change in state.changes] == [
        ("promote", None, "1"),
        ("promote", "1", "2"),
        ("hand", "2", "1"),
    ]
    assert state.last is not None and (state.last.before_digest, state.last.after_digest) == ("b", "a")


def test_a_move_by_hand_between_observation_and_change_is_respected(registry: Registry) -> None:
    versions = [add(registry, digest) for digest in "abc"]
    promote(registry, versions[0])
    ledger = Ledger(registry)
    seen, _, _ = observe(registry, ledger, model=M, alias=A)
    set_by_hand(registry, "2")
    with pytest.raises(OvertakenError, match="the alias was moved to version 2 by hand meanwhile; run this again"):
        move(registry, ledger, seen, action="promote", after=versions[2], reasons=[])
    assert number(registry) == "2"
    state, _, _ = observe(registry, ledger, model=M, alias=A)
    assert [change.action for change in state.changes] == ["promote", "hand"]


def test_an_interrupted_change_is_abandoned_after_a_move_by_hand(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [add(registry, digest) for digest in "abc"]
    promote(registry, versions[0])
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "set_alias", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            promote(registry, versions[1])
    set_by_hand(registry, "3")

    state, _, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert sentences == [
        f"interrupted promote of {M} from version 1 to 2: abandoned, the alias now points to version 3",
        f"{M}@{A}: version 3 was set by hand in MLflow; it is respected",
    ]
    assert [number for number, _ in state.champions] == ["1", "3"]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_change_to_a_deleted_version_is_abandoned(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [add(registry, digest) for digest in "ab"]
    promote(registry, versions[0])
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "set_alias", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            promote(registry, versions[1])
    registry.client.delete_model_version(M, "2")
    state, present, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert sentences == [f"interrupted promote of {M} from version 1 to 2: abandoned, version 2 was deleted"]
    assert present is not None and present.number == "1"
    assert state.last is not None and state.last.after == "1"


def test_a_process_that_ends_at_any_request_leaves_nothing_that_needs_a_person(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [add(registry, digest) for digest in "abcdefgh"]
    promote(registry, versions[0])
    requests: list[str] = []
    limit = 0

    def counted(name: str) -> None:
        original = getattr(Registry, name)

        def request(self: Registry, *arguments: Any, **keywords: Any) -> Any:
            requests.append(name)
            if len(requests) == limit:
                raise KeyboardInterrupt  # before the request
            found = original(self, *arguments, **keywords)
            if len(requests) + 0.5 == limit:
                raise KeyboardInterrupt  # after it
            return found

        monkeypatch.setattr(Registry, name, request)

    for name in ("append", "set_alias", "set_tag"):
        counted(name)
    steps = ["append", "set_alias", "set_tag"]
    for limit, version in zip((1, 1.5, 2, 2.5, 3, 3.5), versions[1:], strict=False):
        before = number(registry)
        requests.clear()
        with pytest.raises(KeyboardInterrupt):
            promote(registry, version)
        assert requests == steps[: int(limit)]
        expected, limit = before if limit == 1 else version.number, 0
        _, present, _ = observe(registry, Ledger(registry), model=M, alias=A)
        assert present is not None and present.number == number(registry) == expected
        last = Ledger(registry).state(M, A).last
        assert last is not None and last.after == present.number and last.entry.done
    assert {change.action for change in Ledger(registry).state(M, A).changes} == {"promote"}


@pytest.mark.parametrize("what", ["alias", "version"])
def test_a_deleted_champion_is_an_alarm(registry: Registry, what: str) -> None:
    promote(registry, add(registry, "a"))
    if what == "alias":
        registry.client.delete_registered_model_alias(M, A)
    else:
        registry.client.delete_model_version(M, "1")
    message = (
        rf"^{M}@{A}: version 1 was the champion, and the {what} was deleted in MLflow; choose a champion with "
        r"`headstart promote --version V --reason TEXT` or `headstart rollback`, or restore the alias in MLflow$"
    )
    for _ in range(2):
        with pytest.raises(RegistryError, match=message):
            observe(registry, Ledger(registry), model=M, alias=A)
    assert [entry.event for entry in Ledger(registry).entries()] == ["change", "alarm"], "recorded once"


def test_rollback_passes_over_deleted_versions_and_vetoes_what_it_leaves(registry: Registry) -> None:
    versions = [add(registry, digest) for digest in "abcd"]
    for version in versions:
        promote(registry, version)
    registry.client.delete_model_version(M, "3")
    state, left, restored, passed = roll_back(registry, Ledger(registry), model=M, alias=A)
    assert (left, restored.number, passed, number(registry)) == ("4", "2", ["3"], "2")
    assert state.vetoes.keys() == {"c", "d"}
    assert "rolled_back" in registry.get(M, "4").tags

    # A vetoed content that a person chooses, and its rollback by number.
    promote(registry, registry.get(M, "4"), action="assign")
    state, left, restored, _ = roll_back(registry, Ledger(registry), model=M, alias=A, to="1")
    assert (left, restored.number, number(registry)) == ("4", "1", "1")
    assert state.vetoes.keys() == {"b", "c", "d"}
    with pytest.raises(RegistryError, match=rf"^{M}: no champion is recorded before version 1 that still exists"):
        roll_back(registry, Ledger(registry), model=M, alias=A)


def test_rollback_to_a_version_that_was_no_champion_or_is_deleted(registry: Registry) -> None:
    versions = [add(registry, digest) for digest in "abc"]
    promote(registry, versions[0])
    promote(registry, versions[1])
    for wrong in ("3", "2", "9"):
        with pytest.raises(RegistryError, match=rf"^{M}: version {wrong} is no champion before version 2 that exists"):
            roll_back(registry, Ledger(registry), model=M, alias=A, to=wrong)
    registry.client.delete_model_version(M, "1")
    with pytest.raises(RegistryError, match=r"version 1 is no champion before version 2 that exists \(champions: 1\)"):
        roll_back(registry, Ledger(registry), model=M, alias=A, to="1")


def test_rollback_restores_the_previous_champion_of_a_deleted_one(registry: Registry) -> None:
    for digest in "ab":
        promote(registry, add(registry, digest))
    registry.client.delete_model_version(M, "2")
    state, left, restored, _ = roll_back(registry, Ledger(registry), model=M, alias=A)
    assert (left, restored.number, number(registry)) == ("2", "1", "1")
    assert state.vetoes.keys() == {"b"}


def test_numbers_that_start_again_are_other_versions(registry: Registry) -> None:
    for digest in "ab":
        promote(registry, add(registry, digest))
    registry.client.delete_registered_model(M)
    with pytest.raises(RegistryError, match="version 2 was the champion, and the version was deleted"):
        observe(registry, Ledger(registry), model=M, alias=A)
    add(registry, "other")
    with pytest.raises(RegistryError, match=r"no champion is recorded before version 2 that still exists"):
        roll_back(registry, Ledger(registry), model=M, alias=A)  # version 1 is not the former champion
    add(registry, "another")
    set_by_hand(registry, "2")
    state, _, _ = observe(registry, Ledger(registry), model=M, alias=A)
    assert [(change.action, change.after_digest) for change in state.changes][-1] == ("hand", "another")


# -- one history -----------------------------------------------------------------------------------------------------


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


# -- import ----------------------------------------------------------------------------------------------------------


def legacy(uri: str, *lines: dict[str, Any]) -> str:
    found = []
    for index, line in enumerate(lines):
        time = (START - timedelta(days=30 - index)).isoformat(timespec="milliseconds")
        found.append(json.dumps({"time": time, "uri": uri, "model": M, "alias": A, "reasons": ["r"], **line}) + "\n")
    return "".join(found)


def test_the_file_of_an_earlier_version_is_imported_once(registry: Registry, tmp_path: Path) -> None:
    for digest in "abc":
        add(registry, digest)
    set_by_hand(registry, "1")
    decided = {"verdict": "promote", "gain": 0.1, "reasons": ["r"], "candidate": {"digest": "b"}, "champion": None}
    file = tmp_path / "old" / "ledger.jsonl"
    file.parent.mkdir()
    content = legacy(
        registry.address,
        {"event": "intent", "id": "1", "action": "promote", "before": None, "after": "1", "history": ["1"]},
        {"event": "done", "id": "1", "recovered": False},
        {"event": "decision", "id": "2", "key": "k", "decision": decided},
        {"event": "intent", "id": "3", "action": "promote", "before": "1", "after": "2", "history": ["1", "2"]},
        {"event": "done", "id": "3", "recovered": False},
        {"event": "intent", "id": "4", "action": "promote", "before": "2", "after": "3", "history": ["1", "2", "3"]},
        {"event": "abandoned", "id": "4", "reason": "r"},
        {"event": "intent", "id": "5", "action": "rollback", "before": "2", "after": "1", "history": ["1"]},
        {"event": "done", "id": "5", "recovered": False},
        {"event": "decision", "id": "6", "key": "k", "decision": decided, "model": "headstart-no-such-model"},
    )
    other = legacy("sqlite:///elsewhere.db", {"event": "decision", "id": "7", "key": "k", "decision": decided})
    file.write_text(content + other + '{"event": "do')  # a crash has left half a line

    for _ in range(2):
        state = Ledger(registry, legacy=file).state(M, A)
        assert [(change.action, change.after) for change in state.changes] == [
            ("promote", "1"),
            ("promote", "2"),
            ("rollback", "1"),
        ]
        assert [number for number, _ in state.champions] == ["1"]
        assert state.vetoes.keys() == {"b"}
        assert [entry.facts["key"] for entry in state.decisions] == ["k"]
        assert len(Ledger(registry).entries()) == 4
    assert file.read_text() == other, "of another address, which may be used again"
    assert file.with_name("ledger.jsonl.imported").read_text().startswith(content)

    # Another clone imports its own file later; what was recorded since then stays the last change.
    promote(registry, registry.get(M, "3"))
    file.write_text(
        legacy(
            registry.address,
            {"event": "intent", "id": "8", "action": "promote", "before": None, "after": "2", "history": ["2"]},
            {"event": "done", "id": "8", "recovered": False},
        )
    )
    state = Ledger(registry, legacy=file).state(M, A)
    assert not file.exists()
    assert [change.after for change in state.changes] == ["1", "2", "2", "1", "3"], "by time; then what came after"
    assert promote(registry, registry.get(M, "2")).last.after == "2"  # type: ignore[union-attr]


def test_the_file_is_found_in_the_repository(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(registry, "a")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs").mkdir()
    file = tmp_path / ".headstart" / "ledger.jsonl"
    file.parent.mkdir()
    intent = {"event": "intent", "id": "1", "action": "promote", "before": None, "after": "1", "history": ["1"]}
    file.write_text(legacy(registry.address, intent))
    monkeypatch.chdir(tmp_path / "docs")
    _, _, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert sentences == [f"interrupted promote of {M} from version none to 1: finished"]
    assert number(registry) == "1"


@pytest.mark.parametrize("line", ["no json", "[]", '{"event": "done"}', '{"event": "intent", "id": "1"}'])
def test_a_damaged_file_is_named_and_not_imported(registry: Registry, tmp_path: Path, line: str) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(ArtifactError, match=r"ledger.jsonl:1: damaged .* restore or remove the file"):
        Ledger(registry, legacy=file)
    assert file.exists()
