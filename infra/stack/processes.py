"""Processes of the services, with their output in log files."""

import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.core.errors import HeadstartError


class StackError(HeadstartError):
    """A program or service of the local stack is missing, did not start, or failed."""


def start(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path, folder: Path, user: str = ""
) -> subprocess.Popen[bytes]:
    """Start a process in a new session, with its output in `log`; as another account if `user` names one.

    Raises:
        StackError: the program does not exist.
    """
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **_as_user(user),
            )
    except OSError as error:
        raise StackError(f"{name}: cannot start {command[0]} ({error.strerror}); run `make install`") from error


def run(name: str, command: Sequence[str], *, log: Path, timeout: float = 600, **options: Any) -> None:
    """Run a command and wait for its end; options as of `start`.

    Raises:
        StackError: it failed or took longer than `timeout` seconds; the message ends with the last lines of its log.
    """
    child = start(name, command, log=log, **options)
    try:
        code = child.wait(timeout)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)
        if isinstance(error, subprocess.TimeoutExpired):
            raise StackError(f"{name}: did not end within {timeout:g} s; see {log}\n{last_lines(log)}") from error
        raise
    if code:
        raise StackError(f"{name}: failed with exit code {code}; see {log}\n{last_lines(log)}")


def wait_until(
    name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool], *, log: Path, timeout: float = 120
) -> None:
    """Wait until `ready()`.

    Raises:
        StackError: the process ended, or was not ready after `timeout` seconds; the message ends with the last lines of
            its log.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        if process.poll() is not None:
            raise StackError(f"{name}: ended while starting; see {log}\n{last_lines(log)}")
        if time.monotonic() > deadline:
            raise StackError(f"{name}: not ready after {timeout:g} s; see {log}\n{last_lines(log)}")
        time.sleep(0.2)


class Relay:
    """Prints the lines that are added to the log of the Prefect worker."""

    def __init__(self, log: Path) -> None:
        self._lines = log.open(encoding="utf-8", errors="replace")
        self._lines.seek(0, os.SEEK_END)

    def print(self) -> None:
        """Print what was added since the last call, without Prefect's copies of lines that the flow has printed itself,
        which have a time stamp."""
        for line in self._lines:
            if not re.match(r"\d\d:\d\d:\d\d\.\d+ \|", line):
                print(line, end="", flush=True)


def last_lines(path: Path, count: int = 15) -> str:
    """The last lines of a log, indented."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return "\n".join(f"    {line}" for line in lines[-count:])


def _as_user(user: str) -> dict[str, Any]:
    """Arguments of Popen that change from root to `user`."""
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
