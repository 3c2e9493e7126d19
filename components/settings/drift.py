"""`drift`: the log of served traffic and its comparison with training."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from components.settings.section import NO_EFFECT, Fraction, Section

#: Number of checks for which `false_alarms` is the probability of any false alarm.
CHECKS_PER_YEAR: Final = 365


class DriftSettings(Section):
    """What `serve` and `predict` log, and when `headstart drift` raises an alarm. No key changes a model."""

    model_config = {**Section.model_config, "json_schema_extra": NO_EFFECT}

    #: Whether `serve` and `predict` log numbers about every row: lengths, unknown pieces, prediction, confidence, and a
    #: sketch of its features.
    log: bool = True
    #: Whether the texts are logged too; `headstart drift` then shows examples.
    text: bool = False
    #: Maximum size of a task's log in megabytes; the oldest rows are deleted first.
    megabytes: Annotated[float, Field(gt=0)] = 64
    #: Folder of the logs, relative to the repository. Several servers may share it. HEADSTART_TRAFFIC takes precedence.
    folder: str = ".headstart/traffic"
    #: The served traffic of so many days is compared.
    window_days: Annotated[float, Field(gt=0)] = 7
    #: Probability of any false alarm in a year of daily checks of one task: one check is made at a 365th of it.
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.05
    #: Minimum effect of an alarm, between 0 and 1: a significant but smaller difference is reported without alarm.
    least_effect: Fraction = 0.1

    @property
    def error(self) -> float:
        """Probability of a false alarm in one check."""
        return self.false_alarms / CHECKS_PER_YEAR
