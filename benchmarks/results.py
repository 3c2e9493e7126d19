"""Measured numbers as data: the schema of `docs/results/<name>.json`, which benchmarks write with `--record NAME` and
the pipeline with `python benchmarks/results.py --record`; and the blocks of documents that show them:

    <!-- results:NAME -->           the table, followed by a line on how it was measured
    <!-- results:NAME figure -->    the figure, docs/figures/NAME.svg
    <!-- /results -->
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import Field, ValidationError, field_validator, model_validator

from components.core.artifacts import read_json, write_atomic
from components.core.commits import commit_of
from components.core.errors import ArtifactError, ConfigError, DataError, nearest
from components.core.processors import cores, processor_name
from components.settings.section import FileName, Section

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
    """Read and check a file of `docs/results`.

    Raises:
        ArtifactError: the file is missing, is not JSON, or does not match the schema; the message lists all problems.
    """
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


FIGURES = Path("docs/figures")
# A block begins at the beginning of a line; an indented one is an example.
_BLOCK = re.compile(r"(?ms)(^<!-- results:(?P<name>\S+)(?P<figure> figure)? -->\n)(?P<body>.*?)(^<!-- /results -->)")
_MARKER = re.compile(r"(?m)^<!-- (results:.*|/results) -->")


def documents(root: Path) -> list[Path]:
    """The documents that may show results."""
    if not (root / "README.md").is_file():
        raise ArtifactError(f"{root.resolve()}: no README.md; run the command in the repository's root")
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), root / "experiments" / "README.md"]


def rendered(root: Path) -> dict[Path, tuple[str, list[str]]]:
    """What every document and figure should contain. Returns Path -> (content, names of the blocks whose current
    content differs). For an outdated figure, the list holds the name of its result.

    Raises:
        ArtifactError: a block names a file that does not exist, is not closed, or a file is damaged.
    """
    results = {path.stem: read_result(path) for path in sorted((root / RESULTS).glob("*.json"))}
    contents: dict[Path, tuple[str, list[str]]] = {}
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        contents[path] = _render(text, path, root, results)
    for name, result in results.items():
        if result.figure is not None:
            path, drawn = root / FIGURES / f"{name}.svg", result.drawing()
            same = path.is_file() and path.read_text(encoding="utf-8") == drawn
            contents[path] = (drawn, [] if same else [name])
    return contents


def _render(text: str, path: Path, root: Path, results: Mapping[str, Result]) -> tuple[str, list[str]]:
    stale: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in results:
            raise ArtifactError(f"{path}: block results:{name}: no file {RESULTS / name}.json{nearest(name, results)}")
        if match["figure"]:
            image = f"![{literal(results[name].title)}]({os.path.relpath(root / FIGURES / name, path.parent)}.svg)"
            body = f"{image}\n\n<sub>{results[name].provenance()}</sub>\n"
        else:
            body = results[name].table()
        if body != match["body"]:
            stale.append(name)
        return f"{match[1]}{body}{match[5]}"

    new = _BLOCK.sub(replace, text)
    if 2 * len(_BLOCK.findall(text)) != len(_MARKER.findall(text)):
        raise ArtifactError(f"{path}: a block of results is not closed; each needs a line <!-- /results -->")
    return new, stale


def render(root: Path) -> list[str]:
    """Update documents and figures; returns a line for each that changed."""
    lines = []
    for path, (content, stale) in rendered(root).items():
        if stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
            lines.append(f"{path.relative_to(root)}: {', '.join(stale)}")
    return lines


def differences(root: Path) -> list[str]:
    """A line for each document or figure that differs from its data; empty if none does."""
    return [
        f"{path.relative_to(root)}: {', '.join(stale)} differ(s) from {RESULTS}; run `python benchmarks/results.py`"
        for path, (_, stale) in rendered(root).items()
        if stale
    ]


#: Column of the models that can be registered: of a system the average over the seeds of its largest budget.
REGISTERED: Final = "registered"


def of_evaluation(evaluation: Path, name: str, *, command: str, score: str = "", title: str = "") -> Result:
    """The scores of one evaluation as a result: a row for each system, a column for each label budget, and one for the
    model that can be registered."""
    from components.reporting.evaluations import labels_at

    content = read_json(evaluation / "evaluation.json", made_by="`headstart retrain`")
    score = score or content["main"]
    if score not in content["scores"]:
        raise DataError(f"{evaluation}: no score {score!r}{nearest(score, content['scores'])}")
    columns = [Column(name=str(budget), title=labels_at(budget, content["unit"])) for budget in content["budgets"]]
    values = []
    for system in content["systems"]:
        cells = {str(cell["budget"]): cell["scores"][score] for cell in system["budgets"]}
        if "artifact" in system:
            cells[REGISTERED] = system["artifact"]["scores"][score]
        estimates = {name: [round(cell[key], 6) for key in ("mean", "low", "high")] for name, cell in cells.items()}
        values.append(Row(name=system["system"], estimates=estimates))
    if any(REGISTERED in row.estimates for row in values):
        columns.append(Column(name=REGISTERED, title="registered model"))
    metric = content["titles"][score]
    about = f"{metric[:1].upper()}{metric[1:]} on {content['task']}, {content['rows']['test']:,} test rows"
    return measured(
        name,
        title=title or about,
        command=command,
        row_title="system",
        columns=columns,
        values=values,
        seeds=content["seeds"],
        selection="test",
        confidence=content["confidence"],
    )


def measured(name: str, *, processor: str | None = None, **fields: Any) -> Result:
    """A result with the current commit, processor, number of cores and date. Raises DataError: the code is in no git
    checkout, or a field violates the schema."""
    given: dict[str, Any] = {"seeds": [], "selection": "none", "confidence": None} | fields
    given |= {key: list(value) for key, value in given.items() if isinstance(value, tuple | range)}
    given |= {
        "name": name,
        "commit": commit_of(Path(__file__).parent),
        "processor": processor or processor_name(Path("/proc/cpuinfo")) or platform.machine(),
        "cores": cores(),
        "date": datetime.datetime.now(datetime.UTC).date(),
    }
    try:
        return Result.model_validate(given)
    except ValidationError as error:
        raise DataError(f"{name}: {'; '.join(entry['msg'] for entry in error.errors())}") from error


def write_result(result: Result, root: Path) -> Path:
    """Write `docs/results/<name>.json` in the repository. The key `figure` of an existing file is kept."""
    path = root / RESULTS / f"{result.name}.json"
    if path.is_file() and result.figure is None:
        result = result.model_copy(update={"figure": read_result(path).figure})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, result.dump())
    return path


def add_record_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", metavar="NAME", help="also write the numbers to docs/results/NAME.json")


def record(
    name: str | None, *, columns: Sequence[Column], values: Mapping[str, Mapping[str, Any]], **described: Any
) -> None:
    """Write the measurements of a benchmark if `--record` is given. The command of this process is recorded."""
    if name is None:
        return
    arguments = list(sys.argv)
    if "--record" in arguments:
        position = arguments.index("--record")
        del arguments[position : position + 2]
    rows = [
        Row(name=row, estimates={column: _estimate(value) for column, value in cells.items()})
        for row, cells in values.items()
    ]
    command = shlex.join(["python", *map(_portable, arguments)])
    result = measured(name, command=command, columns=columns, values=rows, **described)
    print(f"recorded: {write_result(result, Path())}")


def _portable(argument: str) -> str:
    """An argument, also NAME=PATH, without absolute paths: relative to the working directory, otherwise the file
    name."""
    name, equals, rest = argument.partition("=")
    if equals and Path(rest).is_absolute():
        return f"{name}={_portable(rest)}"
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _estimate(value: float | Sequence[float]) -> list[float]:
    numbers = value if isinstance(value, Sequence) else [value]
    # Six significant digits: further digits are noise and would change the file with every run.
    return [float(f"{number:.6g}") for number in numbers]


app = typer.Typer(add_completion=False)


@app.command()
def main(
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a document differs.")] = False,
    record: Annotated[str, typer.Option("--record", help="Write scores to docs/results/NAME.json.")] = "",
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="Directory that the stage `evaluate` has written.")
    ] = None,
    command: Annotated[str, typer.Option(help="With --record: command whose run is recorded.")] = "make run",
    score: Annotated[str, typer.Option(help="With --record: metric; the primary metric by default.")] = "",
    title: Annotated[str, typer.Option(help="With --record: title; metric, task and rows by default.")] = "",
) -> None:
    """Render the measured numbers of docs/results in README.md, docs/ and experiments/README.md; or record some."""
    if bool(record) != bool(evaluation):
        raise ConfigError("--record NAME and --evaluation DIR belong together")
    if evaluation is not None:
        result = of_evaluation(evaluation, record, command=command, score=score, title=title)
        print(write_result(result, Path()))
        return
    lines = differences(Path()) if check else render(Path())
    for line in lines:
        print(line, file=sys.stderr if check else sys.stdout)
    raise typer.Exit(1 if check and lines else 0)


if __name__ == "__main__":
    app()
