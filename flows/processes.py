"""A command as a group of processes that ends as a whole.

Killing `dvc repro` leaves the stage that it started alive and writing. So each command gets a session of its own, and
whatever ends the wait (a time limit, Ctrl-C, a cancelled flow) ends every process of that session before going on.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

#: Seconds that processes get to end by themselves after SIGTERM; Ray's driver needs about 3.
GRACE_S = 10.0
#: A variable that every process of a run inherits: the number of the run's process, and the repository.
MARK = "HEADSTART_RUN"


class CommandTimeoutError(Exception):
    """The command ran past its limit and was ended."""


def mark(root: Path) -> dict[str, str]:
    """The variable that makes a process known as this run's, whatever becomes of the processes between."""
    return {MARK: f"{os.getpid()} {root}"}


def run(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    limit_s: float,
    on_line: Callable[[str], None],
) -> int:
    """Run a command to its end, give each line that it prints to `on_line`, and return its exit code.

    Raises:
        CommandTimeoutError: it took longer than `limit_s` seconds; all of its processes have ended.
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    deadline = time.monotonic() + limit_s
    try:
        while True:
            if time.monotonic() > deadline:
                raise CommandTimeoutError
            try:
                line = lines.get(timeout=0.2)
            except queue.Empty:
                # A daemon left behind may hold the pipe open for ever: the leader's end is what counts.
                if process.poll() is not None:
                    return process.returncode
                continue
            if line is None:
                return process.wait(max(0.0, deadline - time.monotonic()))
            on_line(line)
    except subprocess.TimeoutExpired:
        raise CommandTimeoutError from None
    finally:
        end_session(process.pid)
        process.poll()


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
    lines.put(None)


def members(session: int) -> list[psutil.Process]:
    """The living processes of a session, and their descendants that moved to sessions of their own."""
    found: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                for one in [process, *process.children(recursive=True)]:
                    if one.status() != psutil.STATUS_ZOMBIE:
                        found[one.pid] = one
    return list(found.values())


def descendants(pid: int) -> list[psutil.Process]:
    """A process, its children and theirs; none if it has gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_session(session: int) -> None:
    """End every process of a session, politely first, and come back when none is left."""
    end(members(session), more=lambda: members(session))


def end(found: Iterable[psutil.Process], *, more: Callable[[], Iterable[psutil.Process]] = tuple) -> None:
    """End processes, politely first, and come back when none is left; `more` finds those that appear meanwhile."""
    living = {process.pid: process for process in found}
    if not living:
        return
    _signal(living.values(), signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while living:
        time.sleep(0.05)
        living = {pid: process for pid, process in living.items() if _is_alive(process)}
        living |= {process.pid: process for process in more()}
        if time.monotonic() > deadline:
            _signal(living.values(), signal.SIGKILL)


def forget(found: Iterable[psutil.Process]) -> None:
    """Come back when none of these ended processes is in the system's table any more, or after `GRACE_S`.

    An ended process stays there until its parent, or who took it over, has asked how it ended; and DVC, which looks for
    the number alone, takes its locks for held until then.
    """
    deadline = time.monotonic() + GRACE_S
    while any(psutil.pid_exists(process.pid) for process in found) and time.monotonic() < deadline:
        time.sleep(0.05)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def orphans(root: Path) -> list[psutil.Process]:
    """What runs that were killed outright left running: a stage and its workers, Prefect's embedded server."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            run, _, where = process.environ().get(MARK, "").partition(" ")
            if where == str(root) and not psutil.pid_exists(int(run)) and _is_alive(process):
                found.append(process)
    return found
