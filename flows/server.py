"""Prefect's server: one that is configured, or the user's own, which all runs, schedules and pages of the user share.

The user's server is one process (`python -m flows.server PORT`) with the database of `PREFECT_HOME`; the first command
that needs it starts it. It answers only on this host, only pages of its own origin, and who knows the random text in
`PREFECT_HOME/auth` (0600). It holds the lock of the file `lock`, and ends after 30 minutes in which no process has held
the shared lock of the file `users`.
"""

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from components.core.artifacts import digest_text, json_of, private, private_folder, try_lock, write_atomic
from components.core.environment import variables
from components.core.errors import ArtifactError, ConfigError, HeadstartError, TransientError
from flows.processes import MARK, answers, popen
from flows.repository import find_root, read_locked, write_locked
from flows.terminal import terminal

HOST = "127.0.0.1"
PORT = 4200
ADDRESS = "PREFECT_API_URL"
#: `USER:PASSWORD`, sent by clients; and what a server asks for.
AUTH = "PREFECT_API_AUTH_STRING"
SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"
#: Time limit in seconds for the start of the server, and for the lock that a client may hold for a moment.
START_S = 300.0
LOCK_S = 3.0
#: Seconds without a user after which the server ends, and between two looks.
IDLE = "HEADSTART_PREFECT_IDLE_S"
IDLE_S = 1800.0
LOOK_S = 10.0
POLL_S = 0.1
#: Starts without an answer after which it cannot be started.
TRIES = 2
#: Seconds between two looks of a process that uses the server at whether it runs.
KEEP_S = 2.0
_ENSURING = threading.Lock()


@dataclass(frozen=True)
class Server:
    """A Prefect server that is in use.

    Attributes:
        auth: what it asks for; None: nothing, or what a profile of Prefect names.
        port: of the user's own server; 0: another one.
    """

    address: str
    auth: str | None = None
    port: int = 0

    def suffix(self, start: Path) -> str:
        """The end of the names of the project with `start` on the user's own server, which all projects share."""
        return f"-{digest_text(str(find_root(start)))[:6]}" if self.port else ""


def ensure() -> int:
    """Start the user's own server again, if this process uses it and it has ended; returns its port, 0 if this process
    uses another one.

    Raises:
        TransientError: it runs at another port now.
    """
    address, auth = os.environ.get(ADDRESS, ""), os.environ.get(AUTH)
    if not auth or not (folder() / "auth").is_file() or auth != secret().read_text():
        return 0
    if not (port := urlsplit(address).port):
        return 0
    with _ENSURING:
        if not (held := _holder()):
            terminal.say("the Prefect server has ended and is started again", source="run")
            held = {"port": _start(port, exact=False)}
    if held["port"] != port:
        raise TransientError(f"{address}: the Prefect server now is at port {held['port']}; run the command again")
    return port


