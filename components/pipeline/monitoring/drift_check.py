"""`headstart drift`: the served traffic, or a file, compared with the training data of the champion."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from components.core.errors import DataError, RegistryError
from components.data.formats.rows import open_rows
from components.data.tasks.data import Fields, spaced
from components.data.tasks.kinds import find_kind
from components.learners.prediction import parsed_rows, reading_of, refuse_inputs
from components.registry.champion import find_champion, load_version
from components.registry.drift.comparison import ERROR, FALSE_ALARMS, LEAST_EFFECT, ROWS, Comparison, compare, lacking
from components.registry.drift.measurements import Measured, find_reference, measure, record_reference
from components.registry.drift.traffic import read_traffic, traffic_folder
from components.registry.tracking import Registry, Version, connect
from components.reporting import findings
from components.reporting.findings import Chapter, Findings, Table
from components.settings.params import Params
from components.settings.registry import with_models

#: Prefix of the names under which results are kept among the findings of studies, for the report.
PREFIX = "drift-"
#: The served traffic of so many days is compared.
WINDOW_DAYS: Final = 7
COLUMNS = ("feature", "training", "now", "effect", "p (Holm)", "")


def check_traffic(params: Params, task: str) -> Comparison:
    """Compare the rows that the task's champion has answered with its training data.

    Raises:
        RegistryError: no champion, or neither a reference nor the data to measure one.
        ArtifactError: the champion's files differ from the registered ones.
    """
    registry = connect(with_models(params.registry))
    version = find_champion(registry, task)
    new = read_traffic(traffic_folder(), task=task, digest=version.digest, since=time.time() - WINDOW_DAYS * 86400)
    source = f"{version.label}, served traffic of the last {WINDOW_DAYS} days"
    if few := lacking(new, "rows"):  # before a reference is needed
        return Comparison(source, len(new), 0, too_few=few)
    return compare(_reference(registry, version, params, task), new, source=source)


def check_file(
    params: Params, task: str, file: Path, *, columns: Mapping[str, str] = {}, say: Callable[[str], None] = print
) -> Comparison:
    """Compare the rows of a file with the training data of a task's champion, which predicts them.

    Args:
        columns: input of the task -> column of the file; those of the labelled data by default.
        say: receives what was guessed of the file.

    Raises:
        DataError: the file is missing, damaged or of an unknown format, or lacks a column.
        ConfigError: `columns` names an input that the task does not have.
        RegistryError, ArtifactError: as of `check_traffic`.
    """
    registry = connect(with_models(params.registry))
    version = find_champion(registry, task)
    classifier = load_version(registry, version)
    source, labels = params.data.tasks.get(task), classifier.labels
    columns, form, said = reading_of(file, kind=classifier.kind, labels=labels, source=source, columns=columns)
    for line in said:
        say(line)
    rows = read_inputs(file, kind=classifier.kind, columns=columns, form=form)
    rows = [rows[index] for index in spaced(len(rows), ROWS)]
    new = replace(measure(classifier, rows)[1], texts=tuple(map("\n".join, rows)))
    return compare(_reference(registry, version, params, task), new, source=f"{version.label}, {file}")


def _reference(registry: Registry, version: Version, params: Params, task: str) -> Measured:
    """The recorded reference, or one that is measured and recorded now, for versions that have none."""
    if (reference := find_reference(registry, version)) is not None:
        return reference
    examples = Path(params.run.out) / "examples" / task
    if not examples.is_dir():
        raise RegistryError(
            f"{version.label}: has no reference for drift, and {examples} does not exist; run `headstart retrain`"
        )
    return record_reference(registry, version, load_version(registry, version), examples=examples)


def read_inputs(file: Path, *, kind: str, columns: Mapping[str, str] = {}, form: str = "") -> list[Fields]:
    """The inputs of a file's rows as `headstart predict` reads them; those that it rejects or that lack a part of the
    input are left out.

    Raises:
        DataError: the file is missing, of an unknown format, lacks a column, or has no valid row.
        ConfigError: `columns` names an input that the task does not have.
    """
    task_io = find_kind(kind).io
    refuse_inputs(columns, task_io.inputs)
    options: dict[str, Any] = {"rejected": lambda error, row: None}
    parsed = parsed_rows(str(file), open_rows(file, form=form, **options), task_io, columns, **options)
    if rows := [fields for _, fields in parsed if fields]:
        return rows
    raise DataError(f"{file}: no row has the task's input ({', '.join(task_io.inputs)})")


def publish(result: Comparison, *, out: Path, name: str) -> None:
    """Keep the result for the report and the summary of the next run."""
    time_of_check = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    tables = [Table(COLUMNS, cells(result))] if result.features else []
    chapter = Chapter(f"Drift: {name}", [f"{result.sentence} ({time_of_check})."], list(notes(result)), tables)
    # Texts of users are printed, but not kept in a report that others may see.
    numbers = json.loads(json.dumps(result.as_dict() | {"time": time_of_check, "examples": []}))
    findings.write(out, f"{PREFIX}{name}", Findings(chapter, numbers), options={}, inputs={})


def cells(result: Comparison) -> list[Sequence[str]]:
    """Rows of a table with `COLUMNS`."""
    return [
        [part.name, part.old, part.new, f"{part.effect:.2f}", f"{part.adjusted:.2g}", result.mark(part)]
        for part in result.features
    ]


def notes(result: Comparison) -> Iterator[str]:
    """A sentence below the table: how often an alarm is false."""
    if result.features:
        yield (
            f"{result.rows:,} rows against {result.reference_rows:,} of training. Without drift, a check raises an "
            f"alarm with a probability of at most {ERROR:.2g} ({FALSE_ALARMS:g} in a year of daily checks). An "
            f"alarm also needs an effect of at least {LEAST_EFFECT:g}."
        )
