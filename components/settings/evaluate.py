"""`evaluate`: how systems are scored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.names import BlockName
from components.settings.section import Positive, Section


class EvaluateSettings(Section):
    """How systems are scored; `ensembles`: name -> families whose mean class probabilities are scored as one more."""

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    resamples: Positive = 1000
    calibration_bins: Positive = 15
    ensembles: dict[BlockName, Annotated[list[str], Field(min_length=2)]] = {}
    #: Classes and slices with fewer test rows are not looked at one by one for harm that transfer does.
    part_rows: Positive = 20
