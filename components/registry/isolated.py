"""A classifier in a process of its own, with the code that it was registered with.

The code of the repository changes after a model was registered. Its weights are then computed by the code in its own
bundle, so that its predictions stay what they were. Only rows and answers pass between the processes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from components.errors import ArtifactError
from components.tasks.data import Answer, Fields
from components.training import threads

RUNNER = Path(__file__).with_name("isolated_runner.py")
#: Time limit in seconds for the start, in which torch is imported and the weights are read.
START_SECONDS = 300.0


class IsolatedClassifier:
    """A classifier in another process; several threads may call it.

    The process ends with this object, with `close`, or with this process. If it dies, it is started again once per
    call.

    Args:
        bundle: the verified bundle; it must exist as long as the object.
        code: folder with the version's verified package `components`, likewise.
        what: name of the version for messages.
        on_close: called once after the process has ended.

    Raises:
        ArtifactError: the code cannot be run.
    """

    def __init__(self, bundle: Path, *, code: Path, what: str, on_close: Callable[[], object] = lambda: None) -> None:
        self._arguments = (bundle, code, what)
        self._lock = threading.Lock()
        self._process = _Process(*self._arguments)
        self.kind = str(self._process.greeting["kind"])
        self.labels: Sequence[str] = list(self._process.greeting["labels"])
        self.close = weakref.finalize(self, _close, held := [self._process], on_close)
        self._held = held

    def answer(self, rows: Sequence[Fields], batch_size: int = 0) -> list[Answer]:
        """The answers to N rows.

        Raises:
            ArtifactError: the version's code has failed.
        """
        with self._lock:
            try:
                return self._process.answer(rows)
            except (EOFError, OSError):
                self._process.end()
                self._process = self._held[0] = _Process(*self._arguments)
            try:
                return self._process.answer(rows)
            except (EOFError, OSError) as error:
                raise ArtifactError(f"{self._arguments[2]}: its process ended during a prediction") from error


def _close(held: list[_Process], on_close: Callable[[], object]) -> None:
    held[0].end()
    on_close()


class _Process:
    """The process and the connection to it."""

    def __init__(self, bundle: Path, code: Path, what: str) -> None:
        import torch

        self._what = what
        own, theirs = socket.socketpair()
        count = torch.get_num_threads()
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                # Isolated mode: neither PYTHONPATH nor the working directory is searched for modules.
                [sys.executable, "-I", str(RUNNER), str(code), str(bundle), str(theirs.fileno()), str(count)],
                env=variables | threads.environment(count),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(own.detach())
        try:
            ready = self._connection.poll(START_SECONDS)
            self.greeting = self._received() if ready else {"error": f"no answer within {START_SECONDS:g} s"}
        except (EOFError, OSError):
            self.greeting = {"error": f"its process ended (exit code {self._process.wait()})"}
        if "error" in self.greeting:
            self.end()
            raise ArtifactError(
                f"{what}: the code of this version, which differs from the repository's, cannot be run "
                f"({self.greeting['error']}); train and register a new model, or roll back: `headstart rollback`"
            )

    def answer(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N rows."""
        if not rows:
            return []
        self._connection.send_bytes(json.dumps([list(row) for row in rows]).encode())
        header = self._received()
        if "error" in header:
            raise ArtifactError(f"{self._what}: its code has failed: {header['error']}")
        values = np.frombuffer(self._connection.recv_bytes(), dtype=np.float32)
        return np.split(values, np.cumsum(header["lengths"])[:-1])

    def end(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _received(self) -> dict[str, Any]:
        return dict(json.loads(self._connection.recv_bytes()))
