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
#: Peak learning rate.
RATE: Final = 1e-4


class ContrastiveSettings(Section):
    """Contrastive training: texts of the same label become similar, texts of different labels dissimilar.

    The loss is the squared difference between the cosine similarity of two texts and their label overlap (SetFit,
    Tunstall et al. 2022).

    A step encodes `ROWS` texts once and forms all pairs of them. The texts are sampled so that the classes
    are balanced.
    """

    #: Passes over the training rows; training ends before after `PAIRS` pairs.
    epochs: Annotated[float, Field(gt=0)] = 32
    #: Whether the embeddings are trained too. Steps on few texts change few of their rows, and the optimizer reads and
    #: writes all of them.
    embeddings: bool = True
