"""`adapt.<name>` and `adapt_task.<task>`: continued pretraining on the text of the domain or of one task."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section
from components.settings.training import LanguageModelTraining


class IncrementSettings(Section):
    """Adaptation to new text that continues from the last adapted model instead of the pretrained one, with a
    re-warmed learning rate and replay of text that it has already learned (Ibrahim et al. 2024)."""

    #: Tokens of earlier text that are repeated per token of new text.
    replay: Annotated[float, Field(ge=0)] = 1.0
    #: Peak learning rate of an increment, as a fraction of `training.rate`.
    rate: Annotated[float, Field(gt=0)] = 0.25
    #: Every k-th adaptation to new text starts from the pretrained model and learns all text; null: only when needed.
    rebuild_every: Positive | None = 10


class AdaptSettings(Section):
    """Continued pretraining on the domain's text."""

    #: Training of the language model.
    training: LanguageModelTraining
    #: How new text is learned; null: every adaptation starts from the pretrained model.
    increment: IncrementSettings | None = IncrementSettings()


class AdaptTaskSettings(Section):
    """Continued pretraining of the adapted model on the unlabelled texts of one task's train split (Gururangan et al.
    2020). Keys that are null take their value from `adapt.<name>.training`."""

    #: Passes over the texts; replaces the budget of `adapt.<name>.training`.
    epochs: Annotated[float, Field(gt=0)] = 10
    #: Peak learning rate.
    rate: Annotated[float, Field(gt=0)] | None = None
    #: Rows per step.
    batch_size: Positive | None = None
