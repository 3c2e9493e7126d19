"""`finetune.<name>.contrastive`: training of the encoder on pairs of labelled texts."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from components.settings.section import Section

#: Texts of a step.
ROWS: Final = 16
#: Maximum number of pairs in all steps together, and of steps.
PAIRS: Final = 12_500
STEPS: Final = PAIRS // (ROWS * (ROWS - 1) // 2)
#: `frozen` and `rate` of imported encoders.
FROZEN: Final = 0.17
RATE_FROZEN: Final = 1.5e-4


class ContrastiveSettings(Section):
    """Contrastive training: texts of the same label become similar, texts of different labels dissimilar.

    The loss is the squared difference between the cosine similarity of two texts and their label overlap (SetFit,
    Tunstall et al. 2022).

    A step encodes `ROWS` texts once and forms all pairs of them. The texts are sampled so that the classes
    are balanced.
    """

    #: Passes over the training rows; training ends before after `PAIRS` pairs.
    epochs: Annotated[float, Field(gt=0)] = 32
    #: Peak learning rate.
    rate: Annotated[float, Field(gt=0)] = 1e-4
    #: Share of the encoder's layers, from the lowest, that stay frozen, and the embeddings with them; 0: none do.
    frozen: Annotated[float, Field(ge=0, lt=1)] = 0.0
