"""`finetune.<name>.unlabelled`: text without labels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.settings.section import Fraction, Positive, Section

#: Kinds of task whose rows are one text, as documents are.
OF_ONE_TEXT = frozenset(("classification", "multilabel", "regression"))


class UnlabelledSettings(Section):
    """Text without labels, from which a task model also learns.

    With `method: features`, a head that is solved is solved again in `rounds`, each with the pseudo-labels of the round
    before. With `method: consistency`, the predictions of the model for two views of a text are made consistent. Texts
    that are rows of dev or test, or labelled rows of the run, are left out.
    """

    #: `task`: the texts of the train split, without their labels; `domain`: the documents of `data.domain`; or `both`.
    #: Documents are for kinds with one text per row.
    source: Literal["task", "domain", "both"] = "task"
    #: Maximum number of texts.
    rows: Positive = 2000
    #: Rounds of self-training of a solved head. The round is chosen by the score of selection; round 0 is without
    #: unlabelled text.
    rounds: Positive = 3
    #: Minimum calibrated probability of a pseudo-label; in training, minimum probability by the teacher.
    confidence: Fraction = 0.6
    #: Total weight of the pseudo-labels, relative to that of the labelled rows.
    weight: Annotated[float, Field(gt=0)] = 1.0
    #: Whether the teacher is the mean of the head and of a regression on the words of the text (latent semantic
    #: analysis of the unlabelled texts), which teach each other (co-training, Blum and Mitchell 1998).
    words: bool = True
    #: Weight of the consistency loss beside the task's (UDA, Xie et al. 2020).
    consistency: Annotated[float, Field(gt=0)] = 1.0
    #: Unlabelled texts per labelled row of a batch (FixMatch, Sohn et al. 2020: 7).
    ratio: Positive = 2
    #: Temperature that sharpens the teacher's predictions (UDA: 0.4); 1: none.
    temperature: Annotated[float, Field(gt=0, le=1)] = 0.5
    #: Decay of the average of the weights that is the teacher (Tarvainen and Valpola 2017).
    decay: Fraction = 0.99
    #: Share of the pieces that are dropped from the text that the student reads.
    dropped: Annotated[float, Field(ge=0, lt=1)] = 0.15
