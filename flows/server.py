"""The Prefect server of a repository: one for all of its schedules, for as long as one of them runs.

Every schedule holds a shared lock on `.headstart/prefect-server/users`. The supervisor, `python -m flows.server PORT`,
holds the exclusive lock `.headstart/prefect-server/supervisor`, starts the server, starts it again when it ends, and
ends it when nobody holds the shared lock any more. The kernel releases both locks when their holders end, SIGKILL
included, and kills the server with its supervisor. So no server outlives its schedules, and a schedule never uses one
that belongs to somebody else.

The server answers only pages of its own origin, and who knows a random text, which is in the file
`.headstart/prefect-server/auth` (0600) for as long as the server is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from components.errors import ConfigError
from flows.processes import MARK, descendants, end, orphans
from flows.repository import STATE, environment
from flows.terminal import terminal
from flows.tied import tied

HOST = "127.0.0.1"
PORT = 4200
ADDRESS = "PREFECT_API_URL"
#: `USER:PASSWORD`, sent by clients; and what a server asks for.
AUTH = "PREFECT_API_AUTH_STRING"
SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"
#: Time limit in seconds for the start of the server.
START_S = 300.0
#: Seconds between SIGTERM and SIGKILL at its end.
GRACE_S = 2.0
#: Interval in seconds at which the server and its users are checked.
POLL_S = 0.2
#: Shortest and longest wait in seconds before the server is started again.
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
#: Starts without an answer after which it cannot be started.
TRIES = 2
#: Seconds without an answer after which the server is started again.
STALLED_S = 120.0


class Server:
    """A Prefect server that a schedule uses.

    Attributes:
        address: of its API.
        auth: what it asks for; None: nothing, or what a profile of Prefect names.
    """

    def __init__(self, address: str, auth: str | None) -> None:
        self.address, self.auth = address, auth

    def ensure(self) -> None:
        """Start what has ended; nothing for a server that is not the repository's own."""


class OwnServer(Server):
    """The repository's own server."""

    def __init__(self, root: Path, *, port: int) -> None:
        self._root = root
        state = _state(root)
        self._port = port if state is None else state.port
        self._log = _folder(root) / "server.log"
        self._supervisor: subprocess.Popen[bytes] | None = None
        super().__init__(f"http://{HOST}:{self._port}/api", read_auth(root))

    def start(self) -> None:
        """Return when the server answers.

        Raises:
            ConfigError: the port is used by another program, or the server does not start.
        """
        if (state := _state(self._root)) is not None:
            terminal.say(f"using this repository's Prefect server at {self.address.removesuffix('/api')}")
        else:
            if in_use(self._port):
                end(orphans(self._root))
            if in_use(self._port):
                raise ConfigError(
                    f"port {self._port} is used by another program; choose another one with --port, "
                    f"or name a Prefect server that you run yourself with {ADDRESS}"
                )
            terminal.say(f"starting a Prefect server at {self.address.removesuffix('/api')}")
            self.ensure()
        deadline = time.monotonic() + START_S
        before = state.starts if state is not None else 0
        while not answers(self.address):
            state = _state(self._root)
            if time.monotonic() > deadline or (state is not None and state.starts - before > TRIES):
                raise ConfigError(f"the Prefect server did not start; see {self._log}")
            self.ensure()
            time.sleep(POLL_S)

    def ensure(self) -> None:
        """Start a supervisor unless one runs."""
        if _state(self._root) is None and (self._supervisor is None or self._supervisor.poll() is not None):
            variables = environment(self._root)
            # It belongs to all schedules, so it must not count as a process of this one.
            del variables[MARK]
            for name in (ADDRESS, AUTH):
                variables.pop(name, None)
            with self._log.open("ab") as output:
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-m", "flows.server", str(self._port)],
                    cwd=self._root,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    def wait(self, limit_s: float) -> None:
        """Wait until the supervisor has ended, at most `limit_s` seconds, unless another schedule needs it."""
        deadline = time.monotonic() + limit_s
        needed = 0
        # The supervisor's own look at the lock may appear as a user, once.
        while needed < 3 and _state(self._root) is not None and time.monotonic() < deadline:
            needed = needed + 1 if used(self._root) else 0
            time.sleep(0.05)
        if self._supervisor is not None:
            self._supervisor.poll()


