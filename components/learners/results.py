"""What a stage writes of the systems that have learned a task."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.results import RunResult, write_results


def write_runs(directory: Path, examples: Path, results: Iterable[RunResult], *, system: str) -> dict[str, Any]:
    """Write the files of `components.data.tasks.results`, one result at a time; returns facts of the manifest.
    `examples`: output directory of the stage `examples`."""
    facts = read_facts(examples)
    named = ("dev", "test") if facts.selection == "dev" else ("test",)
    splits = {name: read_split(examples, name) for name in named}
    records = write_results(directory, results, splits=splits, labels=facts.labels)
    return {
        "task": facts.task,
        "system": system,
        "selection": facts.selection,
        "examples": facts.digests,
        "runs": len(records),
    }
