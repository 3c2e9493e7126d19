"""Learning-rate schedules: the rate as a fraction of its peak, a pure function of the step.

Arguments: `step`, counted from 0; `total` number of steps; `warmup`, a fraction of them; `final` rate, a fraction of
the peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Highest rate of the slanted triangular schedule divided by the lowest (Howard and Ruder 2018, section 3.2).
SLANT_RATIO = 32


def constant(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then the peak rate. `final` has no effect."""
    return _warming(step, total, warmup) or 1.0


def linear(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then linear decay to `final`."""
    return _warming(step, total, warmup) or 1 - (1 - final) * _after_warmup(step, total, warmup)


def cosine(step: int, total: int, *, warmup: float, final: float) -> float:
    """Linear warm-up, then cosine decay to `final` (Loshchilov and Hutter 2017, without restarts)."""
    share = _after_warmup(step, total, warmup)
    return _warming(step, total, warmup) or final + (1 - final) * (1 + math.cos(math.pi * share)) / 2


def slanted_triangular(step: int, total: int, *, warmup: float, final: float) -> float:
    """ULMFiT's schedule (Howard and Ruder 2018, section 3.2, equation 3), with cut_frac = `warmup`.

    cut = floor(T * cut_frac); p = t / cut if t < cut, else 1 - (t - cut) / (cut * (1 / cut_frac - 1));
    rate = (1 + p * (ratio - 1)) / ratio with ratio 32. `final` has no effect. The paper's p is negative in the last
    steps if T * cut_frac is not an integer; here it is at least 0.
    """
    cut = max(1, math.floor(total * warmup))
    # With a warm-up of 0 or 1 the formula for the fall would divide by zero.
    falls = cut * (1 / warmup - 1) if 0 < warmup < 1 else total
    p = step / cut if step < cut else 1 - (step - cut) / falls
    return (1 + max(0.0, p) * (SLANT_RATIO - 1)) / SLANT_RATIO


def _warming(step: int, total: int, warmup: float) -> float | None:
    """The rate during warm-up, above 0 in the first step; None afterwards."""
    steps = math.floor(total * warmup)
    return (step + 1) / steps if step < steps else None


def _after_warmup(step: int, total: int, warmup: float) -> float:
    """Fraction of the steps after warm-up: 0 at the peak, 1 in the last step."""
    steps = math.floor(total * warmup)
    return min(1.0, max(0.0, (step - steps) / max(1, total - 1 - steps)))


Schedule = Callable[..., float]

SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "slanted_triangular": slanted_triangular,
}
