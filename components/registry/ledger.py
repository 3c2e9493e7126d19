"""The ledger of alias changes, and the changes themselves.

The ledger is an append-only file of JSON lines. A change is recorded as an intent, applied, and recorded as done. A
process that dies in between leaves an open intent, which the next process completes (`recover`). MLflow has no
compare-and-swap, and the alias and the history tag are two transactions, so one lock guards every change.

Lines (each has `time`, `event`, `id` and `uri`):

| event     | further keys                                                                              |
|-----------|-------------------------------------------------------------------------------------------|
| decision  | model, key (digest of the decision's inputs), decision (as in decision.json)              |
| intent    | model, alias, action (promote or rollback), before, after, history, reasons               |
| done      | recovered (true if another process recorded the intent)                                   |
| abandoned | reason                                                                                    |
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from components.errors import ArtifactError, RegistryError
from components.tracking import Registry, Version

CHAMPION = "champion"
#: Tag of the registered model: all champions, oldest first, as a JSON list of version numbers.
HISTORY = "champions"
#: Tag of a version that was rolled back; its value is the time.
ROLLED_BACK = "rolled_back"
#: Maximum length of the list of champions.
HISTORY_LENGTH = 50
LOCK_SECONDS = 300.0


@dataclass(frozen=True)
class Change:
    """An intended change of an alias. `before` and `after` are version numbers; `history` lists the champions
    including `after`."""

    id: str
    uri: str
    model: str
    alias: str
    action: Literal["promote", "rollback"]
    before: str | None
    after: str
    history: tuple[str, ...]
    reasons: tuple[str, ...]


class Ledger:
    """An append-only file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(self, event: str, *, id: str, uri: str, **facts: Any) -> None:
        """Write one line and flush it to disk, under a lock of the file. An incomplete last line, left by a crash, is
        removed first.

        Raises:
            ArtifactError: the file cannot be written.
        """
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "id": id,
            "uri": uri,
            **facts,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                # Freed when the file is closed. The length is read under the lock: another process may be appending.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.truncate(self._complete_bytes())
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArtifactError(f"{self.path}: cannot be written ({error.strerror}); free space") from error

    def lines(self) -> list[dict[str, Any]]:
        """All complete lines, oldest first.

        Raises:
            ArtifactError: a line is not JSON.
        """
        if not self.path.is_file():
            return []
        found = []
        for number, line in enumerate(self.path.read_bytes()[: self._complete_bytes()].splitlines(), start=1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ArtifactError(f"{self.path}:{number}: damaged ({error}); restore the file") from error
        return found

    def _complete_bytes(self) -> int:
        """Length of the complete lines in bytes."""
        return self.path.read_bytes().rfind(b"\n") + 1 if self.path.is_file() else 0

    def open_changes(self, uri: str) -> list[Change]:
        """Intents at this tracking URI without a `done` or `abandoned` line."""
        closed = {line["id"] for line in self.lines() if line["event"] in ("done", "abandoned")}
        return [
            Change(
                id=line["id"],
                uri=line["uri"],
                model=line["model"],
                alias=line["alias"],
                action=line["action"],
                before=line["before"],
                after=line["after"],
                history=tuple(line["history"]),
                reasons=tuple(line["reasons"]),
            )
            for line in self.lines()
            if line["event"] == "intent" and line["uri"] == uri and line["id"] not in closed
        ]

    def decision(self, key: str, uri: str) -> dict[str, Any] | None:
        """The last decision with these inputs, or None."""
        decisions = [line for line in self.lines() if line["event"] == "decision" and line["uri"] == uri]
        found = [line for line in decisions if line["key"] == key]
        return dict(found[-1]["decision"]) if found else None

    def last_change(self, model: str, version: str, uri: str) -> dict[str, Any] | None:
        """Time, action and reasons of the last change that made `version` the champion, or None."""
        intents = [line for line in self.lines() if line["event"] == "intent" and line["uri"] == uri]
        found = [line for line in intents if line["model"] == model and line["after"] == version]
        return {key: found[-1][key] for key in ("time", "action", "reasons")} if found else None


@contextmanager
def locked(ledger: Ledger, *, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock on alias changes. The operating system releases it when the process ends.

    Raises:
        RegistryError: another process held it for `seconds` seconds.
    """
    path = ledger.path.with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    file.seek(0)
                    holder = file.read().strip() or "unknown"
                    raise RegistryError(
                        f"{path}: process {holder} has held the registry lock for more than {seconds:g} s; "
                        "wait for it or end it, then run this again"
                    ) from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def champions(registry: Registry, model: str) -> list[str]:
    """Version numbers of a model's champions, the current one last."""
    try:
        found = json.loads(registry.model_tag(model, HISTORY) or "[]")
    except ValueError:
        found = []
    return [str(number) for number in found] if isinstance(found, list) else []


def move_champion(
    registry: Registry,
    ledger: Ledger,
    *,
    model: str,
    action: Literal["promote", "rollback"],
    before: str | None,
    after: str,
    history: Sequence[str],
    reasons: Sequence[str],
) -> None:
    """Set the alias `champion` to version `after`, with an intent before and a `done` line after. The caller holds the
    lock.

    Raises:
        RegistryError: the alias no longer points to `before`.
    """
    present = registry.alias(model, CHAMPION)
    number = present.number if present is not None else None
    if number != before:
        raise RegistryError(
            f"{model}@{CHAMPION}: was moved from version {before or 'none'} to {number or 'none'} meanwhile; "
            "run this again"
        )
    change = Change(
        id=uuid.uuid4().hex,
        uri=registry.address,
        model=model,
        alias=CHAMPION,
        action=action,
        before=before,
        after=after,
        history=tuple(history)[-HISTORY_LENGTH:],
        reasons=tuple(reasons),
    )
    ledger.append("intent", **asdict(change))
    _apply(registry, change)
    ledger.append("done", id=change.id, uri=change.uri, recovered=False)


def _apply(registry: Registry, change: Change) -> None:
    """Apply a change. Each step is idempotent, so recovery can repeat it."""
    registry.set_alias(change.model, change.alias, registry.get(change.model, change.after))
    registry.set_model_tag(change.model, HISTORY, json.dumps(list(change.history)))
    if change.action == "rollback" and change.before is not None:
        rolled_back = registry.get(change.model, change.before)
        registry.set_tag(rolled_back, ROLLED_BACK, datetime.now(UTC).isoformat(timespec="seconds"))


def recover(registry: Registry, ledger: Ledger) -> list[str]:
    """Complete the open intents of processes that ended. The caller holds the lock.

    Returns:
        One sentence per intent.
    """
    sentences = []
    for change in ledger.open_changes(registry.address):
        present = registry.alias(change.model, change.alias)
        number = present.number if present is not None else None
        what = f"{change.action} of {change.model} from version {change.before or 'none'} to {change.after}"
        if number not in (change.before, change.after):
            reason = f"the alias now points to version {number or 'none'}"
            ledger.append("abandoned", id=change.id, uri=change.uri, reason=reason)
            sentences.append(f"interrupted {what}: abandoned, {reason}")
            continue
        try:
            _apply(registry, change)
        except RegistryError as error:
            ledger.append("abandoned", id=change.id, uri=change.uri, reason=str(error))
            sentences.append(f"interrupted {what}: abandoned, {error}")
            continue
        ledger.append("done", id=change.id, uri=change.uri, recovered=True)
        sentences.append(f"interrupted {what}: finished")
    return sentences


def roll_back(registry: Registry, ledger: Ledger, *, model: str) -> tuple[Version, Version]:
    """Restore the previous champion. The current one is tagged and not promoted again automatically.

    Returns:
        (rolled-back version, restored version).

    Raises:
        RegistryError: there is no champion, or no previous one.
    """
    with locked(ledger):
        recover(registry, ledger)
        present = registry.alias(model, CHAMPION)
        if present is None:
            raise RegistryError(f"{model}: has no champion to roll back")
        history = champions(registry, model)
        with contextlib.suppress(ValueError):  # the current version is not in the history
            # After a manual change of the alias, later entries of the history do not precede the current version.
            history = history[: len(history) - history[::-1].index(present.number)]
        while history and history[-1] == present.number:
            history.pop()
        if not history:
            raise RegistryError(f"{model}: no champion is recorded before version {present.number}")
        restored = registry.get(model, history[-1])
        move_champion(
            registry,
            ledger,
            model=model,
            action="rollback",
            before=present.number,
            after=restored.number,
            history=history,
            reasons=[f"version {present.number} rolled back"],
        )
        return present, restored
