"""Reading what fine-tuning and the baselines left: runs on one version of the test set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.artifacts import read_manifest
from components.errors import ArtifactError

KIND = "finetuned"
BASELINES = "baselines"


@dataclass(frozen=True)
class Run:
    """One run: its record (see runs.json) and its (N, C) probabilities on the test split."""

    system: str
    family: str
    start: str
    budget: int
    seed: int
    record: dict[str, Any]
    probabilities: NDArray[np.float32]


@dataclass(frozen=True)
class TestSplit:
    """The rows that everybody is scored on: labels (N,) by number, their names, and the slice of each row."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    labels: NDArray[np.int64]
    names: list[str]
    slices: list[str | None]
    digests: dict[str, str]


@dataclass(frozen=True)
class DevSplit:
    """One system on dev: labels (N,) by number, and (budget, seed) -> (N, C) probabilities."""

    labels: NDArray[np.int64]
    probabilities: dict[tuple[int, int], NDArray[np.float32]]


def read_test(examples: Path) -> TestSplit:
    """The test split of a task as the stage `examples` wrote it.

    Raises:
        ArtifactError: the directory is incomplete.
    """
    facts = read_manifest(examples, kind="examples").facts
    table = pq.read_table(examples / "test.parquet", columns=["label", "slice"])
    return TestSplit(
        table.column("label").to_numpy().astype(np.int64),
        json.loads((examples / "labels.json").read_text(encoding="utf-8")),
        table.column("slice").to_pylist(),
        facts["digests"],
    )


def read_runs(directory: Path, *, test: TestSplit) -> Iterator[Run]:
    """The runs of one output directory of `finetune` or `baseline`.

    Raises:
        ArtifactError: the directory is incomplete, or was made from another version of the task's data.
    """
    facts = read_manifest(directory, kind=KIND).facts
    if facts["examples"] != test.digests:
        changed = ", ".join(name for name, digest in test.digests.items() if facts["examples"].get(name) != digest)
        raise ArtifactError(f"{directory}: made from another version of the task's data ({changed}); fine-tune again")
    records = {
        (record["system"], record["budget"], record["seed"]): record
        for record in json.loads((directory / "runs.json").read_text(encoding="utf-8"))
    }
    _, found = _predictions(directory, "test")
    for (system, budget, seed), record in records.items():
        probabilities = found.get((system, budget, seed))
        if probabilities is None or len(probabilities) != len(test.labels):
            count = 0 if probabilities is None else len(probabilities)
            raise ArtifactError(
                f"{directory}: {system}, budget {budget}, seed {seed} has {count} predictions for "
                f"{len(test.labels)} test rows; fine-tune again"
            )
        yield Run(system, record["family"], record["start"], budget, seed, record, probabilities)


def read_dev(directory: Path) -> dict[str, DevSplit]:
    """What the systems of one output directory of `finetune` said of dev."""
    labels, found = _predictions(directory, "dev")
    return {
        system: DevSplit(
            labels, {(budget, seed): values for (name, budget, seed), values in found.items() if name == system}
        )
        for system, _, _ in found
    }


def _predictions(
    directory: Path, split: str
) -> tuple[NDArray[np.int64], dict[tuple[str, int, int], NDArray[np.float32]]]:
    """True labels (N,) of a split's rows, and (system, budget, seed) -> (N, C) probabilities."""
    table = pq.read_table(
        directory / "runs.parquet",
        columns=["system", "budget", "seed", "label", "probabilities"],
        filters=[("split", "=", split)],
    )
    values = table.column("probabilities").combine_chunks()
    flat = (values.values if isinstance(values, pa.ListArray) else values.flatten()).to_numpy()
    probabilities = flat.reshape(len(table), -1)
    runs = pa.table({name: table.column(name) for name in ("system", "budget", "seed")}).to_pylist()
    places: dict[tuple[str, int, int], list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault((run["system"], run["budget"], run["seed"]), []).append(place)
    labels = table.column("label").to_numpy().astype(np.int64)
    first = next(iter(places.values()), [])
    return labels[first], {run: probabilities[rows] for run, rows in places.items()}
