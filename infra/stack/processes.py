"""Background processes that outlive the command which started them, and are stopped with all their descendants."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from components.core.artifacts import write_atomic
from components.core.errors import HeadstartError


class StackError(HeadstartError):
    """A program or service of the local stack is missing, did not start, or failed."""


@dataclass(frozen=True)
class Started:
    """A process, identified by pid and creation time because pids are reused."""

    name: str
    pid: int
    born: float

    def process(self) -> psutil.Process | None:
        """The process, or None once it has ended."""
        try:
            process = psutil.Process(self.pid)
            alive = abs(process.create_time() - self.born) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if alive else None


def start(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    folder: Path,
    user: str | None = None,
) -> Started:
    """Start a process in a new session, with its output in `log`.

    Raises:
        StackError: the program does not exist.
    """
    child = _popen(name, command, environment=environment, log=log, folder=folder, user=user)
    return Started(name, child.pid, psutil.Process(child.pid).create_time())


def run(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    folder: Path,
    user: str | None = None,
    timeout: float = 600,
) -> None:
    """Run a command and wait for its end, with its output in `log`.

    Raises:
        StackError: it failed or took longer than `timeout` seconds; the message ends with the last lines of its log.
    """
    child = _popen(name, command, environment=environment, log=log, folder=folder, user=user)
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired as error:
        os.killpg(child.pid, signal.SIGKILL)
        raise StackError(f"{name}: did not end within {timeout:g} s; see {log}\n{last_lines(log)}") from error
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    if code:
        raise StackError(f"{name}: failed with exit code {code}; see {log}\n{last_lines(log)}")


def _popen(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path, folder: Path, user: str | None
) -> subprocess.Popen[bytes]:
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


def wait_until(
    started: Started, ready: Callable[[], bool], *, log: Path, timeout: float = 120, interval: float = 0.2
) -> None:
    """Wait until `ready()`.

    Raises:
        StackError: the process ended, or was not ready after `timeout` seconds; the message ends with the last lines of
            its log.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        if started.process() is None:
            raise StackError(f"{started.name}: ended while starting; see {log}\n{last_lines(log)}")
        if time.monotonic() > deadline:
            raise StackError(f"{started.name}: not ready after {timeout:g} s; see {log}\n{last_lines(log)}")
        time.sleep(interval)


def stop(started: Sequence[Started], *, marker: tuple[str, str] | None = None, patience: float = 6) -> None:
    """Stop processes and their descendants: SIGTERM, then SIGKILL after `patience` seconds.

    Ray's agents and the stages of a flow have their own sessions and outlive a killed parent, so neither the process
    group nor the tree contains all of them. `marker`, an environment variable and its value, is inherited by all.
    """
    roots = [process for each in started if (process := each.process())]
    family = {process for root in roots for process in [root, *_children(root)]}
    if marker is not None:
        family |= set(marked(*marker))
    for root in roots:
        try:
            root.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(family, timeout=patience)
    if marker is not None:
        alive += [process for process in marked(*marker) if process not in alive]
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=5)


def marked(name: str, value: str) -> list[psutil.Process]:
    """Processes with the environment variable `name` set to `value`."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def remember(path: Path, started: Sequence[Started], facts: Mapping[str, object]) -> None:
    """Store the running processes and `facts` in a file that only this user can read, for later commands."""
    write_atomic(path, json.dumps({"processes": [asdict(each) for each in started], **facts}, indent=1) + "\n")
    path.chmod(0o600)


def recall(path: Path) -> tuple[list[Started], dict[str, Any]]:
    """Read what `remember` stored: processes in order, and the other facts; empty without a file.

    Raises:
        StackError: the file is damaged.
    """
    if not path.is_file():
        return [], {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return [Started(**each) for each in facts.pop("processes")], facts
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise StackError(f"{path}: damaged ({error}); stop the processes manually and remove it") from error


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
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in lines[-count:])


def _as_user(user: str | None) -> dict[str, Any]:
    """Arguments of Popen that change from root to `user`."""
    if user is None or os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
