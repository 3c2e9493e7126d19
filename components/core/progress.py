"""Progress lines of long steps: amount done, current speed, estimated time left; and durations in words."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm

#: Seconds between two lines in a log.
LINE_SECONDS = 5.0
#: Length of the window over which the speed is averaged, and minimum time before there is an estimate, in seconds.
WINDOW_SECONDS = 15.0
LEAST_SECONDS = 1.0
#: Minimum interval between two samples of the window, in seconds.
SAMPLE_SECONDS = 0.1


class Rate:
    """Speed of a growing count over the last `WINDOW_SECONDS`; the time before the first sample has no effect."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, count: float) -> None:
        """Record the current count."""
        now = time.monotonic()
        if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
            return
        self._samples.append((now, count))
        # The last sample before the window is kept, so that there is an estimate even if updates are rare.
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """Units per second; None before there is an estimate."""
        if len(self._samples) < 2:
            return None
        (first, before), (_, after) = self._samples[0], self._samples[-1]
        # Measured until now, so that the speed decreases while there is no progress.
        elapsed = time.monotonic() - first
        return (after - before) / elapsed if elapsed >= LEAST_SECONDS else None


class _Lines:
    """A text stream that ends each update with a line break, for logs that cannot move the cursor back."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        if text := text.replace("\r", "").strip():
            self.stream.write(text + "\n")

    def flush(self) -> None:
        self.stream.flush()


class _Bar(tqdm):
    @staticmethod
    def format_meter(*values: Any, **named: Any) -> str:
        # Below one unit a second, tqdm writes "7.42s/ run" for a unit that begins with a space.
        return str(tqdm.format_meter(*values, **named)).replace("s/ ", " s/")


class Progress:
    """`with Progress("pretrain ulmfit", total=n, unit="tok") as bar: bar.advance(2048, loss=3.2)`.

    On a terminal and in a notebook the line is updated in place; elsewhere (a log, DVC, Prefect, Ray) a new line
    appears every few seconds.

    Args:
        total: total number of units; None if unknown.
        unit: unit of the count (tok, doc, run). MB is scaled to kB, MB or GB; s is shown without a speed.
        done: units completed by an earlier, interrupted run; part of the progress but not of the speed.
    """

    def __init__(
        self, name: str, *, total: float | None, unit: str, done: float = 0, stream: TextIO | None = None
    ) -> None:
        stream = stream or sys.stderr
        # The output of a notebook's cell moves the cursor back too.
        live = stream.isatty() or type(stream).__module__.startswith("ipykernel")
        self._scale = 10**6 if unit == "MB" else 1
        speed = "" if unit == "s" else "  {rate_fmt}"
        line = f"{{desc}}  {{n_fmt}}{{unit}}{speed}"
        if total is not None:
            line = f"{{desc}}  {{percentage:3.0f}}%  {{n_fmt}}/{{total_fmt}}{{unit}}{speed}  {{remaining}} left"
        self._bar = _Bar(
            total=None if total is None else total * self._scale,
            desc=name,
            initial=done * self._scale,
            unit="B" if unit == "MB" else f" {unit}",
            unit_scale=unit == "MB" or (total or 0) >= 10_000,
            file=stream if live else _Lines(stream),
            mininterval=0.2 if live else LINE_SECONDS,
            # tqdm checks the clock at every update; its adaptive value assumes updates of equal size.
            miniters=1,
            dynamic_ncols=live,
            bar_format=f"{line}{{postfix}}",
        )

    def advance(self, amount: float = 1, **numbers: float | str) -> None:
        """Add `amount` units; `numbers`, such as a loss, are shown at the end of the line until they change."""
        if numbers:
            self._bar.set_postfix(numbers, refresh=False)
        amount *= self._scale
        # Rounding errors of fractions may exceed the total.
        self._bar.update(amount if self._bar.total is None else min(amount, self._bar.total - self._bar.n))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()


def duration(seconds: float) -> str:
    """A duration in words: 45 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
