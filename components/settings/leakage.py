"""`leakage`: test texts in the corpora that a model was trained on."""

from __future__ import annotations

from typing import Literal

from components.settings.section import Section

#: `report`: counted in the report. `refuse`: in addition, a model whose ancestors saw such a text is not promoted.
Rule = Literal["report", "refuse"]


class LeakageSettings(Section):
    """What happens if texts of test occur in what a model or its ancestors were trained on.

    Unlabelled domain text that contains the inputs of the test rows makes the evaluation transductive, which is often
    intended; therefore the default is to report. Rows of a task's own train split are governed by
    `data.tasks.<name>.overlap`.
    """

    #: Texts that occur word by word: as a document, or, from eight words on, inside of one.
    exact: Rule = "report"
    #: Near copies of a document, by MinHash.
    near: Rule = "report"
