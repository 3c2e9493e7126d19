"""A limit of time by the clock.

Results never depend on a clock, unless a user limits the time of a fit (`headstart.fit(minutes=...)`): what does not
end in time is left out, and what ends in time is the same as without a limit. The stages of the pipeline have no limit.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

#: Time that is kept for what follows the last training: seconds, and a share of the limit.
RESERVED_SECONDS: Final = 1.0
RESERVED_SHARE: Final = 0.05


class OutOfTimeError(Exception):
    """The limit does not leave the time for a part of the work, which the caller leaves out."""


@dataclass(frozen=True)
class Clock:
    """A limit, by `time.monotonic`, and the names of what was left out."""

    end: float = math.inf
    left_out: list[str] = field(default_factory=list)


_clock: ContextVar[Clock | None] = ContextVar("clock", default=None)


def clock() -> Clock:
    """The present limit."""
    return _clock.get() or Clock()


@contextmanager
def until(end: float) -> Iterator[Clock]:
    """A block with a limit, a time of `Clock.end`."""
    token = _clock.set(Clock(end))
    try:
        yield clock()
    finally:
        _clock.reset(token)


def end_of(minutes: float | None) -> float:
    """The end of a limit that begins now; None: no limit."""
    seconds = math.inf if minutes is None else 60 * minutes
    return time.monotonic() + (1 - RESERVED_SHARE) * seconds - RESERVED_SECONDS


def seconds_left() -> float:
    """Seconds until the limit; negative after it."""
    return clock().end - time.monotonic()


def check_time() -> None:
    """Check that the limit has not passed.

    Raises:
        OutOfTimeError: it has.
    """
    if seconds_left() < 0:
        raise OutOfTimeError
