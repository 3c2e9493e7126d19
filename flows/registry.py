"""Whether the registry is as the last run left it: then the stages that act on it need not start to find that out."""

from __future__ import annotations

import json
from pathlib import Path

from components.artifacts import write_atomic
from components.settings.loading import load_params
from flows.repository import STATE

SQLITE = "sqlite:///"


def is_as_left(params: Path, *, root: Path) -> bool:
    """Whether nobody has written to the registry since a run of this params file ended; False where only a server
    could tell."""
    state = _state(params, root)
    return state is not None and _left(root).get(str(params)) == state


def leave(params: Path, *, root: Path) -> None:
    """Note the registry as it is, at the end of a run."""
    if state := _state(params, root):
        write_atomic(root / STATE / "registry.json", json.dumps(_left(root) | {str(params): state}))


def _state(params: Path, root: Path) -> str | None:
    """What is another after every change of a local database."""
    uri = load_params(params).registry.address
    database = root / uri.removeprefix(SQLITE)
    if not uri.startswith(SQLITE) or not database.is_file():
        return None
    files = [database, *database.parent.glob(f"{database.name}-*")]  # with its journals
    found = [(str(file), (stat := file.stat()).st_ino, stat.st_size, stat.st_mtime_ns) for file in sorted(files)]
    return json.dumps(found)


def _left(root: Path) -> dict[str, str]:
    try:
        return dict(json.loads((root / STATE / "registry.json").read_text()))
    except (OSError, ValueError):
        return {}
