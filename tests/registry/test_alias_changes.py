"""Changes of an alias: one of several writers wins, recovery, changes by hand, rollback."""

import multiprocessing
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import timedelta

import pytest

from components.core.errors import RegistryError
from components.registry.explain import in_words
from components.registry.ledger import Ledger, OvertakenError, move, rollback
from components.registry.tracking import Log, Registry, Version, connect
from tests.registry.aliases import A, M, add, begun, contend, number, observed, promote, set_by_hand, state_of


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


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_of_two_processes_that_promote_at_once_exactly_one_wins(database, request):
    uri = request.getfixturevalue("postgres") if database == "postgres" else request.getfixturevalue("registry").uri
    context = multiprocessing.get_context("spawn")
    contend(uri, rounds=3, starter=context.Process, barrier=context.Barrier(2), results=context.Queue())


def test_a_change_of_another_state_is_refused_and_changes_nothing(registry):
    versions = begun(registry, "abc")
    ledger = Ledger(registry)
    seen, _, _ = observed(registry)
    promote(registry, versions[1])

    with pytest.raises(OvertakenError, match=rf"^{M}@{A}: was moved from version 1 to 2 meanwhile; run this again$"):
        move(ledger, seen, action="promote", after=versions[2], reasons=[])
    assert number(registry) == "2"


def test_a_writer_that_was_suspended_does_not_overwrite_a_newer_change(registry, monkeypatch):
    versions = begun(registry, "ab")
    original, other = Registry.set_alias, connect(registry.settings)

    def late(self, name, alias, version):
        monkeypatch.setattr(Registry, "set_alias", original)
        # Another process finds the recorded change, applies it, and rolls it back before this request.
        rollback(other.settings, "letters")
        assert number(registry) == "1"
        original(self, name, alias, version)

    monkeypatch.setattr(Registry, "set_alias", late)
    promote(registry, versions[1])
    assert number(registry) == "1"
    assert state_of(registry).vetoes.keys() == {"b"}


def test_the_late_request_of_a_writer_that_died_is_no_move_by_hand(registry, monkeypatch):
    versions = begun(registry, "abc")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", lambda *_: None)  # the writer died
        promote(registry, versions[1])
        promote(registry, versions[2])
    set_by_hand(registry, "2")  # its request arrives

    state, present, sentences = observed(registry)
    assert present is not None and present.number == "3" == number(registry)
    assert [change["action"] for change in state.changes] == ["promote"] * 3
    assert sentences == [f"interrupted promote of {M} from version 2 to 3: finished"]

    # Much later it is a person.
    monkeypatch.setattr("components.registry.ledger.LATE", timedelta(0))
    set_by_hand(registry, "2")
    state, present, sentences = observed(registry)
    assert present is not None and present.number == "2"
    assert sentences == [f"{M}@{A}: version 2 was set by hand in MLflow; it is respected"]


def test_a_move_by_hand_between_observation_and_change_is_respected(registry):
    versions = begun(registry, "abc")
    ledger = Ledger(registry)
    seen, _, _ = observed(registry)
    set_by_hand(registry, "2")
    with pytest.raises(OvertakenError, match="the alias was moved to version 2 by hand meanwhile; run this again"):
        move(ledger, seen, action="promote", after=versions[2], reasons=[])
    assert number(registry) == "2"
    state, _, _ = observed(registry)
    assert [change["action"] for change in state.changes] == ["promote", "hand"]


