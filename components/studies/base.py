"""The interface of a study: a question about a run, answered by tables, figures, a chapter of the report and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from components.reporting.findings import Findings


@dataclass(frozen=True)
class Study:
    """One line of the STUDIES table.

    Attributes:
        name: of the command `headstart study <name>` and of the output directory below `studies/`.
        question: one sentence, the help text of the command.
        run: (outputs, *, options) -> findings; the options become flags of the command.
    """

    name: str
    question: str
    run: Callable[..., Findings]
