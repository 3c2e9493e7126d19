"""Run a command as a group of processes, in a session, that ends as a whole: SIGKILL of `dvc repro` would leave the
stage's process running and writing."""

import codecs
import contextlib
import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

import psutil

from flows.bound import bound
from flows.worker import Fork, Worker, can_execute

#: Seconds between SIGTERM and SIGKILL. Ray's driver needs about 3 to shut down.
GRACE_S = 10.0
#: Seconds between two checks of a running command.
POLL_S = 0.2
#: Largest capacity of a pipe in bytes (pipe(7)): an ended process cannot have left more in it.
PIPE_BYTES = 2**20
#: Environment variable that every process of a run inherits: the pid of the run's process, and the repository.
MARK = "HEADSTART_RUN"
#: The worker of the run, if there is one. It executes the commands of the main thread.
WORKERS: list[Worker] = []
#: Set while the commands of other threads have to end.
STOPPING = threading.Event()


Process = Popen[bytes] | Fork


class CommandTimeoutError(Exception):
    """The command exceeded its time limit and was ended."""


class CommandStoppedError(Exception):
    """The command was ended, because the run ends (`STOPPING`)."""


def mark(root: Path) -> dict[str, str]:
    """The environment variable that identifies the processes of this run, even when their parents have ended."""
    return {MARK: f"{os.getpid()} {root}"}


def run(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    limit_s: float,
    on_line: Callable[[str], None],
) -> int:
    """Run a command, pass each line of its output (both streams) to `on_line`, and return its exit code.

    Every line that the command has written before its end is passed on. Its remaining processes are ended; a daemon
    that has left the session may keep the pipe open without blocking the caller.

    Raises:
        CommandTimeoutError: the command took longer than `limit_s` seconds; all of its processes have ended.
        CommandStoppedError: the run ends; all of its processes have ended.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        try:
            process = _started(command, directory=directory, environment=environment, output=writing)
        finally:
            os.close(writing)
        deadline = time.monotonic() + limit_s
        output = _Output(pipe.fileno(), on_line)
        try:
            # The pipe is read in this thread: a reader thread may get too little time to read everything before the
            # end of the process is noticed.
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise CommandTimeoutError
                if STOPPING.is_set() and not in_main_thread():
                    raise CommandStoppedError
                output.read(wait_s=POLL_S)
        finally:
            end_session(process.pid)
            process.poll()
        output.drain()
    assert process.returncode is not None
    return process.returncode


def _started(command: Sequence[str], *, directory: Path, environment: Mapping[str, str], output: int) -> Process:
    """A process in a session of its own: a fork of the run's worker, or of this process."""
    if WORKERS and in_main_thread() and can_execute(command):
        with contextlib.suppress(OSError):
            return WORKERS[-1].start(command, directory=directory, environment=environment, output=output)
    return subprocess.Popen(
        command,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@contextlib.contextmanager
def working(root: Path, modules: Sequence[str], *, environment: Mapping[str, str]) -> Iterator[None]:
    """A block whose commands are executed by a worker, the one of an outer block if there is one; on Linux, if this is
    the main thread."""
    if WORKERS or sys.platform != "linux" or not in_main_thread():
        yield
        return
    worker = Worker(root, environment)
    worker.prepare(modules)
    WORKERS.append(worker)
    try:
        yield
    finally:
        WORKERS.remove(worker)
        worker.close()


def in_main_thread() -> bool:
    """Whether the main thread of this process calls this function."""
    return threading.current_thread() is threading.main_thread()


def prepare(modules: Sequence[str]) -> None:
    """Let the worker import the modules of stages while it has nothing to do."""
    for worker in WORKERS:
        # A worker that has ended: its commands are processes of their own.
        with contextlib.suppress(OSError):
            worker.prepare(modules)


def connect(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str]
) -> tuple[socket.socket, Process]:
    """Start a Python module beside the commands of the run; returns a socket, whose other end is its standard output,
    and the process."""
    here, there = socket.socketpair()
    with there:
        options: dict[str, Any] = {"directory": directory, "environment": environment}
        for worker in WORKERS:
            with contextlib.suppress(OSError):
                return here, worker.start(command, **options, output=there.fileno(), background=True)
        return here, start(command, **options, log=there.fileno(), number=signal.SIGTERM)


