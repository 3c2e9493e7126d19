"""The ledger file of an earlier version of Headstart, moved to the ledger once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.artifacts import write_atomic
from components.errors import ArtifactError
from components.registry.ledger_entries import OWN, Entry
from components.settings.registry import CHAMPION

if TYPE_CHECKING:
    from components.registry.ledger import Ledger


def import_file(ledger: Ledger, path: Path) -> None:
    """Move the lines of this address from the ledger file of an earlier version to the ledger.

    Entries have the ids of the lines, so that two processes that import at once, or a second attempt, write no entry
    twice. Lines about models that are not in this registry are left out; lines of other addresses stay in the file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    registry = ledger.registry
    raw = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)  # a crash may have left half a line
    lines = [_legacy_line(line, f"{path}:{number}") for number, line in enumerate(raw, start=1)]
    own = [line["uri"] == registry.address for line in lines]
    if not any(own):
        return
    closed = {line["id"]: line["event"] for line in lines if line["event"] in ("done", "abandoned")}
    written = {entry.id for entry in ledger.entries()}
    digests: dict[str, dict[str, str]] = {}
    for line in (line for line, is_own in zip(lines, own, strict=True) if is_own and line["id"] not in written):
        if line["event"] not in ("decision", "intent") or closed.get(line["id"]) == "abandoned":
            continue
        model = line["model"]
        if model not in digests:
            digests[model] = {version.number: version.digest for version in registry.versions(model)}
        if digests[model]:
            ledger.write(_legacy_entry(line, digests[model], done=closed.get(line["id"], "")))
    imported = path.with_name(f"{path.name}.imported")
    write_atomic(imported, (imported.read_bytes() if imported.is_file() else b"") + content)
    if all(own):
        path.unlink(missing_ok=True)
    else:
        write_atomic(path, b"".join(line for line, is_own in zip(raw, own, strict=True) if not is_own))


def _legacy_line(raw: bytes, where: str) -> dict[str, Any]:
    keys = {"decision": ("model", "key", "decision"), "intent": ("model", "alias", "action", "before", "after")}
    try:
        line: dict[str, Any] = json.loads(raw)
        missing = [
            key for key in ("time", "event", "id", "uri", *keys.get(line.get("event", ""), ())) if key not in line
        ]
    except (ValueError, AttributeError) as error:
        raise ArtifactError(f"{where}: damaged ({error}); restore or remove the file") from error
    if missing:
        raise ArtifactError(f"{where}: damaged (no {', '.join(missing)}); restore or remove the file")
    return line


def _legacy_entry(line: Mapping[str, Any], digests: Mapping[str, str], *, done: str) -> Entry:
    event, time = line["event"], datetime.fromisoformat(line["time"])
    if event == "decision":
        facts = {"key": line["key"], "decision": line["decision"]}
        return Entry(0, line["id"], time, event, line["model"], CHAMPION, "unknown", legacy=True, facts=facts)
    before, after = line["before"], line["after"]
    content = digests.get(before or "", "")
    facts = {
        "action": line["action"],
        "before": before,
        "after": after,
        "before_digest": content,
        "after_digest": digests.get(after, ""),
        "reasons": line.get("reasons", []),
        "vetoes": [content] if line["action"] == "rollback" and content else [],
        "history": line.get("history", []),
    }
    done_by = OWN if done else ""
    return Entry(
        0, line["id"], time, "change", line["model"], line["alias"], "unknown", done=done_by, legacy=True, facts=facts
    )
