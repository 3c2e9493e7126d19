"""Who runs a schedule: one process for each name.

Within a repository the owner holds the lock `.headstart/schedules/NAME.lock`, which the kernel releases when it ends,
SIGKILL included. On a Prefect server that several repositories or hosts share, the owner renews a claim, a Prefect
variable; a claim that has not been renewed for a minute, or whose process has ended, is void.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import psutil

from components.errors import ConfigError
from flows.processes import is_alive
from flows.repository import STATE

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

#: Seconds between two renewals of a claim, and after which a claim that was not renewed is void.
BEAT_S = 15.0
VOID_S = 60.0
#: Time limit in seconds for the end of a replaced owner.
REPLACE_S = 20.0


@dataclass(frozen=True)
class Owner:
    """The process that runs a schedule.

    Attributes:
        host: its host.
        pid: its process.
        since: local time of its start.
        root: the repository.
        what: the schedule in words.
    """

    host: str
    pid: int
    since: str
    root: str
    what: str

    @classmethod
    def this(cls, *, root: Path, what: str) -> Owner:
        """This process."""
        since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        return cls(host=socket.gethostname(), pid=os.getpid(), since=since, root=str(root), what=what)

    def __str__(self) -> str:
        return f"{self.what}: process {self.pid} on {self.host} since {self.since}, in {self.root}"


class ReplacedError(Exception):
    """Another process has taken the schedule over."""


def checked_name(name: str) -> str:
    """A valid name of a schedule.

    Raises:
        ConfigError: it is not lower-case letters, digits and dashes.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise ConfigError(f"--name {name!r}: must consist of lower-case letters, digits and dashes, such as nightly")
    return name


def lock_path(root: Path, name: str) -> Path:
    """The lock file of a schedule."""
    return root / STATE / "schedules" / f"{name}.lock"


@contextmanager
def owned(root: Path, *, name: str, owner: Owner, replace: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Own a schedule of a repository within the block.

    Args:
        root: of the repository.
        name: of the schedule.
        owner: this process.
        replace: whether to end the present owner first.
        say: prints a line.

    Raises:
        ConfigError: another process owns it.
    """
    path = lock_path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _try(file):
            present = _read(file)
            if not replace:
                raise ConfigError(_refusal(name, present))
            _end(present, name=name, file=file, say=say)
        file.truncate(0)
        json.dump(asdict(owner), file)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _try(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: TextIO) -> Owner | None:
    """The holder of the lock, which writes itself into the file right after taking it."""
    for _ in range(50):
        file.seek(0)
        with suppress(ValueError, TypeError):
            return Owner(**json.loads(file.read()))
        time.sleep(0.02)
    return None


def _refusal(name: str, owner: Owner | None) -> str:
    return (
        f"--name {name}: already run by another process ({owner or 'unknown'}); "
        "stop it, choose another --name, or take over with --replace"
    )


def _end(owner: Owner | None, *, name: str, file: TextIO, say: Callable[[str], None]) -> None:
    if owner is None or owner.host != socket.gethostname():
        raise ConfigError(f"--name {name}: --replace cannot end its owner ({owner or 'unknown'}); end it there")
    say(f"ending the present owner of {name} ({owner})")
    with suppress(ProcessLookupError):
        os.kill(owner.pid, signal.SIGTERM)
    deadline = time.monotonic() + REPLACE_S
    while not _try(file):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(owner.pid, signal.SIGKILL)
        time.sleep(0.1)


class Claim:
    """The claim to a schedule's name on a Prefect server.

    Args:
        client: of the server.
        name: of the schedule.
        owner: this process.
    """

    def __init__(self, client: SyncPrefectClient, *, name: str, owner: Owner) -> None:
        self._client = client
        self._name = name
        self._key = f"headstart-schedule-{name}"
        self._owner = owner
        self._renewed = 0.0

    def take(self, *, replace: bool) -> None:
        """Claim the name.

        Raises:
            ConfigError: another process owns it.
        """
        present = self._present()
        if present is not None and not replace:
            raise ConfigError(_refusal(self._name, present))
        self._write()

    def renew(self) -> None:
        """Renew the claim if it is time.

        Raises:
            ReplacedError: another process has taken the name over.
        """
        if time.monotonic() - self._renewed < BEAT_S:
            return
        if (present := self._present()) is not None:
            raise ReplacedError(f"replaced by {present}")
        self._write()

    def release(self) -> None:
        """Give the claim up."""
        from prefect.exceptions import ObjectNotFound

        with suppress(ObjectNotFound):
            self._client.delete_variable_by_name(self._key)

    def _present(self) -> Owner | None:
        """Another process with a valid claim."""
        found = self._client.read_variable_by_name(self._key)
        if found is None or found.updated is None:
            return None
        try:
            owner = Owner(**json.loads(str(found.value)))
        except (ValueError, TypeError):
            return None
        if owner == self._owner or (datetime.now(UTC) - found.updated).total_seconds() > VOID_S:
            return None
        # The lock shows that no other process of this repository owns it.
        here = owner.host == self._owner.host
        return None if here and (owner.root == self._owner.root or not _runs(owner.pid)) else owner

    def _write(self) -> None:
        from prefect.client.schemas.actions import VariableCreate, VariableUpdate

        value = json.dumps(asdict(self._owner))
        if self._client.read_variable_by_name(self._key) is None:
            self._client.create_variable(VariableCreate(name=self._key, value=value))
        else:
            self._client.update_variable(VariableUpdate(name=self._key, value=value))
        self._renewed = time.monotonic()


def _runs(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
