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
    before. Texts that are rows of dev or test, or labelled rows of the run, are left out.
    """

    #: `task`: the texts of the train split, without their labels; `domain`: the documents of `data.domain`; or `both`.
    #: Documents are for kinds with one text per row.
    source: Literal["task", "domain", "both"] = "task"
    #: Maximum number of texts.
    rows: Positive = 2000
    #: Rounds of self-training of a solved head. The round is chosen by the score of selection; round 0 is without
    #: unlabelled text.
    rounds: Positive = 3
    #: Minimum calibrated probability of a pseudo-label.
    confidence: Fraction = 0.6
    #: Total weight of the pseudo-labels, relative to that of the labelled rows.
    weight: Annotated[float, Field(gt=0)] = 1.0
    #: Whether the teacher is the mean of the head and of a regression on the words of the text (latent semantic
    #: analysis of the unlabelled texts), which teach each other (co-training, Blum and Mitchell 1998).
    words: bool = True
