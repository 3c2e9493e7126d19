"""Reading what fine-tuning and the baselines left: runs on one version of the test set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.artifacts import read_manifest
from components.errors import ArtifactError
from components.scoring.base import Vectors
from components.tasks.data import Split
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.results import KIND, read_answers

BASELINES = "baselines"


@dataclass(frozen=True)
class Run:
    """One run: its record (see runs.json) and its answer to each row of the test split."""

    system: str
    family: str
    start: str
    budget: int
    seed: int
    record: dict[str, Any]
    answers: Vectors


@dataclass(frozen=True)
class TestSplit:
    """The rows that everybody is scored on."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    facts: TaskFacts
    rows: Split


@dataclass(frozen=True)
class DevSplit:
    """One system on dev: (budget, seed) -> its answer to each row."""

    answers: dict[tuple[int, int], Vectors]


def read_test(examples: Path) -> TestSplit:
    """The test split of a task as the stage `examples` wrote it.

    Raises:
        ArtifactError: the directory is incomplete.
    """
    return TestSplit(read_facts(examples), read_split(examples, "test"))


def read_runs(directory: Path, *, test: TestSplit) -> Iterator[Run]:
    """The runs of one output directory of `finetune` or `baseline`.

    Raises:
        ArtifactError: the directory is incomplete, or was made from another version of the task's data.
    """
    made_from, digests = read_manifest(directory, kind=KIND).facts["examples"], test.facts.digests
    if made_from != digests:
        changed = ", ".join(name for name, digest in digests.items() if made_from.get(name) != digest)
        raise ArtifactError(f"{directory}: made from another version of the task's data ({changed}); fine-tune again")
    records = {
        (record["system"], record["budget"], record["seed"]): record
        for record in json.loads((directory / "runs.json").read_text(encoding="utf-8"))
    }
    found = read_answers(directory, "test")
    for (system, budget, seed), record in records.items():
        answers = found.get((system, budget, seed), [])
        if len(answers) != len(test.rows):
            raise ArtifactError(
                f"{directory}: {system}, budget {budget}, seed {seed} has {len(answers)} predictions for "
                f"{len(test.rows)} test rows; fine-tune again"
            )
        yield Run(system, record["family"], record["start"], budget, seed, record, answers)


def read_dev(directory: Path) -> dict[str, DevSplit]:
    """What the systems of one output directory of `finetune` said of dev."""
    found = read_answers(directory, "dev")
    return {
        system: DevSplit({(budget, seed): values for (name, budget, seed), values in found.items() if name == system})
        for system, _, _ in found
    }
