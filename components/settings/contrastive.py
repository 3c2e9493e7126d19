"""`finetune.<name>.contrastive`: training of the encoder on pairs of labelled texts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section


class ContrastiveSettings(Section):
    """Contrastive training: texts of the same label become similar, texts of different labels dissimilar.

    The loss is the squared difference between the cosine similarity of two texts and their label overlap (SetFit,
    Tunstall et al. 2022).

    A step encodes `rows` texts once and forms all pairs of them. The texts are sampled so that the classes are
    balanced.
    """

    #: Texts of a step, at least two per class.
    rows: Annotated[int, Field(ge=4)] = 16
    #: Passes over the training rows.
    epochs: Annotated[float, Field(gt=0)] = 32
    #: Maximum number of pairs in all steps together; with more, training ends before `epochs`.
    pairs: Positive = 12_500
    #: Peak learning rate.
    rate: Annotated[float, Field(gt=0)] = 1e-4


def pairs_of(rows: int) -> int:
    """Number of pairs of a step's rows."""
    return rows * (rows - 1) // 2