@contextlib.contextmanager
def ensured() -> Iterator[None]:
    """A block in which the user's own server is started again when it ends, and at whose end it runs: Prefect records
    the end of the flow run."""
    ended, said = threading.Event(), set[str]()

    def keep() -> None:
        while not ended.wait(KEEP_S):
            try:
                ensure()
            except (HeadstartError, OSError) as error:  # the block goes on, and its end raises it
                if str(error) not in said:
                    said.add(str(error))
                    with contextlib.suppress(OSError):  # of the output
                        terminal.say(str(error), important=True)

    threading.Thread(target=keep, name="server", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        ensure()


@contextlib.contextmanager
def server(*, port: int = 0) -> Iterator[Server]:
    """The Prefect server that is configured, or the user's own, which is started at `port` unless it runs (0: at 4200,
    or at a free one). Within the block `PREFECT_API_URL` is its address, and `PREFECT_API_AUTH_STRING` what it asks
    for.

    Raises:
        ConfigError: the port is used by another program, or the server does not start.
        TransientError: the server does not answer, at first or within the block.
    """
    if address := configured():
        with _translated(address):
            number = ensure()
            _ask(address)
            yield Server(address, os.environ.get(AUTH), number)
        return
    try:
        private_folder(folder())
    except ArtifactError as error:
        raise ConfigError(
            f"{folder()}: must be a folder of your own that can be written; name another one with PREFECT_HOME"
        ) from error
    with (folder() / "users").open("a") as users, contextlib.ExitStack() as block:
        fcntl.flock(users, fcntl.LOCK_SH)
        number, auth = _start(port), secret().read_text()
        running = Server(f"http://{HOST}:{number}/api", auth, number)
        block.enter_context(variables({ADDRESS: running.address, AUTH: auth, **direct()}))
        if "prefect" in sys.modules:
            from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

            settings: dict[Any, Any] = {PREFECT_API_URL: running.address, PREFECT_API_AUTH_STRING: auth}
            block.enter_context(temporary_settings(settings))
        block.enter_context(_translated(running.address))
        yield running


@contextlib.contextmanager
def _translated(address: str) -> Iterator[None]:
    """Errors of Prefect's clients as `TransientError`."""
    try:
        yield
    except Exception as error:
        from httpx import HTTPError, InvalidURL
        from prefect.exceptions import CancelledRun, PrefectException

        if isinstance(error, CancelledRun):
            raise HeadstartError("the run was cancelled in Prefect; the next one goes on where it was") from error
        if not isinstance(error, HTTPError | InvalidURL | PrefectException) and "Failed to reach API" not in str(error):
            raise
        why = str(error.__cause__ or error).partition("\n")[0] or type(error).__name__
        raise TransientError(
            f"{address}: the Prefect server does not answer ({why}); start it, or correct or unset {ADDRESS}"
        ) from error


def _ask(address: str) -> None:
    """Ask a server for its version, which it tells only whom it lets in."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.raise_for_api_version_mismatch()  # not of Prefect Cloud


def direct() -> dict[str, str]:
    """The variables by which no client sends a request to this host to a proxy."""
    present = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, (present, HOST))))


def configured() -> str:
    """The address of the Prefect server that the environment or a profile of Prefect names; empty without one. Prefect
    is imported only if it may name one."""
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or folder() / "profiles.toml").expanduser()
    if os.environ.get(ADDRESS) or ("prefect" not in sys.modules and not profiles.is_file()):
        return os.environ.get(ADDRESS, "")
    from prefect.settings import PREFECT_API_URL

    return str(PREFECT_API_URL.value() or "")


def page(address: str = "") -> str:
    """Address of Prefect's page: of a server, of the one in use, or as `headstart ui` serves it."""
    address = os.environ.get("PREFECT_UI_URL") or address or os.environ.get(ADDRESS) or f"http://{HOST}:{PORT}"
    return address.rstrip("/").removesuffix("/api")


def folder() -> Path:
    return Path(os.environ["PREFECT_HOME"]).expanduser().resolve()


def secret() -> Path:
    """The file with the text that the user's server asks for; it is made once."""
    file = folder() / "auth"
    if not file.is_file():
        made = file.with_name(f"auth-{os.getpid()}")
        write_atomic(made, f"headstart:{secrets.token_urlsafe(32)}", private=True)
        with contextlib.suppress(FileExistsError):  # of several first starts, one makes the text for all
            os.link(made, file)
        made.unlink()
    return file


def _holder() -> dict[str, Any]:
    """What the server has written into its lock; empty if none runs."""
    with (folder() / "lock").open("a+") as file:
        return {} if try_lock(file) else read_locked(file)


def _start(port: int, *, exact: bool = True) -> int:
    """The port of the user's server, when it answers. `exact`: whether it is refused if another program uses `port`."""
    deadline, tries, host = time.monotonic() + START_S, 0, socket.gethostname()
    process: subprocess.Popen[bytes] | None = None
    log, auth = folder() / "server.log", secret().read_text()
    while True:
        held = _holder()
        if held.get("host", host) != host:
            raise ConfigError(
                f"{folder()}: the Prefect server of this folder runs on {held['host']}; name a folder of this host "
                f"with PREFECT_HOME, or a server for both hosts with {ADDRESS}"
            )
        if held and answers(f"http://{HOST}:{held['port']}/api/admin/version", auth=auth):
            return int(held["port"])
        ended = process is None or process.poll() is not None
        if time.monotonic() > deadline or (ended and not held and tries == TRIES):
            if process is not None:
                process.kill()
                process.wait()
            raise ConfigError(f"the Prefect server did not start; see {log}")
        if ended and not held:
            if port and exact and in_use(port):
                raise ConfigError(
                    f"port {port} is used by another program; choose another one with --port, "
                    f"or name a Prefect server that you run yourself with {ADDRESS}"
                )
            process, tries = _launch(port, log), tries + 1
        time.sleep(POLL_S)


def _launch(port: int, log: Path) -> subprocess.Popen[bytes]:
    """A process with the server, which goes on when this one ends."""
    first = not (folder() / "prefect.db").is_file()
    begins = "starting Prefect's server" + ("; its first start makes its database, which takes a while" * first)
    terminal.say(begins, source="run", stays=first)
    settings = {name: value for name, value in os.environ.items() if name not in (ADDRESS, MARK)}
    with open(log, "a", opener=private) as output:
        environment = {**settings, "PREFECT_HOME": str(folder())}
        command = [sys.executable, "-m", "flows.server", str(port)]
        return popen(command, directory=folder(), environment=environment, output=output)


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
        **direct(),
    }


def in_use(port: int) -> bool:
    """Whether a program listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def main() -> None:
    """The user's server, unless it runs already: at the port of the argument, of the server before it that has not
    ended by itself, at 4200, or at a free one."""
    deadline, asked = time.monotonic() + LOCK_S, int(sys.argv[1])
    with (private_folder(folder()) / "lock").open("a+") as file:
        while not try_lock(file):
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_S)
        last = 0
        with contextlib.suppress(ValueError, KeyError, OSError):
            last = json_of(folder() / "lock")["port"]
        # Nobody takes another program for this server: its port is written when it listens.
        listening = _listen(*filter(None, (asked, last, PORT)), 0)
        port = listening.getsockname()[1]
        os.environ.update(protection(port, secret().read_text()))
        os.environ.pop(ADDRESS, None)
        write_locked(file, port=port, pid=os.getpid(), host=socket.gethostname())
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn raises it again
        try:
            import uvicorn
            from prefect.server.api.server import create_app

            threading.Thread(target=_end_without_users, name="users", daemon=True).start()
            options: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 2}
            uvicorn.Server(uvicorn.Config(create_app(final=True), **options)).run(sockets=[listening])
        finally:
            file.truncate(0)


def _listen(*ports: int) -> socket.socket:
    """A socket at the first of the ports that no program uses; the last one is 0: a free one."""
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server((HOST, port))
    raise AssertionError


def _end_without_users() -> None:
    """End this process when it has had no user for a while. It holds the lock until then: who comes waits."""
    since, idle_s = time.monotonic(), float(os.environ.get(IDLE, IDLE_S))
    with (folder() / "users").open("a") as users:
        while True:
            time.sleep(min(LOOK_S, idle_s))
            if not try_lock(users):
                since = time.monotonic()
            elif time.monotonic() - since >= idle_s:
                signal.raise_signal(signal.SIGTERM)
                time.sleep(START_S)
            else:
                fcntl.flock(users, fcntl.LOCK_UN)


if __name__ == "__main__":
    main()
