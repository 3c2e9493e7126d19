"""One owner for each schedule: the lock within a repository, and the claim on a Prefect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.errors import ConfigError
from flows import owner as module
from flows.owner import Claim, Owner, ReplacedError, checked_name, owned

HOLD = """
import sys, time
from pathlib import Path
from flows.owner import Owner, owned
root = Path(sys.argv[1])
with owned(root, name="nightly", owner=Owner.this(root=root, what="retrain a"), replace=False, say=print):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the schedule `nightly`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def take(root: Path, *, name: str = "nightly", replace: bool = False) -> None:
    with owned(root, name=name, owner=Owner.this(root=root, what="retrain b"), replace=replace, say=print):
        pass


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        with pytest.raises(
            ConfigError,
            match=rf"^--name nightly: already run by another process \(retrain a: process {other.pid} on "
            rf"{socket.gethostname()} since 20.*, in {tmp_path}\); stop it, choose another --name, or",
        ):
            take(tmp_path)
        take(tmp_path, name="weekly")
        other.kill()
        other.wait()
        # The kernel has released the lock.
        take(tmp_path)


def test_replace_ends_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holder(tmp_path) as other:
        take(tmp_path, replace=True)
        assert other.wait(timeout=10) == -signal.SIGTERM
    assert capsys.readouterr().out.startswith("ending the present owner of nightly (retrain a: process ")


def test_an_owner_on_another_host_cannot_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(tmp_path) as other:
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        with pytest.raises(ConfigError, match=rf"--replace cannot end its owner \(.*process {other.pid} on .*end it"):
            take(tmp_path, replace=True)
        assert other.poll() is None


@pytest.mark.parametrize("name", ["", "Nightly", "a b", "../a", "-a", "a" * 61])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(ConfigError, match="must consist of lower-case letters, digits and dashes"):
        checked_name(name)


class Variables:
    """The variables of a Prefect server."""

    def __init__(self) -> None:
        self.found: dict[str, SimpleNamespace] = {}

    def read_variable_by_name(self, name: str) -> SimpleNamespace | None:
        return self.found.get(name)

    def create_variable(self, variable: Any) -> None:
        self.found[variable.name] = SimpleNamespace(value=variable.value, updated=datetime.now(UTC))

    update_variable = create_variable

    def delete_variable_by_name(self, name: str) -> None:
        del self.found[name]


MINE = Owner(host="a", pid=os.getpid(), since="now", root="/repository", what="retrain")
THEIRS = Owner(host="b", pid=7, since="then", root="/repository", what="sync")


def claim(server: Variables, owner: Owner) -> Claim:
    return Claim(server, name="nightly", owner=owner)  # type: ignore[arg-type]


def test_a_claim_of_another_host_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Variables()
    theirs = claim(server, THEIRS)
    theirs.take(replace=False)
    mine = claim(server, MINE)
    with pytest.raises(ConfigError, match=r"\(sync: process 7 on b since then, in /repository\); stop it, choose"):
        mine.take(replace=False)
    mine.take(replace=True)
    monkeypatch.setattr(module, "BEAT_S", 0)
    mine.renew()
    with pytest.raises(ReplacedError, match="replaced by retrain: process"):
        theirs.renew()
    mine.release()
    claim(server, THEIRS).take(replace=False)


def test_a_claim_that_was_not_renewed_is_void() -> None:
    server = Variables()
    claim(server, THEIRS).take(replace=False)
    (found,) = server.found.values()
    found.updated -= timedelta(seconds=module.VOID_S + 1)
    claim(server, MINE).take(replace=False)


def test_a_claim_of_an_ended_process_of_this_host_is_void() -> None:
    server = Variables()
    ended = subprocess.Popen(["true"])
    ended.wait()
    claim(server, replace(MINE, root="/other", pid=ended.pid)).take(replace=False)
    claim(server, MINE).take(replace=False)
    # A living process of another repository on this host is respected.
    with pytest.raises(ConfigError, match="already run by another process"):
        claim(server, replace(MINE, root="/third", pid=1)).take(replace=False)
