"""Write measured numbers to `docs/results/<name>.json`: benchmarks with `--record NAME`, the pipeline's evaluation with
`python -m components.reporting --record`."""

from __future__ import annotations

import argparse
import datetime
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from components.core.artifacts import read_json, write_atomic
from components.core.errors import DataError, nearest
from components.core.processors import cores, processor_name
from components.reporting.results import RESULTS, Column, Result, Row, read_result

#: Column of the models that can be registered: of a system the average over the seeds of its largest budget.
REGISTERED: Final = "registered"


def of_evaluation(evaluation: Path, name: str, *, command: str, score: str = "", title: str = "") -> Result:
    """The scores of one evaluation as a result: a row for each system, a column for each label budget, and one for the
    model that can be registered."""
    content = read_json(evaluation / "evaluation.json", made_by="`headstart retrain`")
    score = score or content["main"]
    if score not in content["scores"]:
        raise DataError(f"{evaluation}: no score {score!r}{nearest(score, content['scores'])}")
    columns = [
        Column(name=str(budget), title=f"{'all' if budget < 0 else budget} {content['unit']}")
        for budget in content["budgets"]
    ]
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
    """Add `--record NAME` to a benchmark."""
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


def commit_of(folder: Path) -> str | None:
    def ask(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        # Pages and results are no code: the first of two results of one command does not make the second one dirty.
        code = (":(top)", ":(top,exclude)docs")
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", *code)
        return ask("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
