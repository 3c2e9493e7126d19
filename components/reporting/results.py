"""Measured numbers as data: the schema of `docs/results/<name>.json`, and each file as a table or a figure."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from components.core.artifacts import read_json
from components.core.errors import ArtifactError, DataError
from components.settings.names import FileName
from components.settings.section import Section

SCHEMA = 1
RESULTS = Path("docs/results")
#: An estimate alone, or with the lower and upper bound of its interval.
Estimate = Annotated[list[float], Field(min_length=1, max_length=3)]


class Column(Section):
    """One column of a table. `format`: Python format specification of a number, such as `.3f`, `+.3f` or `,.0f`.
    `unit`: suffix of every number, including a space."""

    name: str
    title: str
    format: str = ".3f"
    unit: str = ""

    def show(self, estimate: Sequence[float] | None) -> str:
        """The estimate with its interval, or an empty string."""
        if estimate is None:
            return ""
        value, *bounds = (format(number, self.format) for number in estimate)
        return f"{value}{self.unit}" + (f" [{', '.join(bounds)}]" if bounds else "")


class Row(Section):
    """One row of a table: column name -> [estimate] or [estimate, low, high]."""

    name: str
    estimates: dict[str, Estimate]


class Plot(Section):
    """A figure of a table: one curve for each of `rows`; the column names are the numbers on the horizontal axis."""

    x: str
    y: str
    rows: list[str] = Field(min_length=1)


class Result(Section):
    """One file of `docs/results`. `commit`: of the code, with the suffix `-dirty` if files differed from it.
    `processor`: processor or card, with the instruction set of its bf16 products. `seeds`: of the runs whose mean is
    shown; empty for deterministic measurements. `selection`: split of the numbers; `none` for measurements such as
    speed."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    name: FileName
    title: str
    command: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}(-dirty)?$")]
    processor: str
    cores: Annotated[int, Field(gt=0)]
    seeds: list[int]
    date: datetime.date
    selection: Literal["dev", "test", "none"]
    confidence: Annotated[float, Field(gt=0, lt=1)] | None
    row_title: str
    notes: str = ""
    figure: Plot | None = None
    columns: list[Column] = Field(min_length=1)
    values: list[Row] = Field(min_length=1)

    @field_validator("commit", mode="before")
    @classmethod
    def _committed(cls, commit: object) -> object:
        if commit is None:
            raise ValueError("no commit; run the measuring command with --record in a git checkout")
        return commit

    @model_validator(mode="after")
    def _consistent(self) -> Result:
        problems = []
        for what, entries in (("column", self.columns), ("row", self.values)):
            counts = Counter(entry.name for entry in entries)
            problems += [f"{what} {name!r} appears twice" for name, count in counts.items() if count > 1]
        column_names = {column.name for column in self.columns}
        for row in self.values:
            problems += [
                f"row {row.name!r}: unknown column {name!r}" for name in row.estimates if name not in column_names
            ]
            for name, estimate in row.estimates.items():
                if len(estimate) == 2:
                    problems.append(f"row {row.name!r}, column {name!r}: an interval has two bounds")
                elif len(estimate) == 3 and not estimate[1] <= estimate[0] <= estimate[2]:
                    problems.append(f"row {row.name!r}, column {name!r}: the interval does not contain the estimate")
        intervals = any(len(estimate) > 1 for row in self.values for estimate in row.estimates.values())
        if intervals != (self.confidence is not None):
            problems.append("confidence: required with intervals, and only with them")
        for column in self.columns:
            try:
                format(0.0, column.format)
            except ValueError:
                problems.append(f"column {column.name!r}: {column.format!r} is not a number format")
        if self.figure is not None:
            rows = {row.name: row for row in self.values}
            problems += [f"figure: unknown row {name!r}" for name in self.figure.rows if name not in rows]
            problems += [f"figure: column {name!r} is not a number" for name in column_names if not name.isdigit()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def table(self) -> str:
        """The numbers as a Markdown table, followed by their provenance."""
        lines = [
            _line([literal(self.row_title), *(literal(column.title) for column in self.columns)]),
            "|---" * (len(self.columns) + 1) + "|",
        ]
        lines += [
            _line([literal(row.name), *(column.show(row.estimates.get(column.name)) for column in self.columns)])
            for row in self.values
        ]
        return "\n".join([*lines, "", f"<sub>{self.provenance()}</sub>"]) + "\n"

    def provenance(self) -> str:
        """Title, command, commit, processor, seeds and date in one line."""
        parts = [literal(self.title)]
        if self.selection != "none":
            parts.append(f"{self.selection} split")
        if self.seeds:
            parts.append(f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "1 seed")
        if self.confidence is not None:
            parts.append(f"{self.confidence:.0%} intervals")
        machine = f"{self.processor}, {self.cores} core{'s' if self.cores > 1 else ''}"
        parts += [f"`{self.command}`", machine, f"commit {self.commit[:7]}", self.date.isoformat()]
        return "; ".join(parts) + "." + (f" {self.notes}" if self.notes else "")

    def drawing(self) -> str:
        """The figure as SVG. Equal numbers give equal bytes."""
        if self.figure is None:
            raise DataError(f"{RESULTS / self.name}.json: describes no figure; add the key figure with x, y and rows")
        # Tables are rendered without loading matplotlib.
        from components.reporting.figures import Line, lines

        rows = {row.name: row.estimates for row in self.values}
        series = {}
        for name in self.figure.rows:
            points = sorted((float(column), estimate) for column, estimate in rows[name].items())
            band = all(len(estimate) == 3 for _, estimate in points)
            series[name] = Line(
                [x for x, _ in points],
                [estimate[0] for _, estimate in points],
                low=[estimate[1] for _, estimate in points] if band else None,
                high=[estimate[2] for _, estimate in points] if band else None,
            )
        drawn = lines(series, x_label=self.figure.x, y_label=self.figure.y, logarithmic=True, ticks=True)
        # An image file needs a background, because the page that shows it may be dark.
        return drawn.replace('style="', 'style="background:#ffffff;', 1).rstrip("\n") + "\n"

    def dump(self) -> str:
        """The file's content: JSON with one row per line."""
        raw = json.loads(self.model_dump_json(by_alias=True))
        columns, values = raw.pop("columns"), raw.pop("values")
        head = json.dumps(raw, indent=1, ensure_ascii=False).removesuffix("\n}")
        body = [
            f' "{key}": [\n' + ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in entries) + "\n ]"
            for key, entries in (("columns", columns), ("values", values))
        ]
        return ",\n".join([head, *body]) + "\n}\n"


def read_result(path: Path) -> Result:
    """Read and check a file of `docs/results`. Raises ArtifactError: the file is missing, is not JSON, or does not
    match the schema; the message lists all problems."""
    raw = read_json(path, made_by="the measuring command with --record")
    try:
        result = Result.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors())
        raise ArtifactError(f"{path}: {problems}") from error
    if result.name != path.stem:
        raise ArtifactError(f"{path}: name is {result.name!r}; it must equal the name of the file")
    return result


def literal(text: str) -> str:
    """Text in one line. Characters with a meaning in Markdown are escaped, except in code spans."""
    return re.sub(r"[\\|<$*\[\]]|\b_|_\b", r"\\\g<0>", " ".join(text.split()))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
