"""Learning rate as a share of its peak, a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

#: Peak of the slanted triangular schedule over its lowest rate (Howard and Ruder 2018, section 3.2).
SLANT_RATIO = 32


def constant(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then the peak rate to the end."""
    return _warming(step, total, warmup) or 1.0


def linear(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then a straight line down to `final`."""
    return _warming(step, total, warmup) or 1 - (1 - final) * _after_warmup(step, total, warmup)


def cosine(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then half a cosine down to `final` (Loshchilov and Hutter 2017, without restarts)."""
    share = _after_warmup(step, total, warmup)
    return _warming(step, total, warmup) or final + (1 - final) * (1 + math.cos(math.pi * share)) / 2


def slanted_triangular(step: int, total: int, *, warmup: float, final: float) -> float:
    """ULMFiT's schedule (Howard and Ruder 2018, section 3.2, equation 3), with cut_frac = `warmup`.

    cut = floor(T * cut_frac); p = t / cut if t < cut, else 1 - (t - cut) / (cut * (1 / cut_frac - 1));
    rate = (1 + p * (ratio - 1)) / ratio with ratio 32. `final` has no part in it. The paper's p falls below 0 where
    T * cut_frac is far from whole; there it is held at 0.
    """
    cut = max(1, math.floor(total * warmup))
    # Without a rise (0) or without a fall (1) one of the two divisions has no meaning, and no need.
    falls = cut * (1 / warmup - 1) if 0 < warmup < 1 else total
    p = step / cut if step < cut else 1 - (step - cut) / falls
    return (1 + max(0.0, p) * (SLANT_RATIO - 1)) / SLANT_RATIO


def _warming(step: int, total: int, warmup: float) -> float | None:
    """The rate while it rises, None afterwards; the first step already learns."""
    steps = math.floor(total * warmup)
    return (step + 1) / steps if step < steps else None


def _after_warmup(step: int, total: int, warmup: float) -> float:
    """Position between the peak (0) and the last step (1)."""
    steps = math.floor(total * warmup)
    return min(1.0, max(0.0, (step - steps) / max(1, total - 1 - steps)))


Schedule = Callable[..., float]

SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "slanted_triangular": slanted_triangular,
}
