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
#: Marks the processes of a repository's stages, so that a number reused by the system is never mistaken for one.
MARK = "HEADSTART_REPOSITORY"


class CommandTimeoutError(Exception):
    """The command ran past its limit and was ended."""


def run(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    limit_s: float,
    on_line: Callable[[str], None],
    record: Path | None = None,
) -> int:
    """Run a command to its end, give each line that it prints to `on_line`, and return its exit code.

    `record` is a file that holds the leader's process number meanwhile: if this process is killed without a chance to
    clean up, the next one finds what it left running (`end_leftover`).

    Raises:
        CommandTimeoutError: it took longer than `limit_s` seconds; all of its processes have ended.
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**environment, MARK: str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(str(process.pid))
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
        if record is not None:
            record.unlink(missing_ok=True)


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


def end_session(session: int, *, grace_s: float = GRACE_S) -> None:
    """End every process of a session, politely first, and come back when none is left."""
    living = {process.pid: process for process in members(session)}
    if not living:
        return
    _signal(living.values(), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while living and time.monotonic() < deadline:
        time.sleep(0.05)
        living = _living(session, living)
    while living:
        _signal(living.values(), signal.SIGKILL)
        time.sleep(0.05)
        living = _living(session, living)


def _living(session: int, known: Mapping[int, psutil.Process]) -> dict[int, psutil.Process]:
    # Those that left the session are no longer found by it: they are asked one by one.
    still = {pid: process for pid, process in known.items() if _is_alive(process)}
    return still | {process.pid: process for process in members(session)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def end_leftover(record: Path, *, directory: Path) -> bool:
    """End what a run that was killed outright left running; True if there was anything."""
    try:
        session = int(record.read_text())
    except (FileNotFoundError, ValueError):
        return False
    ours = [process for process in members(session) if _mark(process) == str(directory)]
    if ours:
        end_session(session)
    record.unlink(missing_ok=True)
    return bool(ours)


def _mark(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error):
        mark: str | None = process.environ().get(MARK)
        return mark
    return None
