"""What a run says on the terminal: one line at a time, each with the stage it comes from."""

from __future__ import annotations

import re
import sys
from typing import TextIO

#: A line of components.progress that a later one replaces: a share done, and a rest of time.
PROGRESS = re.compile(r"\s\d+%\s.*\bleft$")


class Terminal:
    """Prints lines; on a real terminal a progress line is overwritten by the next one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._open = False

    def say(self, line: str, *, source: str = "") -> None:
        """Print `line`, behind the name of the stage that said it."""
        stream = self._stream or sys.stdout
        text = f"{source} | {line}" if source else line
        live = stream.isatty()
        progress = live and PROGRESS.search(line) is not None
        stream.write(("\r\x1b[K" if self._open and progress else "\n" if self._open else "") + text)
        self._open = progress
        if not progress:
            stream.write("\n")
        stream.flush()


terminal = Terminal()
