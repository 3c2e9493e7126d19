"""Processes of a run that have imported its libraries, from the fork server of Python's `multiprocessing`: imports take
longer than most stages. Each has a session, a working directory and output of its own.

The command of a stage, as DVC starts it, asks for one on a socket (`components.cli.entry`).
"""

import contextlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from components.core import threads
from components.core.environment import protect, variables

#: The module of the command `headstart`.
CLI = "components.cli"
#: Seconds within which a command that has connected sends its request.
REQUEST_S = 30.0
#: Number of commands that may wait for a process.
WAITING = 16

_CONTEXT = multiprocessing.get_context("forkserver")
_serving: list[bool] = []


def serve(modules: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start the server, which imports the modules at once; without effect if it has started, or not on Linux. It ends
    with this process."""
    if _serving or sys.platform != "linux":
        return
    _serving.append(True)
    threads.prepare()
    protect()
    _CONTEXT.set_forkserver_preload([*modules])
    with variables(environment):
        forkserver.ensure_running()


def is_serving() -> bool:
    return bool(_serving)


def start(
    module: str,
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    output: int,
    errors: int,
    bound: bool = True,
) -> BaseProcess:
    """Execute `python -m MODULE ARGUMENT ...` in a process of the server.

    Args:
        output: descriptor for the standard output, as `errors` for the standard error.
        bound: whether the process ends with this one.
    """
    streams = [Connection(os.dup(each), readable=False) for each in (output, errors)]
    process = _CONTEXT.Process(
        target=execute, args=(module, [*arguments], str(directory), dict(environment), streams, bound)
    )
    try:
        process.start()
    finally:
        for stream in streams:
            stream.close()
    return process


def execute(
    module: str,
    arguments: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    streams: Sequence[Connection],
    bound: bool,
) -> None:
    """Within a process of the server: execute a module."""
    os.setsid()
    if bound:
        threading.Thread(target=_end_with_run, name="run", daemon=True).start()
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(directory)
    # Not cleared: libraries that are imported have set variables that hold in every process.
    os.environ.update(environment)
    protect()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_run() -> None:
    """Let this process end when the one that has asked for it does. The server does not: its children keep it alive."""
    if (run := multiprocessing.parent_process()) is not None:
        run.join()
        os.kill(os.getpid(), signal.SIGTERM)


class Stages:
    """The socket on which commands of stages ask for a process, and these processes.

    Attributes:
        address: path of the socket.
    """

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "stages")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen(WAITING)
        self._running: dict[BaseProcess, socket.socket] = {}

    def sources(self) -> list[socket.socket | int]:
        """What can be read when `attend` has something to do."""
        return [self._listener, *self._running.values(), *(process.sentinel for process in self._running)]

    def attend(self, ready: Sequence[object]) -> list[int]:
        """Start processes for commands that have connected, and answer those whose process has ended.

        Returns:
            The sessions of processes that have ended, and of those whose command has ended.
        """
        ended = []
        if self._listener in ready:
            with contextlib.suppress(OSError, ValueError):
                self._begin(self._listener.accept()[0])
        for process, command in list(self._running.items()):
            code = process.exitcode
            if code is None and command not in ready:
                continue
            with command, contextlib.suppress(OSError):
                if code is not None:
                    command.sendall(str(code).encode())
            del self._running[process]
            ended.append(process.pid or 0)
        return ended

    def _begin(self, command: socket.socket) -> None:
        command.settimeout(REQUEST_S)
        header, descriptors, _, _ = socket.recv_fds(command, 8, 2)
        try:
            with command.makefile("rb") as stream:
                request = json.loads(stream.read(int.from_bytes(header, "big")))
            output, errors = descriptors
            self._running[start(CLI, output=output, errors=errors, **request)] = command
        except (OSError, ValueError):
            command.close()
            raise
        finally:
            for each in descriptors:
                os.close(each)

    def sessions(self) -> list[int]:
        """The sessions of the processes that run."""
        return [process.pid or 0 for process in self._running]

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def stages() -> Iterator[Stages | None]:
    """The socket for a run; None where no path is short enough for it: stages are then executed by the processes that
    DVC starts."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        try:
            socket_of_run = Stages(Path(folder))
        except OSError:
            yield None
            return
        try:
            yield socket_of_run
        finally:
            socket_of_run.close()
