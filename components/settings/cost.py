"""`cost` and `budget`: prices, and the limits of a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from components.settings.section import NO_EFFECT, Section

Amount = Annotated[float, Field(ge=0)]


class HourlyPrices(Section):
    """Prices of an hour."""

    #: Of the machine, without its GPUs.
    cpu: Amount = 0
    #: Of one GPU.
    gpu: Amount = 0


class CostSettings(Section):
    """Prices, for the estimates of `headstart plan`. No key changes a result."""

    model_config = ConfigDict(json_schema_extra=NO_EFFECT)

    #: Name of the currency.
    currency: str = "USD"
    #: Prices of an hour.
    per_hour: HourlyPrices = HourlyPrices()


class BudgetSettings(Section):
    """Limits of one run. A run that is expected to exceed one is refused; one that does so is stopped, and the next run
    resumes it."""

    model_config = ConfigDict(json_schema_extra=NO_EFFECT)

    #: Maximum hours; null: no limit.
    hours: Annotated[float, Field(gt=0)] | None = None
    #: Maximum money, at the prices of `cost`; null: no limit.
    money: Annotated[float, Field(gt=0)] | None = None