def start(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    log: IO[Any] | int | None = None,
    number: signal.Signals = signal.SIGKILL,
) -> Popen[bytes]:
    """Start a program in a session of its own. The kernel sends it a signal when this process ends.

    Args:
        log: receives its output; None: the output of this process does.
    """
    return subprocess.Popen(
        bound(command, number=number),
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def answers(url: str) -> bool:
    """Whether an HTTP GET succeeds within 5 seconds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


class _Output:
    """Reads a pipe without blocking and splits its text into lines."""

    def __init__(self, pipe: int, on_line: Callable[[str], None]) -> None:
        self._pipe = pipe
        self._on_line = on_line
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._rest = ""
        self._closed = False
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)

    def read(self, *, wait_s: float) -> int:
        """Pass on the lines in the pipe, waiting at most `wait_s` seconds for data; returns the number of bytes."""
        if self._closed:
            time.sleep(wait_s)
            return 0
        if not self._poll.poll(1000 * wait_s):
            return 0
        data = os.read(self._pipe, 2**16)
        self._closed = not data
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=self._closed)).split("\n")
        for line in lines:
            self._on_line(line)
        return len(data)

    def drain(self) -> None:
        """Pass on the lines that an ended process has left: at most `PIPE_BYTES`, because a daemon may keep writing."""
        left = PIPE_BYTES
        while left > 0 and (read := self.read(wait_s=0)):
            left -= read
        if self._rest:
            self._on_line(self._rest)


def members(session: int) -> list[psutil.Process]:
    """The live processes of a session and their descendants, which may have moved to other sessions."""
    targets: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                for each in [process, *process.children(recursive=True)]:
                    if each.status() != psutil.STATUS_ZOMBIE:
                        targets[each.pid] = each
    return list(targets.values())


def descendants(pid: int) -> list[psutil.Process]:
    """A process and its descendants; empty if it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_session(session: int) -> None:
    """End every process of a session (SIGTERM, then SIGKILL) and return when none is left."""
    end(members(session), more=lambda: members(session), grace_s=GRACE_S)


def end(
    targets: Iterable[psutil.Process], *, more: Callable[[], Iterable[psutil.Process]] = tuple, grace_s: float = GRACE_S
) -> None:
    """End processes (SIGTERM, then SIGKILL) and return when none is left."""
    living = {process.pid: process for process in targets}
    if not living:
        return
    _signal(living.values(), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while living:
        time.sleep(0.05)
        living = {pid: process for pid, process in living.items() if is_alive(process)}
        living |= {process.pid: process for process in more()}
        if time.monotonic() > deadline:
            _signal(living.values(), signal.SIGKILL)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs: neither ended, nor a zombie, nor another process with its pid."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def having(variable: str, value: str) -> list[psutil.Process]:
    """The live processes in whose environment a variable begins with a value."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            held = process.environ().get(variable)
            if held is not None and held.startswith(value) and is_alive(process):
                processes.append(process)
    return processes


def orphans(root: Path) -> list[psutil.Process]:
    """The processes that killed runs have left in a repository: stages, their workers, servers."""
    targets = []
    for process in having(MARK, ""):
        with contextlib.suppress(psutil.Error):
            run, _, repository = process.environ()[MARK].partition(" ")
            if repository == str(root) and not _was_running(int(run), process.create_time()):
                targets.append(process)
    return targets


def _was_running(pid: int, moment: float) -> bool:
    """Whether the process with this pid is alive and is older than `moment` (seconds since the epoch)."""
    try:
        process = psutil.Process(pid)
        # A younger process reuses the pid of one that has ended. Start times are rounded to clock ticks.
        return is_alive(process) and process.create_time() <= moment + 0.1
    except psutil.NoSuchProcess:
        return False
