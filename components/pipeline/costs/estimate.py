"""Estimates of time and money of the stages of a run, from the durations of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from components.pipeline.costs.history import Duration
from components.pipeline.costs.work import Work
from components.pipeline.stages import TRAINING
from components.settings.cost import BudgetSettings, CostSettings

#: Prior of the standard deviation of the logarithm of a duration, and its weight in runs: a stage that ran once takes
#: between half and twice as long the next time.
PRIOR_STD = 0.3
PRIOR_RUNS = 3
#: Additional standard deviation if the durations were measured for another item of the stage, or for another stage.
OTHER_STD = 0.5
#: Two-sided confidence of a range.
CONFIDENCE = 0.9
#: Durations that are used, at most: the last ones.
USED = 10
NO_HISTORY = "no history"


@dataclass(frozen=True)
class Estimate:
    """The cost of a stage.

    Attributes:
        stage: its name.
        why: why it would run.
        work: amount of work.
        basis: what the estimate is based on.
        seconds: expected duration; None: unknown.
        low: lower bound of its 90% range in seconds.
        high: upper bound.
        gpus: number of GPUs that it uses.
        tokens: of training; 0 for other stages.
    """

    stage: str
    why: str
    work: Work
    basis: str = NO_HISTORY
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    gpus: int = 0
    tokens: float = 0


@dataclass(frozen=True)
class Total:
    """The cost of a run: `seconds`, `tokens` of training, `gpu_hours` and `money`, expected, with bounds. Bounds are
    sums of the bounds of the stages, because a busy machine slows all of them. `unknown`: stages without
    an estimate."""

    seconds: float
    low: float
    high: float
    tokens: float
    gpu_hours: float
    money: float
    money_low: float
    money_high: float
    unknown: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The estimate as JSON."""
        return asdict(self)


def estimate(
    stage: str, work: Work, history: Sequence[Duration], *, machine: str, gpus: int = 0, why: str = ""
) -> Estimate:
    """The duration of a stage: work times the geometric mean of seconds per unit of work on this machine.

    Used are, in this order: the same stage, another item of the stage (`adapt@gpt` for `adapt@bert`), for stages that
    train a language model any other such stage. The range is a prediction interval of the logarithm, whose variance is
    shrunk towards a prior because there are few runs.
    """
    group = stage.partition("@")[0]
    blank = Estimate(
        stage, why, work, gpus=gpus if group in TRAINING else 0, tokens=work.amount if work.unit == "tokens" else 0
    )
    if work.unit == "seconds":
        # Start and end of the workers take longer than the budget, never less.
        high = 1.3 * work.amount + 30
        return replace(blank, basis="training.seconds", seconds=work.amount, low=work.amount, high=high)
    here = [of for of in history if of.machine == machine and of.unit == work.unit]
    for basis, chosen, more in (
        ("", [of for of in here if of.stage == stage], 0.0),
        (f"other {group}, ", [of for of in here if of.group == group], OTHER_STD),
        ("other training, ", here if work.unit == "tokens" else [], 2 * OTHER_STD),
    ):
        if chosen:
            rates = [math.log(max(of.rate, 1e-12)) for of in chosen[-USED:]]
            mean, half = _prediction(rates, more)
            seconds = work.amount * math.exp(mean)
            return replace(
                blank,
                basis=f"{basis}{len(rates)} run{'s' * (len(rates) > 1)}",
                seconds=seconds,
                low=seconds * math.exp(-half),
                high=seconds * math.exp(half),
            )
    return blank


def _prediction(logs: Sequence[float], more: float) -> tuple[float, float]:
    """Mean and half width of the prediction interval of the next value."""
    from scipy.stats import t

    mean = sum(logs) / len(logs)
    squares = sum((value - mean) ** 2 for value in logs)
    freedom = PRIOR_RUNS + len(logs) - 1
    variance = (PRIOR_RUNS * PRIOR_STD**2 + squares) / freedom * (1 + 1 / len(logs)) + more**2
    return mean, float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(variance)


def total(estimates: Sequence[Estimate], cost: CostSettings) -> Total:
    """The sum of the stages."""
    timed = [of for of in estimates if of.seconds is not None]
    bounds = ("seconds", "low", "high")
    seconds, low, high = (sum(getattr(of, bound) for of in timed) for bound in bounds)
    expected, least, most = (sum(money(getattr(of, bound), of.gpus, cost) for of in timed) for bound in bounds)
    tokens, gpu_hours = sum(of.tokens for of in estimates), sum((of.seconds or 0) * of.gpus for of in timed) / 3600
    unknown = [of.stage for of in estimates if of.seconds is None]
    return Total(seconds, low, high, tokens, gpu_hours, expected, least, most, unknown)


def money(seconds: float, gpus: int, cost: CostSettings) -> float:
    """The price of a stage that takes `seconds` on `gpus` GPUs."""
    return seconds / 3600 * (cost.per_hour.cpu + gpus * cost.per_hour.gpu)


def excess(seconds: float, spent: float, budget: BudgetSettings, currency: str) -> str:
    """Which limit an amount exceeds, in words; empty if none."""
    if budget.hours is not None and seconds > 3600 * budget.hours:
        return f"{seconds / 3600:.2f} hours, and budget.hours is {budget.hours:g}"
    if budget.money is not None and spent > budget.money:
        return f"{spent:.2f} {currency}, and budget.money is {budget.money:g}"
    return ""


def seconds_left(seconds: float, spent: float, gpus: int, budget: BudgetSettings, cost: CostSettings) -> float:
    """Seconds that a stage may take on `gpus` GPUs until a limit is reached; infinite without a limit.

    Args:
        seconds: that the run has taken.
        spent: money that it has cost.
        gpus: that the stage uses.
        budget: the limits.
        cost: the prices.
    """
    left = math.inf if budget.hours is None else 3600 * budget.hours - seconds
    price = money(1, gpus, cost)
    if budget.money is not None and price:
        left = min(left, (budget.money - spent) / price)
    return left
