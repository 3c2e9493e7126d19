"""`run`: what one run of the pipeline covers."""

from __future__ import annotations

from pydantic import Field

from components.settings.names import Start
from components.settings.section import Section


class RunSettings(Section):
    """What one run of the pipeline covers."""

    out: str
    families: list[str] = Field(min_length=1)
    tasks: list[str] = Field(min_length=1)
    starts: list[Start] = Field(min_length=1)
    seed: int
