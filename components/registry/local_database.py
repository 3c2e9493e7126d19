"""The champion in a local database of MLflow, read without MLflow: its import takes longer than a prediction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from components.registry.version import PREFIX, Version
from components.settings.registry import SQLITE, RegistrySettings, located

#: Revisions of MLflow's schema whose tables are read here.
REVISIONS: Final = frozenset({"dc11669786a5"})
QUERY: Final = """
SELECT version, source, run_id, storage_location
FROM model_versions NATURAL JOIN (SELECT workspace, name, version FROM registered_model_aliases WHERE alias = ?)
WHERE workspace = 'default' AND name = ? AND current_stage <> 'Deleted_Internal'
"""
TAGS: Final = "SELECT key, value FROM model_version_tags WHERE workspace = 'default' AND name = ? AND version = ?"


def local_champion(settings: RegistrySettings, task: str) -> tuple[Version, Path] | None:
    """The version that the alias of a task points to, and the folder of its bundle; None if MLflow has to be asked:
    another kind of registry, another schema, no such version, files that are elsewhere."""
    address = located(settings.address)
    file = Path(address.removeprefix(SQLITE))
    if not address.startswith(SQLITE) or not file.is_file():
        return None
    name = settings.model_name(task)
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            if {revision for (revision,) in database.execute("SELECT version_num FROM alembic_version")} - REVISIONS:
                return None
            if (row := database.execute(QUERY, (settings.alias, name)).fetchone()) is None:
                return None
            number, source, run, location = row
            tags = {
                key.removeprefix(PREFIX): value
                for key, value in database.execute(TAGS, (name, number))
                if key.startswith(PREFIX)
            }
    except sqlite3.Error:
        return None
    parts = urlsplit(location or "")
    bundles = [*Path(unquote(parts.path)).glob("data/*/")]
    if parts.scheme not in ("", "file") or len(bundles) != 1:
        return None
    return Version(name, str(number), source, run or "", tags), bundles[0]
