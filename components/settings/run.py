"""`run`: what one run of the pipeline covers."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from components.settings.names import Folder, Start
from components.settings.section import Section


class RunSettings(Section):
    """What one run of the pipeline covers."""

    #: Output folder of all stages, relative to the repository.
    out: Folder
    #: Blocks of `pretrain` that are compared; none: models of words only.
    families: list[str]
    #: Blocks of `data.tasks` that are learned.
    tasks: list[str] = Field(min_length=1)
    #: Initialisations of the encoder that are compared: random weights; `vectors`, as pretraining starts, with no step
    #: of language modelling; pretrained; pretrained and adapted.
    starts: list[Start]
    #: Seed of pretraining and adaptation. Fine-tuning uses `data.tasks.<name>.seeds`.
    seed: int

    @model_validator(mode="after")
    def _a_start(self) -> Self:
        if self.families and not self.starts:
            raise ValueError("starts must name an initialisation: scratch, vectors, pretrained or adapted")
        return self
