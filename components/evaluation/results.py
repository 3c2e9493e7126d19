"""Read the runs of fine-tuning and of the baselines on one version of the test set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError
from components.data.scoring.base import Vectors
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.results import KIND, OUT_OF_FOLD, read_answers

BASELINES = "baselines"
#: `data.tasks.<name>.selection` -> split of the predictions by which choices are made.
SELECTION = {"dev": "dev", "budget": OUT_OF_FOLD}
#: (budget, seed) -> one vector per row.
Answers = dict[tuple[int, int], Vectors]


@dataclass(frozen=True)
class Run:
    """A run of a system. `start`: how the encoder was initialised, such as `adapted`."""

    system: str
    family: str
    start: str
    budget: int
    seed: int
    record: dict[str, Any]
    answers: Vectors


@dataclass(frozen=True)
class TestSplit:
    """The test rows of a task."""

    __test__ = False  # excluded from pytest's collection of classes named Test*

    facts: TaskFacts
    rows: Split


def read_test(examples: Path) -> TestSplit:
    """The test split in the output directory of the stage `examples`."""
    return TestSplit(read_facts(examples), read_split(examples, "test"))


def read_runs(directory: Path, *, test: TestSplit) -> Iterator[Run]:
    """The runs of one output directory of `finetune` or `baseline`."""
    made_from, digests = read_manifest(directory, kind=KIND).facts["examples"], test.facts.digests
    if made_from != digests:
        changed = ", ".join(name for name, digest in digests.items() if made_from.get(name) != digest)
        raise ArtifactError(f"{directory}: made from another version of the task's data ({changed}); fine-tune again")
    records = {
        (record["system"], record["budget"], record["seed"]): record
        for record in json.loads((directory / "runs.json").read_text(encoding="utf-8"))
    }
    predicted = read_answers(directory, "test")
    for (system, budget, seed), record in records.items():
        answers = predicted.get((system, budget, seed), [])
        if len(answers) != len(test.rows):
            raise ArtifactError(
                f"{directory}: {system}, budget {budget}, seed {seed} has {len(answers)} predictions for "
                f"{len(test.rows)} test rows; fine-tune again"
            )
        yield Run(system, record["family"], record["start"], budget, seed, record, answers)


def read_selection(directory: Path, *, facts: TaskFacts) -> dict[str, Answers]:
    """System -> its predictions of the rows of selection, for one output directory of `finetune` or `baseline`."""
    systems: dict[str, Answers] = {}
    for (system, budget, seed), values in read_answers(directory, SELECTION[facts.selection]).items():
        systems.setdefault(system, {})[budget, seed] = values
    return systems


def rows_of_selection(examples: Path, facts: TaskFacts) -> Callable[[int, int], Split]:
    """(budget, seed) -> the rows on which choices are made: dev, or the training rows of the label budget."""
    if facts.selection == "dev":
        dev = read_split(examples, "dev")
        return lambda budget, seed: dev
    train = read_split(examples, "train")
    strata = strata_of(train, facts.kind)
    return lambda budget, seed: train.take(sample_rows(strata, budget, seed=seed)[0])
