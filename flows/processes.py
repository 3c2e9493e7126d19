"""Run a command as a group of processes, in a session, that ends as a whole."""

import codecs
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

import psutil

from components.core.liveness import is_alive, was_running
from flows import warm

#: Seconds between SIGTERM and SIGKILL. Ray's driver needs about 3 to shut down.
GRACE_S = 10.0
#: Seconds between two checks of a running command.
POLL_S = 0.2
#: Largest capacity of a pipe in bytes (pipe(7)): an ended process cannot have left more in it.
PIPE_BYTES = 2**20
#: Environment variable that every process of a run inherits: the pid of the run's process, and the repository.
MARK = "HEADSTART_RUN"
#: The error that stops the run and its commands in other threads, and the event that ends their waits.
STOPPED: list[BaseException] = []
STOPPING = threading.Event()

Process = Popen[bytes] | BaseProcess
#: `multiprocessing` asks for the ends of all children at every start, and reads each end once.
_CHILDREN = threading.Lock()


class CommandTimeoutError(Exception):
    """The command exceeded its time limit and was ended."""


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
        BaseException: `STOPPED`; all of its processes have ended.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        try:
            process = _started(command, directory=directory, environment=environment, output=writing)
        finally:
            os.close(writing)
        deadline = time.monotonic() + limit_s
        output = _Output(pipe.fileno(), on_line)
        ending = [process.sentinel] if isinstance(process, BaseProcess) else []
        try:
            # The pipe is read in this thread: a reader thread may get too little time to read everything before the
            # end of the process is noticed.
            while code_of(process) is None:
                if time.monotonic() > deadline:
                    raise CommandTimeoutError
                if STOPPED and threading.current_thread() is not threading.main_thread():
                    raise STOPPED[0]
                output.wait(ending)
        finally:
            end_session(process.pid or 0)
            code = code_of(process)
        output.drain()
    assert code is not None
    return code


def pause(seconds: float) -> None:
    """Wait in a thread of a run. If the run is stopped, the wait ends and the error in `STOPPED` is raised."""
    if STOPPING.wait(seconds):
        raise STOPPED[0]


def code_of(process: Process) -> int | None:
    """The exit code of a process; None while it runs."""
    with _CHILDREN:
        return process.exitcode if isinstance(process, BaseProcess) else process.poll()


def _started(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str], output: int, bound: bool = True
) -> Process:
    """A process in a session of its own; of the run's server for a module of Python."""
    if warm.is_serving() and [*command[:2]] == [sys.executable, "-m"]:
        options: dict[str, Any] = {"directory": directory, "environment": environment, "bound": bound}
        with _CHILDREN:
            return warm.start(command[2], command[3:], **options, output=output)
    return popen(command, directory=directory, environment=environment, output=output)


def beside(module: str, *arguments: str, directory: Path, environment: Mapping[str, str]) -> Process:
    """Start a Python module without output, which goes on when this process ends."""
    command = [sys.executable, "-m", module, *arguments]
    with Path(os.devnull).open("w") as output:
        options: dict[str, Any] = {"directory": directory, "environment": environment}
        return _started(command, **options, output=output.fileno(), bound=False)


def popen(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str], output: IO[Any] | int
) -> Popen[bytes]:
    """Start a program in a session of its own; `output` receives what it prints."""
    return subprocess.Popen(
        command,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def answers(url: str, *, auth: str = "") -> bool:
    """Whether an HTTP GET of this host begins to answer within 5 seconds. `auth`: `USER:PASSWORD`."""
    import httpx

    user, _, password = auth.partition(":")
    login = (user, password) if auth else None
    try:
        # Without certificates, whose store takes a tenth of a second to read.
        with httpx.stream("GET", url, auth=login, trust_env=False, verify=False, timeout=5) as answer:
            return answer.status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


class _Output:
    """Reads a pipe without blocking and splits its text into lines."""

    def __init__(self, pipe: int, on_line: Callable[[str], None]) -> None:
        self.on_line = on_line
        self._pipe = pipe
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._rest = ""
        self._closed = False

    def wait(self, others: Sequence[Any] = ()) -> list[Any]:
        """Pass on the lines in the pipe, waiting at most `POLL_S` seconds for them or one of the others; returns what
        is ready."""
        sources = [*others, *([] if self._closed else [self._pipe])]
        if not sources:
            time.sleep(POLL_S)
        ready = wait(sources, POLL_S)
        if self._pipe in ready:
            self._read()
        return ready

    def _read(self) -> int:
        """Pass on lines; returns the number of bytes."""
        data = os.read(self._pipe, 2**16)
        self._closed = not data
        *lines, self._rest = (self._rest + self._decoder.decode(data, final=self._closed)).split("\n")
        for line in lines:
            self.on_line(line)
        return len(data)

    def drain(self) -> None:
        """Pass on the lines that an ended process has left: at most `PIPE_BYTES`, because a daemon may keep writing."""
        left = PIPE_BYTES
        while left > 0 and not self._closed and wait([self._pipe], 0):
            left -= self._read()
        if self._rest:
            self.on_line(self._rest)
            self._rest = ""


def members(session: int) -> list[psutil.Process]:
    """The live processes of a session and their descendants, which may have moved to other sessions."""
    targets: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == session:
                for each in descendants(pid):
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
            if repository == str(root) and not was_running(int(run), process.create_time()):
                targets.append(process)
    return targets
