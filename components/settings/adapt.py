"""`adapt.<name>` and `adapt_task.<task>`: continued pretraining on the domain or on the text of one task."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section
from components.settings.training import LanguageModelTraining


class AdaptSettings(Section):
    """Going on with the domain's text."""

    training: LanguageModelTraining


class AdaptTaskSettings(Section):
    """Going on from `adapted` with the texts of one task's train, without their labels (Gururangan et al. 2020), by the
    settings of `adapt.<family>` but for these."""

    #: How often the texts are read; takes the place of the budget.
    epochs: Annotated[float, Field(gt=0)] = 10
    rate: Annotated[float, Field(gt=0)] | None = None
    batch_size: Positive | None = None
