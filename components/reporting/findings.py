"""Chapters of the report (sentences, tables and figures), and the findings of a study, which the report reads:

studies/<name>/study.json    {schema, chapter, options, numbers}
studies/<name>/figure-N.svg
metrics/study/<name>.json    digest of the study, in the folder that the stage `report` depends on
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from components.core.artifacts import MANIFEST, json_of, read_manifest, write_atomic, write_json, writing
from components.core.errors import ArtifactError
from components.data.scoring.intervals import Interval

#: A row of a table of values, or another JSON object.
Row = Mapping[str, Any]
_NUMBER = re.compile(r"[+\-\u2212<>~]?\d")


def cell(value: Any, form: str = ".3f") -> str:
    """`0.512 [0.480, 0.544]` for an interval (`Interval`, or as in evaluation.json); `0.512` for a number and for an
    interval without width, but `inf [inf, inf]`: in all samples; an empty text for None."""
    if isinstance(value, Mapping):
        value = interval_of(value)
    if isinstance(value, Interval):
        mean, low, high = (format(of, form) for of in (value.mean, value.low, value.high))
        return f"{mean} [{low}, {high}]" if value.low < value.high or value.low == math.inf else mean
    if isinstance(value, bool) or value is None:
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int) else format(value, form) if isinstance(value, float) else str(value)


def interval_of(entry: Row) -> Interval:
    """An interval of evaluation.json, where None is infinite."""
    return Interval(*(math.inf if entry[key] is None else entry[key] for key in ("mean", "low", "high")))


@dataclass
class Table:
    """A table of text cells."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @classmethod
    def of(cls, rows: Sequence[Row], title: str = "", forms: Mapping[str, str] = MappingProxyType({})) -> Table:
        """Column -> value of each row; the columns are those of the first row. `forms`: column -> format of its
        numbers, other than three digits."""
        columns = list(rows[0]) if rows else []
        return cls(columns, [[cell(row[name], forms.get(name, ".3f")) for name in columns] for row in rows], title)

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


KIND = "study"
FILE = "study.json"
FOLDER = "studies"
SCHEMA = 2


@dataclass(frozen=True)
class Findings:
    """The result of a study. `numbers`: the same numbers, unrounded, as a JSON object."""

    chapter: Chapter
    numbers: Row


def write(out: Path, name: str, result: Findings, *, options: Row, inputs: Mapping[str, str]) -> Path:
    """Write the findings of a study; returns its directory."""
    directory = out / FOLDER / name
    chapter = result.chapter
    with writing(directory, kind=KIND) as draft:
        for number, drawing in enumerate(chapter.figures, 1):
            (draft.path / f"figure-{number}.svg").write_text(drawing.svg + "\n", encoding="utf-8")
        content = {"schema": SCHEMA, "chapter": asdict(chapter), "options": options, "numbers": result.numbers}
        write_json(draft.path / FILE, content, sort_keys=False, ensure_ascii=False, allow_nan=False)
        draft.facts |= {"study": name, "options": options, "inputs": dict(sorted(inputs.items()))}
    metrics = out / "metrics" / KIND / f"{name}.json"
    write_atomic(metrics, json.dumps({"digest": read_manifest(directory).digest}) + "\n")
    return directory


def read(directory: Path) -> Findings:
    read_manifest(directory, kind=KIND)
    try:
        content = json_of(directory / FILE)
        if content["schema"] == SCHEMA:
            return Findings(TypeAdapter(Chapter).validate_python(content["chapter"]), content["numbers"])
    except (OSError, ValueError, KeyError) as error:
        raise ArtifactError(
            f"{directory / FILE}: damaged ({error!r}); run `headstart study {directory.name}` again"
        ) from error
    raise ArtifactError(f"{directory}: written by another version; run `headstart study {directory.name}` again")


def read_all(out: Path) -> dict[str, Findings]:
    """The findings of all studies in a run's folder, by name."""
    return {path.parent.name: read(path.parent) for path in sorted((out / FOLDER).glob(f"[!.]*/{MANIFEST}"))}
