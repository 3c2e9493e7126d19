"""`run`: what one run of the pipeline covers."""

from __future__ import annotations

from pydantic import Field

from components.settings.names import Folder, Start
from components.settings.section import Section


class RunSettings(Section):
    """What one run of the pipeline covers."""

    #: Output folder of all stages, relative to the repository.
    out: Folder
    #: Blocks of `pretrain` that are compared.
    families: list[str] = Field(min_length=1)
    #: Blocks of `data.tasks` that are learned.
    tasks: list[str] = Field(min_length=1)
    #: Initialisations of the encoder that are compared: random weights, pretrained, pretrained and adapted.
    starts: list[Start] = Field(min_length=1)
    #: Seed of pretraining and adaptation. Fine-tuning uses `data.tasks.<name>.seeds`.
    seed: int
