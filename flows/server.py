"""Prefect's servers: one that is configured, the repository's own, and the temporary one of a run.

All schedules and pages of a repository share its own server. One of them holds `.headstart/prefect-server/lock` and
runs the server as a child, which the kernel kills with it; if it ends, another one takes the lock and starts the server
again. A server that is started here answers only pages of its own origin, and who knows a random text: for the
repository's server it is in `.headstart/prefect-server/auth` (0600).
"""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.core.artifacts import write_atomic
from components.core.environment import variables
from components.core.errors import ConfigError
from flows import profiles
from flows.processes import answers, descendants, end, orphans, start
from flows.repository import STATE, environment, read_locked, try_lock, write_locked
from flows.terminal import terminal

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
#: Interval in seconds at which it is checked, and between two starts.
POLL_S = 0.2
RESTART_S = 2.0
#: Starts without an answer after which it cannot be started.
TRIES = 2


class Server:
    """A Prefect server that is in use; `auth`: what it asks for; None: nothing, or what a profile of Prefect names."""

    def __init__(self, address: str, auth: str | None) -> None:
        self.address, self.auth = address, auth

    def ensure(self) -> None:
        """Start what has ended; nothing for a server that is not the repository's own."""


class OwnServer(Server):
    """The repository's own server."""

    def __init__(self, root: Path, *, port: int) -> None:
        self._root, self._folder = root, auth_file(root).parent
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("a+")
        if try_lock(self._lock):
            self._port = port
            write_locked(self._lock, port=port)
        else:
            self._port = read_locked(self._lock).get("port", port)
        self._log = self._folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts, self._last_start = 0, -RESTART_S
        if not auth_file(root).is_file():
            made = auth_file(root).with_name(f"auth-{os.getpid()}")
            write_atomic(made, f"headstart:{secrets.token_urlsafe(32)}", private=True)
            with contextlib.suppress(FileExistsError):  # of several first starts, one makes the text for all
                os.link(made, auth_file(root))
            made.unlink()
        super().__init__(f"http://{HOST}:{self._port}/api", auth_file(root).read_text())

    def start(self) -> None:
        """Return when the server answers.

        Raises:
            ConfigError: the port is used by another program, or the server does not start.
        """
        page = self.address.removesuffix("/api")
        if try_lock(self._lock):
            if in_use(self._port):
                end(orphans(self._root))
            if in_use(self._port):
                raise ConfigError(
                    f"port {self._port} is used by another program; choose another one with --port, "
                    f"or name a Prefect server that you run yourself with {ADDRESS}"
                )
            terminal.say(f"starting a Prefect server at {page}")
        else:
            terminal.say(f"using this repository's Prefect server at {page}")
        deadline = time.monotonic() + START_S
        while not answers(f"{self.address}/health"):
            self.ensure()
            if time.monotonic() > deadline or self._starts > TRIES:
                raise ConfigError(f"the Prefect server did not start; see {self._log}")
            time.sleep(POLL_S)

    def ensure(self) -> None:
        """Run the server unless another process of the repository does. To be called by the main thread."""
        running = self._process is not None and self._process.poll() is None
        if running or time.monotonic() - self._last_start < RESTART_S or not try_lock(self._lock):
            return
        write_locked(self._lock, port=self._port)
        if self._process is not None:
            terminal.say(f"the Prefect server has ended (exit code {self._process.returncode}) and is started again")
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(self._port)]
        settings = environment(self._root) | protection(self._port, str(self.auth))
        settings.pop(ADDRESS, None)
        with self._log.open("ab") as output:
            self._process = start(command, directory=self._root, environment=settings, log=output)
        self._starts, self._last_start = self._starts + 1, time.monotonic()

    def stop(self) -> None:
        """End the server if this process runs it; another process that uses it starts it again."""
        if self._process is not None:
            end(descendants(self._process.pid), grace_s=GRACE_S)
            self._process.wait()
        self._lock.close()


@contextmanager
def server(*, port: int, root: Path) -> Iterator[Server]:
    """The Prefect server that `PREFECT_API_URL` names, or the repository's own, at `port` unless it runs already.

    Within the block `PREFECT_API_URL` is its address, and `PREFECT_API_AUTH_STRING` what it asks for.

    Raises:
        ConfigError: the port is used by another program, or the server does not start.
    """
    if address := os.environ.get(ADDRESS):
        yield Server(address, os.environ.get(AUTH))
        return
    started = OwnServer(root, port=port)
    try:
        started.start()
        with variables({ADDRESS: started.address, AUTH: str(started.auth)}):
            yield started
    finally:
        started.stop()


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
    return root / STATE / "prefect-server" / "auth"


def in_use(port: int) -> bool:
    """Whether a program listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def has_server() -> bool:
    """Whether `PREFECT_API_URL` names a Prefect server, in the environment or in a profile of Prefect. Prefect is
    imported only if there is a file of profiles."""
    if os.environ.get(ADDRESS):
        return True
    if not profiles().is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())