def _interrupted_promote(registry: Registry, version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is recorded, and the alias is not moved."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "set_alias", interrupt)
        with pytest.raises(KeyboardInterrupt):
            promote(registry, version)


def test_an_interrupted_change_is_abandoned_after_a_move_by_hand_or_if_its_version_is_deleted(registry, monkeypatch):
    versions = begun(registry, "abc")
    _interrupted_promote(registry, versions[1], monkeypatch)
    set_by_hand(registry, "3")
    state, _, sentences = observed(registry)
    assert sentences == [
        f"interrupted promote of {M} from version 1 to 2: abandoned, the alias now points to version 3",
        f"{M}@{A}: version 3 was set by hand in MLflow; it is respected",
    ]
    assert [number for number, _ in state.champions] == ["1", "3"]
    _interrupted_promote(registry, versions[1], monkeypatch)
    registry.client.delete_model_version(M, "2")
    state, present, sentences = observed(registry)
    assert sentences == [f"interrupted promote of {M} from version 3 to 2: abandoned, version 2 was deleted"]
    assert present is not None and state.last is not None and present.number == state.last["after"] == "3"


def test_a_process_that_ends_at_any_request_leaves_nothing_that_needs_a_person(registry, monkeypatch):
    versions = begun(registry, "abcdefgh")
    requests: list[str] = []
    limit = 0

    def counted(owner, name):
        original = getattr(owner, name)

        def request(self, *arguments, **keywords):
            requests.append(name)
            if len(requests) == limit:
                raise KeyboardInterrupt  # before the request
            result = original(self, *arguments, **keywords)
            if len(requests) + 0.5 == limit:
                raise KeyboardInterrupt  # after it
            return result

        monkeypatch.setattr(owner, name, request)

    counted(Log, "append")
    counted(Registry, "set_alias")
    counted(Log, "mark")
    steps = ["append", "set_alias", "mark"]
    for limit, version in zip((1, 1.5, 2, 2.5, 3, 3.5), versions[1:], strict=False):
        before = number(registry)
        requests.clear()
        with pytest.raises(KeyboardInterrupt):
            promote(registry, version)
        assert requests == steps[: int(limit)]
        expected, limit = before if limit == 1 else version.number, 0
        _, present, _ = observed(registry)
        assert present is not None and present.number == number(registry) == expected
        last = state_of(registry).last
        assert last is not None and last["after"] == present.number and last.mark
    assert {change["action"] for change in state_of(registry).changes} == {"promote"}


def test_rollback_passes_over_deleted_versions_and_vetoes_what_it_leaves(registry):
    for version in begun(registry, "abcd")[1:]:
        promote(registry, version)
    registry.client.delete_model_version(M, "3")
    lines = ["version 3 was deleted and is passed over", f"{M}@{A}: version 2 restored, version 4 rolled back"]
    assert rollback(registry.settings, "letters") == lines
    assert number(registry) == "2"
    assert state_of(registry).vetoes.keys() == {"c", "d"}

    # A vetoed content that a person chooses, and its rollback by number.
    promote(registry, registry.get(M, "4"), action="assign")
    lines = rollback(registry.settings, "letters", to="1")
    assert (lines, number(registry)) == ([f"{M}@{A}: version 1 restored, version 4 rolled back"], "1")
    assert state_of(registry).vetoes.keys() == {"b", "c", "d"}
    with pytest.raises(RegistryError, match=rf"^{M}: no champion is recorded before version 1 that still exists"):
        rollback(registry.settings, "letters")


def test_rollback_to_a_version_that_was_no_champion_or_is_deleted(registry):
    promote(registry, begun(registry, "abc")[1])
    for wrong in ("3", "2", "9"):
        with pytest.raises(RegistryError, match=rf"^{M}: version {wrong} is no champion before version 2 that exists"):
            rollback(registry.settings, "letters", to=wrong)
    registry.client.delete_model_version(M, "1")
    with pytest.raises(RegistryError, match=r"version 1 is no champion before version 2 that exists \(champions: 1\)"):
        rollback(registry.settings, "letters", to="1")


def test_numbers_that_start_again_are_other_versions(registry):
    for digest in "ab":
        promote(registry, add(registry, digest))
    registry.client.delete_registered_model(M)
    with pytest.raises(RegistryError, match="version 2 was the champion, and the version was deleted"):
        observed(registry)
    add(registry, "other")
    with pytest.raises(RegistryError, match=r"no champion is recorded before version 2 that still exists"):
        rollback(registry.settings, "letters")  # version 1 is not the former champion
    add(registry, "another")
    set_by_hand(registry, "2")
    state, _, _ = observed(registry)
    assert [(change["action"], change["after_digest"]) for change in state.changes][-1] == ("hand", "another")


@pytest.mark.parametrize(
    "secret", ["headstart", "rollback", "promote1", "12345678", "headstart-letters", "after_digest"]
)
def test_a_password_that_equals_a_word_of_an_entry_changes_no_alias_and_no_history(secret, registry, monkeypatch):
    monkeypatch.setenv("POSTGRES_PASSWORD", secret)
    first, second = add(registry, f"{secret}-a"), add(registry, f"{secret}-b")
    promote(registry, first)
    promote(registry, second)
    ledger = Ledger(registry)
    state, _, _ = observed(registry)
    reasons = [f"bad answers, see {secret}"]
    move(ledger, state, action="rollback", after=first, reasons=reasons, vetoes=[second.digest])
    assert number(registry) == first.number
    last = state_of(registry).last
    assert last is not None
    assert (last["action"], last["after"], last["after_digest"]) == ("rollback", first.number, f"{secret}-a")
    assert last["reasons"] == ["bad answers, see ***"]
    assert [in_words(entry) for entry in ledger.entries()][-1].count("restored") == 1


def test_an_entry_that_is_stored_as_another_text_sets_no_alias(registry, monkeypatch):
    first, second = add(registry, "a"), add(registry, "b")
    promote(registry, first)
    append = Log.append
    monkeypatch.setattr(Log, "append", lambda self, at, text, **more: append(self, at, text.replace("b", "*"), **more))
    with pytest.raises(RegistryError, match="was stored as another text, so nothing was changed; check the database"):
        promote(registry, second)
    assert number(registry) == first.number
