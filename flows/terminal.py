"""The terminal output of a run: one line at a time, with the stage that it comes from."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from components.errors import HeadstartError

#: A line of components.progress that the next one overwrites: percentage and remaining time.
PROGRESS = re.compile(r"\s\d+%\s.*\bleft$")


class StageError(HeadstartError):
    """A command of a run failed; its message has been printed.

    Attributes:
        final: whether a retry is useless, because the user has to act first.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class BudgetError(StageError):
    """A run is expected to exceed its budget, or has reached it. The outputs so far are kept."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(message, final=True)


class Terminal:
    """Prints lines. On a terminal, a progress line is overwritten by the next progress line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._in_progress = False

    def say(self, line: str, *, source: str = "") -> None:
        """Print `line`, prefixed with the name of its stage."""
        stream = self._stream or sys.stdout
        text = f"{source} | {line}" if source else line
        progress = stream.isatty() and PROGRESS.search(line) is not None
        stream.write(("\r\x1b[K" if self._in_progress and progress else "\n" if self._in_progress else "") + text)
        self._in_progress = progress
        if not progress:
            stream.write("\n")
        stream.flush()

    def error(self, message: str) -> None:
        """Print `error: message` to standard error, below an unfinished progress line."""
        if self._in_progress:
            self._in_progress = False
            (self._stream or sys.stdout).write("\n")
            (self._stream or sys.stdout).flush()
        print(f"error: {message}", file=sys.stderr, flush=True)


terminal = Terminal()
