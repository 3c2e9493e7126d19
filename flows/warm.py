"""Processes of a run that have imported its libraries, from the fork server of Python's `multiprocessing`: imports take
longer than most stages. Each has a session, a working directory and output of its own."""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from components.core import threads
from components.core.environment import protect, variables

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
    bound: bool = True,
) -> BaseProcess:
    """Execute `python -m MODULE ARGUMENT ...` in a process of the server.

    Args:
        output: descriptor for the standard output and error.
        bound: whether the process ends with this one.
    """
    with Connection(os.dup(output), readable=False) as stream:
        given = (module, [*arguments], str(directory), dict(environment), stream, bound)
        process = _CONTEXT.Process(target=execute, args=given)
        process.start()
    return process


def execute(
    module: str,
    arguments: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    stream: Connection,
    bound: bool,
) -> None:
    """Within a process of the server: execute a module."""
    os.setsid()
    if bound:
        threading.Thread(target=_end_with_run, name="run", daemon=True).start()
    for number in (1, 2):
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
