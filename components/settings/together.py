"""`together.<group>`: tasks that share one encoder."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Section


class TogetherSettings(Section):
    """Tasks that one encoder learns at the same time, by the settings of `finetune.<family>`.

    Each step is of one task, drawn in proportion to its rows^(1 / temperature).
    """

    tasks: list[str] = Field(min_length=2)
    temperature: Annotated[float, Field(gt=0)] = 1.0
