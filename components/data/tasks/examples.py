"""Stage `examples`: a task's labelled files, validated once and written as tables that the other stages read.

The output directory holds train.parquet, dev.parquet and test.parquet (fields, target, slice, id, group, unit; see
`components.data.tasks.data`), labels.json (names by index) and metrics.json (counts). Facts of the manifest: task,
kind, budgets and seeds of the runs, and a digest of each split's content, which identifies the version of the data.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import read_manifest, write_json, writing
from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.formats.annotations import REASONS
from components.data.tasks.budgets import folds_of, numbered, sample_rows
from components.data.tasks.data import Examples, Fields, Labels, Split
from components.data.tasks.judged import write_judged
from components.data.tasks.kinds import find_kind
from components.data.tasks.results import read_columns, read_fields, vectors, write_fields
from components.settings.section import Section
from components.settings.tasks import SPLITS, TaskSource

KIND = "examples"
#: Count of the reader -> (message, key of params.yaml that controls it).
NOTICES = {
    "train_rows_in_later_splits": ("row(s) of train are also in dev or test", "overlap"),
    "dev_rows_in_later_splits": ("row(s) of dev are also in test", "overlap"),
    "dev_rows_with_unseen_label": ("row(s) of dev have a label that train lacks, and count as errors", "dev"),
    "test_rows_with_unseen_label": ("row(s) of test have a label that train lacks, and count as errors", "test"),
    "wrong_spans": ("answer(s) are not at their given position", "wrong_spans"),
    "train_rows_in_groups_of_test": ("row(s) of train are in a group of test, which is not new then", "group"),
}
SCHEMA = pa.schema(
    [
        ("fields", pa.list_(pa.string())),
        ("target", pa.list_(pa.float64())),
        ("slice", pa.string()),
        ("id", pa.string()),
        ("group", pa.string()),
        ("unit", pa.int64()),
    ]
)
#: File of the inputs of rows of train without a label; absent if all have one.
UNLABELLED = "unlabelled.parquet"
#: Facts that are keys of the source.
_OF_SOURCE = ("selection", "folds", "language", "learned_languages", "baselines", "label_texts")
#: Whole splits that `read_split` keeps, of two tasks.
KEPT_SPLITS = 6


class ExamplesJob(Section):
    """Inputs and outputs of the stage. `record`: directory for the texts of the judged rows
    (`components.data.tasks.judged`); None: they are not written."""

    task: str
    source: TaskSource
    output: Path
    record: Path | None = None


@dataclass(frozen=True)
class TaskFacts:
    """Facts of a task, besides its rows, that later stages read.

    Attributes:
        digests: split -> SHA-256 of its content.
        learned_languages: languages of train, if the slices of test are languages; otherwise empty.
    """

    task: str
    kind: str
    labels: list[str]
    digests: dict[str, str]
    budgets: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    selection: Literal["budget", "dev"] = "dev"
    folds: int = 5
    language: str = "en"
    baselines: str = "auto"
    learned_languages: list[str] = field(default_factory=list)
    label_texts: dict[str, list[str]] = field(default_factory=dict)


def examples(job: ExamplesJob, result: Examples | None = None) -> Path:
    """Read, check and write the labelled rows of one task. `result`: the rows, if they have been read.

    Raises:
        ConfigError: the kind does not exist.
        DataError: the data are invalid (file, line, what to do).
    """
    key = f"data.tasks.{job.task}"
    kind = find_kind(job.source.kind, key=f"{key}.kind")
    result = kind.read(job.task, job.source) if result is None else result
    budgets = numbered(job.source.budgets)
    splits = {"train": result.train, "dev": result.dev, "test": result.test}
    strata = strata_of(result.train, job.source.kind)
    short = _reported(key, result, budgets, strata=strata, counted=kind.by_class, source=job.source)
    with writing(job.output, kind=KIND) as draft:
        for name, split in splits.items():
            columns = (split.fields, split.targets, split.slices, split.ids, split.groups, split.units)
            table = pa.Table.from_pydict(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
            pq.write_table(table, draft.path / f"{name}.parquet", compression="zstd")
        if result.unlabelled:
            write_fields(draft.path / UNLABELLED, result.unlabelled)
        (draft.path / "labels.json").write_text(json.dumps(result.labels, ensure_ascii=False, indent=1) + "\n")
        metrics: dict[str, Any] = {f"{name}_rows": len(split) for name, split in splits.items()}
        metrics |= {"classes": len(result.labels), **result.counts, "short": short}
        write_json(draft.path / "metrics.json", metrics)
        draft.facts |= {name: getattr(job.source, name) for name in _OF_SOURCE} | {
            "task": job.task,
            "kind": job.source.kind,
            "budgets": budgets,
            "seeds": sorted(set(job.source.seeds)),
            "digests": {
                name: digest(split, result.labels, with_units=name == "train") for name, split in splits.items()
            },
        }
    if job.record is not None:
        source = job.source
        write_judged(job.record, splits, kind=source.kind, strata=strata, budgets=budgets, seeds=source.seeds)
    return job.output


def _reported(
    key: str, result: Examples, budgets: Sequence[int], *, strata: Labels, counted: bool, source: TaskSource
) -> dict[str, int]:
    """Print what a user should know of the rows; the numbers of rows where a budget asks for more."""
    short = {}
    for budget in budgets:
        _, missing = sample_rows(strata, budget, seed=0)
        for stratum, rows in missing.items():
            name = result.labels[stratum] if counted else "train"
            short[f"budget_{budget}_{name}"] = rows
            has = f"{name!r} has {rows} examples in train" if counted else f"train has {rows} examples"
            print(f"{key}: budget {budget}: {has}, all of them are used")
    for count, (message, rule) in NOTICES.items():
        if result.counts.get(count):
            print(f"{key}: {result.counts[count]} {message} ({rule}: {getattr(source, rule)})")
    if repeated := result.counts.get("train_rows_repeated"):
        print(f"{key}: {repeated} row(s) of train repeat an earlier text; copies are in one fold")
    units = len(np.unique(result.train.units))
    if units < len(result.train) - (repeated or 0):
        print(f"{key}: the {len(result.train)} rows of train are in {units} groups, which folds keep together")
    for part in SPLITS:
        for reason, message in REASONS.items():
            if number := result.counts.get(f"{part}_{reason}"):
                line = result.counts.get(f"{part}_{reason}_line")
                print(f"{key}: {part}: {number} {message}" + (f", the first on line {line}" if line else ""))
    return short


def strata_of(train: Split, kind: str) -> Labels:
    """(N,) the stratum of each row, its class; 0 for all rows of kinds whose label budget is a number of rows."""
    return train.labels if find_kind(kind).by_class else np.zeros(len(train), dtype=np.int64)


def largest_draw(facts: TaskFacts, train: Split, *, seed: int) -> Labels:
    """Indices of the training rows that a seed draws at any budget: the largest contains the others."""
    return sample_rows(strata_of(train, facts.kind), facts.budgets[-1], seed=seed)[0]


def run_folds(facts: TaskFacts, train: Split, rows: Labels, *, seed: int, most: int | None = None) -> Labels:
    """(N,) fold of each training row of a run (`folds_of`).

    Args:
        rows: (N,) indices of the run's rows in it.
        most: maximum number of folds; None: `data.tasks.<name>.folds`.

    Raises:
        ConfigError: the rows are too few for a cross-validation.
    """
    try:
        strata = strata_of(train, facts.kind)[rows]
        return folds_of(strata, facts.folds if most is None else most, seed=seed, units=train.units[rows])
    except DataError as error:
        raise ConfigError(
            f"data.tasks.{facts.task}.budgets: {error}; choose a larger budget, add groups, or set selection: dev"
        ) from error


def digest(split: Split, labels: list[str], *, with_units: bool = False) -> str:
    """SHA-256 of inputs, targets and slices, in order; independent of the file format. With units, also of units
    of several rows, by which rows are divided into folds."""
    content = hashlib.sha256()
    for parts, target, name in zip(split.fields, split.targets, split.slices, strict=True):
        given = [labels[int(number)] if number >= 0 else None for number in target] if labels else target.tolist()
        content.update(json.dumps([parts, given, name]).encode() + b"\n")
    if with_units and len(np.unique(split.units)) < len(split):
        content.update(np.unique(split.units, return_inverse=True)[1].astype("<i8").tobytes())
    return content.hexdigest()


def read_facts(directory: Path) -> TaskFacts:
    """The facts of a task, from the output directory of the stage.

    Raises:
        ArtifactError: the directory is incomplete or damaged, or another version of the stage wrote it.
    """
    facts = read_manifest(directory, kind=KIND).facts
    if odd := sorted(({entry.name for entry in fields(TaskFacts)} - {"labels"}) ^ facts.keys()):
        raise ArtifactError(f"{directory}: written by another version ({', '.join(odd)}); run the stage examples again")
    path = directory / "labels.json"
    try:
        labels = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error}); run the stage examples again") from error
    return TaskFacts(labels=labels, **facts)


def read_rows_without_label(directory: Path) -> list[Fields]:
    """The inputs of the rows of train without a label."""
    path = directory / UNLABELLED
    return read_fields(path, stage="examples") if path.is_file() else []


def read_split(directory: Path, split: str) -> Split:
    """A split. It must not be changed: the last ones are kept in memory, because a fine-tuning stage reads them for
    every run and fold.

    Raises:
        ArtifactError: the file cannot be read.
    """
    path = (directory / f"{split}.parquet").absolute()
    state = path.stat() if path.is_file() else None
    return _read_split(path, (state.st_mtime_ns, state.st_ino) if state else None)


@lru_cache(maxsize=KEPT_SPLITS)
def _read_split(path: Path, state: tuple[int, int] | None) -> Split:
    # `state` differs after the file was written again.
    table = read_columns(path, SCHEMA.names, stage="examples")
    return Split(
        [tuple(parts) for parts in table.column("fields").to_pylist()],
        vectors(table.column("target")),
        table.column("slice").to_pylist(),
        table.column("id").to_pylist(),
        table.column("group").to_pylist(),
        known_units=table.column("unit").to_numpy(),
    )
