"""`together.<group>`: tasks that share one encoder."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Section


class TogetherSettings(Section):
    """Multi-task learning: one encoder, one head per task, with the settings of `finetune.<name>`."""

    #: Names of the tasks.
    tasks: list[str] = Field(min_length=2)
    #: The task of a step is sampled with probability proportional to rows^(1 / temperature).
    temperature: Annotated[float, Field(gt=0)] = 1.0
