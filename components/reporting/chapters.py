"""What a page of the report is made of: a chapter with sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """Cells as text, the first column to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


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