@contextmanager
def server(*, port: int, root: Path) -> Iterator[Server]:
    """The Prefect server that `PREFECT_API_URL` names, or the repository's own.

    Within the block `PREFECT_API_URL` is its address, and `PREFECT_API_AUTH_STRING` what it asks for.

    Args:
        port: of the repository's own server, unless it runs already.
        root: of the repository.

    Raises:
        ConfigError: the port is used by another program, or the server does not start.
    """
    if address := os.environ.get(ADDRESS):
        yield Server(address, os.environ.get(AUTH))
        return
    before = os.environ.get(AUTH)
    _folder(root).mkdir(parents=True, exist_ok=True)
    with (_folder(root) / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        found = OwnServer(root, port=port)
        try:
            found.start()
            os.environ |= server_variables(found)
            yield found
        finally:
            for name in (ADDRESS, AUTH):
                os.environ.pop(name, None)
            if before is not None:
                os.environ[AUTH] = before
            fcntl.flock(users, fcntl.LOCK_UN)
            found.wait(GRACE_S + 1)


def server_variables(found: Server) -> dict[str, str]:
    """The environment of a client of the server."""
    return {ADDRESS: found.address, **({AUTH: found.auth} if found.auth else {})}


def protection(port: int, auth: str) -> dict[str, str]:
    """The environment of a Prefect server on this host that answers only pages of its own origin, and who knows the
    text."""
    address = f"http://{HOST}:{port}"
    return {
        # Otherwise the page asks the server at Prefect's own port.
        "PREFECT_UI_API_URL": f"{address}/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": address,
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        SERVER_AUTH: auth,
        AUTH: auth,
    }


def auth_file(root: Path) -> Path:
    """The file with the text that the repository's server asks for."""
    return _folder(root) / "auth"


def read_auth(root: Path) -> str:
    """The text that the repository's server asks for; a new one if there is none."""
    path = auth_file(root)
    if not path.is_file():
        # A link appears with its content, and only one of several.
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:
            file.write(f"headstart:{secrets.token_urlsafe(32)}")
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_text()


def used(root: Path) -> bool:
    """Whether a schedule uses the server of the repository."""
    with (_folder(root) / "users").open("a") as users:
        return not _try_lock(users, fcntl.LOCK_EX)


def answers(address: str, *, limit_s: float = 5) -> bool:
    """Whether a Prefect server answers at the address within `limit_s` seconds."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=limit_s) as answer:
            return bool(answer.read().strip() == b"true")
    except (urllib.error.URLError, OSError, ValueError):
        return False


def in_use(port: int) -> bool:
    """Whether a program listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _folder(root: Path) -> Path:
    return root / STATE / "prefect-server"


def _try_lock(file: TextIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class State:
    """The state that a supervisor publishes: the port of its server, and how often it has started the server."""

    port: int
    starts: int


def _state(root: Path) -> State | None:
    """The state of the supervisor, or None if none runs."""
    with (_folder(root) / "supervisor").open("a+") as file:
        while not _try_lock(file, fcntl.LOCK_SH):
            file.seek(0)
            # Written right after the lock was taken.
            with contextlib.suppress(ValueError, TypeError):
                return State(**json.loads(file.read()))
            time.sleep(0.02)
    return None


def supervise(root: Path, *, port: int) -> None:
    """Run the server for as long as it is used; nothing if another supervisor does."""
    with (_folder(root) / "supervisor").open("a+") as file:
        tries = 0
        # A schedule that looks whether there is a supervisor holds the lock for a moment.
        while not _try_lock(file, fcntl.LOCK_EX):
            tries += 1
            if tries == 5:
                return
            time.sleep(0.05)
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
        variables = {**os.environ, **protection(port, read_auth(root))}
        starts = 0
        wait_s = FIRST_WAIT_S
        while used(root):
            starts += 1
            file.truncate(0)
            json.dump(asdict(State(port=port, starts=starts)), file)
            file.flush()
            began = time.monotonic()
            process = subprocess.Popen(tied(command, number=signal.SIGKILL), env=variables, start_new_session=True)
            try:
                _watch(process, root, port=port)
            finally:
                end(descendants(process.pid), grace_s=GRACE_S)
                process.wait()
            if used(root):
                wait_s = FIRST_WAIT_S if time.monotonic() - began > STALLED_S else min(2 * wait_s, LONGEST_WAIT_S)
                print(f"the server has ended (exit code {process.returncode}) and is started again", flush=True)
                until = time.monotonic() + wait_s
                while used(root) and time.monotonic() < until:
                    time.sleep(POLL_S)
        with (_folder(root) / "users").open("a") as users:
            if _try_lock(users, fcntl.LOCK_EX):
                auth_file(root).unlink(missing_ok=True)
        file.truncate(0)


def _watch(process: subprocess.Popen[bytes], root: Path, *, port: int) -> None:
    """Wait until the server has ended, is not used any more, or has not answered for `STALLED_S` seconds."""
    answered = 0.0
    looked = 0.0
    while process.poll() is None and used(root):
        now = time.monotonic()
        if now - looked > STALLED_S / 12:
            looked = now
            if answers(f"http://{HOST}:{port}/api", limit_s=1):
                answered = now
            elif answered and now - answered > STALLED_S:
                print(f"the server has not answered for {STALLED_S:g} s", flush=True)
                break
        time.sleep(POLL_S)


if __name__ == "__main__":
    for _number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(_number, lambda number, _: sys.exit(128 + number))
    supervise(Path.cwd(), port=int(sys.argv[1]))
