"""Which texts without labels are read."""

from __future__ import annotations

from typing import Literal

#: Kinds of task whose rows are one text, as documents are.
OF_ONE_TEXT = frozenset(("classification", "multilabel", "regression"))
#: `task`: the texts of the train split, without their labels; `domain`: the documents of `data.domain`; or `both`.
#: Texts of dev and test are left out. Documents are for kinds with one text per row.
TextSource = Literal["task", "domain", "both"]
