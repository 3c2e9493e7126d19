"""`budget`: the limit of a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from components.settings.section import NO_EFFECT, Section


class BudgetSettings(Section):
    """The limit of one run. A run that is expected to exceed it is refused; one that does is stopped, and the next run
    resumes it."""

    model_config = ConfigDict(json_schema_extra=NO_EFFECT)

    #: Maximum hours; null: no limit.
    hours: Annotated[float, Field(gt=0)] | None = None
