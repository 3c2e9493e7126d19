"""Copies of data at an address: `dvc import-url` before a run, and `dvc update` before every later one."""

from __future__ import annotations

from pathlib import Path

from components.settings.imports import Import, localised
from components.settings.loading import read_file
from flows.execution import DVC, run_command
from flows.terminal import StageError, terminal

LIMIT_S = 6 * 3600


def bring(file: Path, *, root: Path) -> list[Path]:
    """Import what the settings name by its address, or the newer version of it; returns the .dvc files.

    If an address cannot be reached, the existing copy is used with a warning, so that an unattended run continues.

    Args:
        file: the settings file.
        root: of the repository.

    Raises:
        StageError: something was never imported, and cannot be.
    """
    return [_brought(each, root) for each in localised(read_file(file))[1]]


def _brought(wanted: Import, root: Path) -> Path:
    path = root / wanted.path
    record = path.with_name(f"{path.name}.dvc")
    if not record.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        terminal.say(f"{wanted.url}: dvc import-url", source="data")
        command = (*DVC, "import-url", wanted.url, wanted.path)
        run_command(command, source="data", root=root, limit_s=LIMIT_S)
        return record
    before = record.read_bytes()
    try:
        run_command((*DVC, "update", f"{wanted.path}.dvc"), source="data", root=root, limit_s=LIMIT_S)
    except StageError:
        # DVC removes the copy before it fetches the new one.
        if not path.exists():
            run_command((*DVC, "checkout", f"{wanted.path}.dvc"), source="data", root=root, limit_s=LIMIT_S)
        terminal.say(f"warning: {wanted.url} cannot be reached; the copy of an earlier run is used", source="data")
    if record.read_bytes() != before:
        terminal.say(f"{wanted.url}: a new version", source="data")
    return record
