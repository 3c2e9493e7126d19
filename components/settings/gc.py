"""`gc`: what `headstart gc` deletes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import NO_EFFECT, Positive, Section

Days = Annotated[float, Field(ge=0)]


class GcSettings(Section):
    """What `headstart gc` deletes. No key changes a result."""

    model_config = {**Section.model_config, "json_schema_extra": NO_EFFECT}

    #: Newest versions of each registered model that are kept, besides those that are always kept: versions with an
    #: alias, the last champions, versions that a person chose, rolled back or marked, and parents of kept versions.
    keep_versions: Positive = 10
    #: Checkpoints that were not written for so many days are deleted, so that an interrupted run starts anew; and
    #: features of frozen encoders that were not used, which are computed again if needed.
    checkpoint_days: Days = 7
