"""Requests of a full rebuild: the stages that continue from their last output start anew, as in an empty folder.

A request is a file per stage and item below `rebuild` in the run's folder. The stage reads it when it runs and removes
it when its output is complete, so a request survives a failed or killed run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from components.core.artifacts import read_json, write_atomic
from components.pipeline.jobs import Arguments, corpora, encoders, out
from components.settings.params import Params

FOLDER: Final = "rebuild"
#: The stages whose result depends on their last output.
STAGES: Final[Mapping[str, Callable[[Params], Mapping[str, Arguments]]]] = {
    "ingest": corpora.ingest,
    "ingest-parallel": corpora.ingest_parallel,
    "tokenizer": corpora.tokenizer,
    "adapt": encoders.adapt,
}


def request(params: Params, reason: str, *, root: Path = Path()) -> list[str]:
    """Request a full rebuild, which the next run makes; returns the names of the stages."""
    named = [(stage, item) for stage, items in STAGES.items() for item in items(params)]
    for stage, item in named:
        path = root / file_of(out(params), stage, item)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"reason": reason}) + "\n")
    return [f"{stage}@{item}" for stage, item in named]


def requested(folder: Path, stage: str, item: str) -> str:
    """The reason of a request; empty if there is none."""
    path = file_of(folder, stage, item)
    return str(read_json(path, made_by="headstart retrain --rebuild", missing_ok=True).get("reason", ""))


def fulfil(folder: Path, stage: str, item: str) -> None:
    """Remove a request."""
    file_of(folder, stage, item).unlink(missing_ok=True)


def file_of(folder: Path, stage: str, item: str) -> Path:
    """The file of a request."""
    return folder / FOLDER / stage / f"{item}.json"
