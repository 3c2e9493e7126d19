"""What a page of the report is made of: a chapter with sentences, tables and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_NUMBER = re.compile(r"[+\-\u2212<>~]?\d")


@dataclass
class Table:
    """Cells as text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @property
    def sides(self) -> list[str]:
        """`left` or `right`, for each column: the first one and those without a number stand to the left."""
        numbers = [any(_NUMBER.match(row[place]) for row in self.rows) for place in range(len(self.columns))]
        return ["right" if place and holds else "left" for place, holds in enumerate(numbers)]


@dataclass
class Drawing:
    """A figure with its caption."""

    svg: str
    caption: str


@dataclass
class Chapter:
    """A heading with sentences (`lead` stands out), tables and figures."""

    title: str
    lead: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Drawing] = field(default_factory=list)
