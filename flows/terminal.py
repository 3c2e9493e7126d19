"""The output of a run in the terminal.

| style   | prints                                                                                                  |
|---------|---------------------------------------------------------------------------------------------------------|
| text    | a log: every line with the stage that it comes from. A terminal: one line a stage; while it runs, its    |
|         | last line, with the present speed and the remaining time; warnings stay                                  |
| verbose | every line, on a terminal too                                                                            |
| quiet   | warnings, decisions and errors                                                                           |
| json    | every event as a JSON object on a line: {event, time, stage, ...}                                        |

| event | further keys                                                                  |
|-------|-------------------------------------------------------------------------------|
| line  | text                                                                          |
| begin | reasons, usual_s (duration of the last time, null if unknown)                  |
| done  | outcome (completed, cached, skipped or up to date), seconds, left (in words)   |
| error | message                                                                       |
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from components.core.errors import HeadstartError
from components.core.masking import masked, masked_values
from components.core.progress import duration

#: A line of components.core.progress that the next one overwrites: percentage and remaining time.
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


#: Lines that stay, whatever the style.
WARNING = re.compile(r"(?:^|\b)warning\b", re.IGNORECASE)

Style = Literal["text", "verbose", "quiet", "json"]


class Terminal:
    """Prints the lines and the events of a run; on a terminal, a line that does not stay is overwritten by the next."""

    def __init__(self, stream: TextIO | None = None, *, style: Style = "text") -> None:
        self._stream = stream
        self._in_progress = False
        self.style: Style = style

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stdout

    def begin(self, stage: str, *, reasons: Sequence[str] = (), usual_s: float | None = None) -> None:
        if self.style == "json":
            self._emit("begin", stage=stage, reasons=list(reasons), usual_s=usual_s)
            return
        usual = f" (the last time: {duration(usual_s)})" if usual_s is not None and self._out.isatty() else ""
        for number, reason in enumerate(reasons[:3]):
            self.say(f"reason: {reason}{'' if number else usual}", source=stage)

    def done(self, stage: str, outcome: str, seconds: float | None = None, *, left: str = "") -> None:
        """A stage has ended, or had nothing to do."""
        if self.style == "json":
            taken = None if seconds is None else round(seconds, 1)
            self._emit("done", stage=stage, outcome=outcome, seconds=taken, left=left)
            return
        took = f" in {seconds:.1f} s" if seconds is not None else ""
        self.say(f"{outcome}{took}{f' ({left})' if left else ''}", source=stage, stays=True)

    def say(self, line: str, *, source: str = "", stays: bool = False, important: bool = False) -> None:
        """Print a line.

        Args:
            stays: whether it is not overwritten on a terminal; lines without a stage stay.
            important: whether it is printed with the style `quiet`.
        """
        line = masked(line)
        if self.style == "json":
            if line:
                self._emit("line", stage=source or None, text=line)
            return
        warns = WARNING.search(line) is not None
        if self.style == "quiet" and not (important or warns):
            return
        stream, live = self._out, self._out.isatty()
        text = f"{source} | {line}" if source else line
        passing = live and (
            PROGRESS.search(line) is not None
            or (self.style == "text" and bool(source) and not (stays or important or warns))
        )
        if passing:
            # A longer line would be wrapped, and its first part would remain.
            text = text[: shutil.get_terminal_size().columns - 1]
        # On a terminal with one line a stage, what stays takes the place of the passing line.
        over = self._in_progress and (passing or (self.style == "text" and bool(source)))
        stream.write(("\r\x1b[K" if over else "\n" if self._in_progress else "") + text)
        self._in_progress = passing
        if not passing:
            stream.write("\n")
        stream.flush()

    def error(self, message: str) -> None:
        """Print `error: message` to standard error, below an unfinished progress line."""
        message = masked(message)
        if self.style == "json":
            self._emit("error", message=message)
            return
        if self._in_progress:
            self._in_progress = False
            self._out.write("\n")
            self._out.flush()
        print(f"error: {message}", file=sys.stderr, flush=True)

    def _emit(self, event: str, **facts: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._out.write(json.dumps(masked_values({"event": event, "time": time, **facts}), ensure_ascii=False) + "\n")
        self._out.flush()


terminal = Terminal()
