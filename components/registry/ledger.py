"""The ledger: every decision and every change of an alias, in the tracking database.

The ledger is a registered model of MLflow, `headstart.ledger`, whose versions are the entries (`Registry.append`). The
tracking address may be a database or an MLflow server in front of it, so a table of its own would split the history.
All hosts, clones and addresses of one tracking database share these entries, and MLflow's page shows them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.account import who
from components.errors import RegistryError
from components.measurements import run_id
from components.registry.ledger_entries import OWN, Change, Entry, State, in_words, replay
from components.registry.ledger_import import import_file
from components.settings.registry import find_repository
from components.tracking import VALUE_LENGTH, Registry, Version

LEDGER = "headstart.ledger"
#: Version of the entries' format.
SCHEMA = 1
ABOUT = "Ledger of Headstart: decisions and changes of aliases. The versions are entries without files."
#: The file that held the ledger of a clone in earlier versions; it is imported once.
LEGACY = Path(".headstart/ledger.jsonl")
#: Tag of a change that was applied (`Entry.done`).
DONE = "done"


class Ledger:
    """The ledger at one tracking address. Entries that an earlier version of Headstart has written to the file LEGACY
    of this repository are imported first."""

    def __init__(self, registry: Registry, *, legacy: Path | None = None) -> None:
        self.registry = registry
        import_file(self, (find_repository(Path()) or Path()) / LEGACY if legacy is None else legacy)

    def append(
        self, event: str, *, model: str, alias: str, expect: int | None = None, facts: Mapping[str, Any]
    ) -> Entry:
        """Write an entry.

        Raises:
            RegistryError: the registry cannot be reached.
        """
        now = datetime.now(UTC)
        entry = Entry(0, uuid.uuid4().hex, now, event, model, alias, who(), expect, run=run_id(), facts=facts)
        return self.write(entry)

    def write(self, entry: Entry) -> Entry:
        """Write an entry whose position is not known yet."""
        content = json.dumps(
            {
                "time": entry.time.isoformat(timespec="milliseconds"),
                "by": entry.by,
                "expect": entry.expect,
                "legacy": entry.legacy,
                "run": entry.run,
                "facts": dict(entry.facts),
            }
        )
        parts = [content[start : start + VALUE_LENGTH] for start in range(0, len(content), VALUE_LENGTH)]
        tags = {"schema": str(SCHEMA), "event": entry.event, "model": entry.model, "alias": entry.alias, "id": entry.id}
        tags |= {f"entry.{number:03d}": part for number, part in enumerate(parts)}
        if entry.done:
            tags[DONE] = entry.done
        position = self.registry.append(LEDGER, tags=tags, text=in_words(entry), about=ABOUT)
        return Entry(**{**vars(entry), "position": position})

    def entries(self, model: str | None = None) -> list[Entry]:
        """The entries of a model, or all, oldest first. Entries that were written twice occur once.

        Raises:
            RegistryError: the registry cannot be reached, or an entry was written by a later version.
        """
        versions = self.registry.versions(LEDGER, **({"model": model} if model is not None else {}))
        found: dict[str, Entry] = {}
        for entry in map(_entry, versions):
            found.setdefault(entry.id, entry)
        return list(found.values())

    def state(self, model: str, alias: str) -> State:
        """The present state of an alias."""
        return replay(self.entries(model), model=model, alias=alias)

    def mark_done(self, change: Change, value: str) -> None:
        """Mark a change as applied."""
        if change.entry.done != OWN:
            self.registry.set_tag(Version(LEDGER, str(change.entry.position), "", ""), DONE, value)


def _entry(version: Version) -> Entry:
    tags = version.tags
    if int(tags.get("schema", SCHEMA)) > SCHEMA:
        raise RegistryError(f"{version.label}: written by a later version of Headstart; update this one")
    try:
        content = json.loads("".join(tags[key] for key in sorted(tags) if key.startswith("entry.")))
        return Entry(
            position=int(version.number),
            id=tags["id"],
            time=datetime.fromisoformat(content["time"]),
            event=tags["event"],
            model=tags["model"],
            alias=tags["alias"],
            by=content["by"],
            expect=content["expect"],
            done=tags.get(DONE, ""),
            legacy=content["legacy"],
            run=content.get("run", ""),
            facts=content["facts"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise RegistryError(f"{version.label}: damaged entry of the ledger ({error!r}); delete this version") from error
