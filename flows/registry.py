"""Whether the registry has changed since the last run. If not, the stages that act on it need not start."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json, write_atomic
from components.core.errors import ArtifactError
from components.settings.loading import load_params
from flows.repository import STATE

SQLITE = "sqlite:///"
RECORD = "registry.json"


def is_unchanged(params: Path, *, root: Path) -> bool:
    """Whether the registry is in the state in which the last run of this settings file left it; False if it is not a
    local database."""
    state = _state(params, root)
    return state is not None and _recorded(root).get(str(params)) == state


def record(params: Path, *, root: Path) -> None:
    """Record the state of the registry at the end of a run."""
    if state := _state(params, root):
        write_atomic(root / STATE / RECORD, json.dumps(_recorded(root) | {str(params): state}))


def _state(params: Path, root: Path) -> str | None:
    """A string that differs after every change of a local database."""
    uri = load_params(params).registry.address
    database = root / uri.removeprefix(SQLITE)
    if not uri.startswith(SQLITE) or not database.is_file():
        return None
    files = [database, *database.parent.glob(f"{database.name}-*")]  # with its journals
    states = [(str(file), (stat := file.stat()).st_ino, stat.st_size, stat.st_mtime_ns) for file in sorted(files)]
    return json.dumps(states)


def _recorded(root: Path) -> dict[str, Any]:
    # Without a readable record the stages run.
    with suppress(ArtifactError):
        return read_json(root / STATE / RECORD, made_by="`headstart retrain`", missing_ok=True)
    return {}
