"""Which texts without labels are read."""

from __future__ import annotations

from typing import Literal

from components.settings.section import Positive, Section

#: Kinds of task whose rows are one text, as documents are.
OF_ONE_TEXT = frozenset(("classification", "multilabel", "regression"))


class UnlabelledSettings(Section):
    """Texts without labels; the texts of dev and test are left out."""

    #: `task`: the texts of the train split, without their labels; `domain`: the documents of `data.domain`; or `both`.
    #: Documents are for kinds with one text per row.
    source: Literal["task", "domain", "both"] = "task"
    #: Maximum number of texts.
    rows: Positive = 4000
