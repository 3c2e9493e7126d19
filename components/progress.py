"""Progress lines of long steps: amount done, current speed, estimated time left; and durations in words."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
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
    """tqdm with its handling of terminals and intervals, but with the text of `line(count)`."""

    def __init__(self, *, line: Callable[[float], str], **options: Any) -> None:
        self.line = line
        super().__init__(**options)

    @property
    def format_dict(self) -> dict[str, Any]:
        return {**super().format_dict, "line": self.line(self.n)}


class Progress:
    """`with Progress("pretrain ulmfit", total=n, unit="tok") as bar: bar.advance(2048, loss=3.2)`.

    On a terminal and in a notebook the line is updated in place; elsewhere (a log, DVC, Prefect, Ray) a new line
    appears every few seconds.

    Args:
        name: name of the step.
        total: total number of units; None if unknown.
        unit: unit of the count (tok, doc, run). MB is scaled to kB, MB or GB; s is shown without a speed.
        done: units completed by an earlier, interrupted run; part of the progress but not of the speed.
        stream: output; default: standard error.
    """

    def __init__(
        self,
        name: str,
        *,
        total: float | None,
        unit: str,
        done: float = 0,
        stream: TextIO | None = None,
    ) -> None:
        stream = stream or sys.stderr
        # The output of a notebook's cell moves the cursor back too.
        live = stream.isatty() or type(stream).__module__.startswith("ipykernel")
        self._total, self._unit, self._rate = total, unit, Rate()
        self._bar = _Bar(
            line=self._line,
            total=total,
            desc=name,
            initial=done,
            file=stream if live else _Lines(stream),
            mininterval=0.2 if live else LINE_SECONDS,
            # tqdm checks the clock at every update; its adaptive value assumes updates of equal size.
            miniters=1,
            dynamic_ncols=live,
            bar_format="{desc}  {line}{postfix}",
        )

    def advance(self, amount: float = 1, **numbers: float | str) -> None:
        """Add `amount` units; `numbers`, such as a loss, are shown at the end of the line until they change."""
        if numbers:
            self._bar.set_postfix(numbers, refresh=False)
        if self._total is not None:
            # Rounding errors of fractions may exceed the total.
            amount = min(amount, self._total - self._bar.n)
        self._rate.add(self._bar.n + amount)
        self._bar.update(amount)

    def _line(self, count: float) -> str:
        speed = self._rate.per_second
        shown = [_amount(count, self._total, self._unit)]
        if speed and self._unit != "s":
            shown.append(_speed(speed, self._unit))
        if self._total is not None:
            shown.insert(0, f"{100 * count / self._total if self._total else 100:3.0f}%")
            if speed:
                shown.append(f"{tqdm.format_interval(round((self._total - count) / speed))} left")
        return "  ".join(shown)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()


def _amount(count: float, total: float | None, unit: str) -> str:
    """The count and the total, both in the unit that suits the larger one."""
    largest = count if total is None else total
    scale, unit = _scaled(largest, unit)
    parts = [count] if total is None else [count, total]
    return "/".join(f"{part / scale:,.{_decimals(largest / scale)}f}" for part in parts) + f" {unit}"


def _speed(per_second: float, unit: str) -> str:
    """Units per second, or seconds per unit where that is more than one."""
    scale, scaled = _scaled(per_second, unit)
    value = per_second / scale
    if value < 1:
        return f"{1 / value:.3g} s/{scaled}"
    return f"{value:,.{_decimals(value)}f} {scaled}/s"


def _scaled(value: float, unit: str) -> tuple[float, str]:
    """A divisor and the unit after the division: 2,500,000 tok are 2.50 M tok, 0.0025 MB are 2.50 kB."""
    if unit == "MB":
        return next(((scale, name) for scale, name in ((1e3, "GB"), (1.0, "MB")) if value >= scale), (1e-3, "kB"))
    if value < 10_000:
        return 1.0, unit
    scale, name = next(entry for entry in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= entry[0])
    return scale, f"{name} {unit}"


def _decimals(value: float) -> int:
    """Decimals of three significant digits; none for whole numbers."""
    return 0 if value == round(value) or value >= 100 else 1 if value >= 10 else 2


def duration(seconds: float) -> str:
    """A duration in words: 45 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
