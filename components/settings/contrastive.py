"""`finetune.<name>.contrastive`: training of the encoder on pairs of labelled texts."""

import math
from typing import Final

from pydantic import PositiveFloat

from components.settings.section import Section

#: Texts of a step.
ROWS: Final = 16
#: Training ends after `STEPS` steps, or after `PASSES` passes over the rows if these are more steps, but at the latest
#: after `MOST_STEPS`.
STEPS: Final = 104
PASSES: Final = 9
MOST_STEPS: Final = 416
#: Peak learning rate.
RATE: Final = 1e-4


def steps_of(epochs: float, *, epoch: float) -> int:
    """Number of steps of so many epochs of `epoch` steps each."""
    most = min(max(STEPS, PASSES * epoch), MOST_STEPS)
    return max(1, math.ceil(min(epochs * epoch, most)))


class ContrastiveSettings(Section):
    """Contrastive training: texts of the same label become similar, texts of different labels dissimilar. The loss is
    the squared difference between the cosine similarity of two texts and their label overlap (SetFit, Tunstall et al.
    2022). A step encodes `ROWS` texts once and forms all pairs of them. The texts are sampled so that the classes are
    balanced."""

    #: Passes over the training rows; training ends before after a number of steps (`STEPS`, `MOST_STEPS`).
    epochs: PositiveFloat = 32
    #: Whether the embeddings are trained too. Steps on few texts change few of their rows, and the optimizer reads and
    #: writes all of them.
    embeddings: bool = True
