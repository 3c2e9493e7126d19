"""`adapt.<name>` and `adapt_task.<task>`: continued pretraining on the text of the domain or of one task."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section
from components.settings.training import LanguageModelTraining


class AdaptSettings(Section):
    """Continued pretraining on the domain's text."""

    #: Training of the language model.
    training: LanguageModelTraining


class AdaptTaskSettings(Section):
    """Continued pretraining of the adapted model on the unlabelled texts of one task's train split (Gururangan et al.
    2020). Keys that are null take their value from `adapt.<name>.training`."""

    #: Passes over the texts; replaces the budget of `adapt.<name>.training`.
    epochs: Annotated[float, Field(gt=0)] = 10
    #: Peak learning rate.
    rate: Annotated[float, Field(gt=0)] | None = None
    #: Rows per step.
    batch_size: Positive | None = None
