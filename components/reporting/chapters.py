"""The elements of the report: chapters with sentences, tables and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_NUMBER = re.compile(r"[+\-\u2212<>~]?\d")


@dataclass
class Table:
    """A table of text cells."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @property
    def alignments(self) -> list[str]:
        """`left` or `right` for each column: the first column and columns without numbers are aligned left."""
        numeric = [any(_NUMBER.match(row[index]) for row in self.rows) for index in range(len(self.columns))]
        return ["right" if index and right else "left" for index, right in enumerate(numeric)]


@dataclass
class Drawing:
    """A figure with its caption."""

    svg: str
    caption: str


@dataclass
class Chapter:
    """A heading with highlighted sentences (`lead`), other sentences, tables and figures."""

    title: str
    lead: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Drawing] = field(default_factory=list)
