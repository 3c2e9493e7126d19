"""The output of a run in the terminal.

| style   | prints                                                                                                  |
|---------|---------------------------------------------------------------------------------------------------------|
| text    | a terminal: one line that is overwritten, with the progress of the whole run; elsewhere, such a line at   |
|         | most once a minute; warnings, and lines without a stage                                                  |
| verbose | every line, with the stage that it comes from                                                            |
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
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from components.core.errors import HeadstartError, TransientError
from components.core.masking import masked, masked_values
from components.core.progress import duration
from components.pipeline.costs import left_of

#: A line of components.core.progress: percentage, count, speed, remaining time.
PROGRESS = re.compile(r"\s(?P<percent>\d+)%\s+(?P<count>\S+ ?\S+)\s.*\bleft$")
#: Seconds between two lines about the progress of a run that is not shown on a terminal.
LINE_S = 60.0
#: Weights of stages of which no earlier run says how long they take, relative to one that is not named.
WEIGHTS = {"pretrain": 10, "adapt": 40, "finetune": 30, "baseline": 15}
#: Part of a run and seconds from which on the time left is estimated by what has passed.
LEAST_PART, LEAST_S = 0.1, 10.0
#: Stages whose lines the summary repeats.
SUMMARISED = ("promote", "evaluate", "checks")


class StageError(HeadstartError):
    """A command of a run failed; its message has been printed.

    Attributes:
        final: whether a retry is useless, because the user has to act first.
    """

    printed = True

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
        if not final:
            self.exit_code = TransientError.exit_code


class BudgetError(StageError):
    """A run is expected to exceed its budget, or has reached it. The outputs so far are kept."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(message, final=True)


#: Lines that stay, whatever the style.
WARNING = re.compile(r"(?:^|\b)warning\b", re.IGNORECASE)

Style = Literal["text", "verbose", "quiet", "json"]


class Run:
    """How far a run is.

    Args:
        expected: stage -> seconds that it takes by earlier runs, None if there are none.
    """

    def __init__(self, expected: Mapping[str, float | None]) -> None:
        self._expected = expected
        self._timed = all(seconds is not None for seconds in expected.values())
        self._weights = {
            name: float(WEIGHTS.get(name.partition("@")[0], 1) if seconds is None or not self._timed else seconds)
            for name, seconds in expected.items()
        }
        self._parts = dict.fromkeys(expected, 0.0)
        self._began = time.monotonic()

    def note(self, stage: str, part: float) -> None:
        """A stage is done by this part; a stage with several progress lines begins each at 0."""
        if stage in self._parts:
            self._parts[stage] = max(self._parts[stage], part)

    @property
    def left(self) -> str:
        """The stages that have not ended, and how long they take by earlier runs, in words."""
        return left_of({name: seconds for name, seconds in self._expected.items() if self._parts[name] < 1})

    def __str__(self) -> str:
        """Percentage, bar and time left."""
        total = sum(self._weights.values())
        part = sum(self._weights[name] * done for name, done in self._parts.items()) / total if total else 1.0
        passed = time.monotonic() - self._began
        left = ""
        if self._timed:
            left = f"  {duration(total * (1 - part))} left"
        elif part >= LEAST_PART and passed >= LEAST_S:
            left = f"  about {duration(passed * (1 - part) / part)} left"
        filled = int(10 * part)
        return f"{100 * part:3.0f}% {chr(0x2501) * filled}{chr(0x2500) * (10 - filled)}{left}"


class Terminal:
    """Prints the lines and the events of a run."""

    def __init__(self, stream: TextIO | None = None, *, style: Style = "text") -> None:
        self._stream = stream
        self._in_progress = False
        self._run = Run({})
        self._due = time.monotonic() + LINE_S
        self.style: Style = style

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stdout

    def expect(self, stages: Mapping[str, float | None]) -> None:
        """Set the stages of the run, with the seconds that they took before, None if unknown."""
        self._run = Run(stages)

    def begin(self, stage: str, *, reasons: Sequence[str] = (), usual_s: float | None = None) -> None:
        if self.style == "json":
            self._emit("begin", stage=stage, reasons=list(reasons), usual_s=usual_s)
        elif self.style == "text":
            self._progress(stage)
        for number, reason in enumerate(reasons[:3] if self.style == "verbose" else ()):
            timed = usual_s is not None and not number and self._out.isatty()
            usual = f" (the last time: {duration(usual_s or 0)})" if timed else ""
            self.say(f"reason: {reason}{usual}", source=stage)

    def done(self, stage: str, outcome: str, seconds: float | None = None) -> None:
        """A stage has ended, or had nothing to do."""
        self._run.note(stage, 1.0)
        left = "" if seconds is None else self._run.left
        if self.style == "json":
            taken = None if seconds is None else round(seconds, 1)
            self._emit("done", stage=stage, outcome=outcome, seconds=taken, left=left)
        elif self.style == "verbose":
            took = f" in {seconds:.1f} s" if seconds is not None else ""
            self.say(f"{outcome}{took}{f' ({left})' if left else ''}", source=stage)
        elif self.style == "text" and seconds is not None:
            self._progress(stage)

    def say(self, line: str, *, source: str = "", stays: bool = False, important: bool = False) -> None:
        """Print a line.

        Args:
            source: stage that it comes from; such a line is only shown if it `stays` or is a warning.
            important: whether it is printed with the style `quiet`.
        """
        line = masked(line)
        if self.style == "json":
            if line:
                self._emit("line", stage=source or None, text=line)
            return
        warns = WARNING.search(line) is not None and (not source or source not in SUMMARISED)
        if self.style == "quiet" and not (important or warns):
            return
        if self.style == "text" and source and not (stays or important or warns):
            if (progress := PROGRESS.search(line)) is not None:
                self._run.note(source, min(int(progress["percent"]), 99) / 100)
                self._progress(source, progress["count"])
            return
        self._clear()
        self._out.write(f"{source} | {line}\n" if source else f"{line}\n")
        self._out.flush()

    def trace(self, line: str, *, source: str) -> None:
        """Print a line of a crashed command, unless every line has been printed."""
        if self.style in ("text", "quiet"):
            self.say(line, source=source, stays=True, important=True)

    def _progress(self, stage: str, count: str = "") -> None:
        """Show how far the run is, and which stage runs: the numbers first, because a narrow terminal cuts the end."""
        out, now = self._out, time.monotonic()
        text = f"{self._run}  {stage.replace('@', ' ')}{f'  {count}' if count else ''}"
        if out.isatty():
            # A longer line would be wrapped, and its first part would remain.
            out.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
            self._in_progress = True
        elif now >= self._due:
            self._due = now + LINE_S
            out.write(f"{text}\n")
        out.flush()

    def _clear(self) -> None:
        """Remove the line about the progress; what stays takes its place."""
        if self._in_progress:
            self._out.write("\r\x1b[K")
        self._in_progress = False

    def error(self, message: str) -> None:
        """Print `error: message` to standard error."""
        message = masked(message)
        if self.style == "json":
            self._emit("error", message=message)
            return
        self._clear()
        self._out.flush()
        print(f"error: {message}", file=sys.stderr, flush=True)

    def _emit(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._out.write(json.dumps(masked_values({"event": event, "time": now, **facts}), ensure_ascii=False) + "\n")
        self._out.flush()


terminal = Terminal()
