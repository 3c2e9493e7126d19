"""What every study offers: a question about a run, answered with tables, figures, a chapter of the report and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from components.reporting.findings import Findings


@dataclass(frozen=True)
class Study:
    """One line of the STUDIES table.

    Attributes:
        name: of the command `headstart study <name>` and of the directory below `studies/`.
        question: one sentence, for the help.
        run: (outputs, *, options) -> what it found; the options become flags of the command.
    """

    name: str
    question: str
    run: Callable[..., Findings]
